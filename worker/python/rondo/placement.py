"""Which rank holds which part of a tensor: said by the program, never guessed from values.

    Replicate()                     every rank holds all of it
    Shard(0)                        cut along dimension 0 over the ranks, or an axis of a mesh
    [Shard(0, "tensor"), Shard(1, "data")]      one after the other
    On([2, 3])                      these ranks hold all of it, others nothing
    Boxes(shape, [(rank, offset, size), ...])   any boxes
    Flat(shape, [(rank, begin, end), ...])      ranges of the row-major order (flat parameters)

Every rank says the same of every tensor, also of those that it holds nothing of: there its value is
Absent(dtype, shape), or a tensor on torch's "meta" device.
"""

import difflib
import fnmatch
import itertools
import math


class Mesh:
    """Named axes; ranks count them in row-major order, the last axis fastest:
    Mesh(data=2, tensor=4). Or an array of ranks, as of torch's DeviceMesh, with names for its axes.
    """

    def __init__(self, ranks=None, names=None, **axes):
        if ranks is None:
            self.names, self.shape = tuple(axes), tuple(int(size) for size in axes.values())
            self.ranks = tuple(range(math.prod(self.shape)))
        else:
            self.shape, self.ranks = flatten_ranks(ranks)
            self.names = tuple(names or (f"axis{at}" for at in range(len(self.shape))))
        if min(self.shape, default=0) < 1 or len(self.names) != len(self.shape):
            raise ValueError(f"a mesh with axes {self.names} of sizes {self.shape}")
        if len(set(self.ranks)) != len(self.ranks):
            raise ValueError("a mesh that has a rank twice")

    def axis(self, name):
        if name is None and len(self.names) == 1:
            return 0
        if isinstance(name, int) and 0 <= name < len(self.names):
            return name
        if name not in self.names:
            raise ValueError(f"the mesh has axes {', '.join(self.names)}, not {name}")
        return self.names.index(name)

    def places(self):
        """(rank, coordinates) of every rank of the mesh."""
        return zip(self.ranks, itertools.product(*map(range, self.shape)))

    def coordinates(self, rank):
        for found, place in self.places():
            if found == rank:
                return dict(zip(self.names, place))
        raise ValueError(f"rank {rank} is not in the mesh")

    def __repr__(self):
        return "Mesh(" + ", ".join(f"{n}={s}" for n, s in zip(self.names, self.shape)) + ")"


def flatten_ranks(ranks):
    """(shape, flat tuple) of nested lists, an array or a tensor."""
    ranks = ranks.tolist() if hasattr(ranks, "tolist") else ranks
    shape = []
    level = [ranks]
    while isinstance(level[0], (list, tuple)):
        shape.append(len(level[0]))
        if any(len(row) != shape[-1] for row in level):
            raise ValueError("a mesh with rows of different lengths")
        level = [item for row in level for item in row]
    return tuple(shape), tuple(int(rank) for rank in level)


def chunk_cuts(size, parts):
    """torch.chunk's: as many full ones as there are, then the rest, then nothing."""
    step = -(-size // parts)
    return [min(size, at * step) for at in range(parts + 1)]


def balanced_cuts(size, parts):
    """Sizes differ by one at most; larger ones first."""
    each, more = divmod(size, parts)
    return [at * each + min(at, more) for at in range(parts + 1)]


RULES = {"chunk": chunk_cuts, "balanced": balanced_cuts}


class Replicate:
    """Every rank of the job holds the whole tensor, with equal values."""

    def __repr__(self):
        return "Replicate()"


class Shard:
    """Cut along a dimension over an axis of the mesh (all ranks when there is no mesh).

    Shard(0, "tensor") names the axis; Shard(0, [0, 9, 20]) the cuts: the boundaries, [0, ...,
    extent], one more than parts. Or size, the whole extent, cut by rule "chunk" (torch's) or
    "balanced". With neither all parts are as long as this rank's.
    blocks: extents that are cut each on its own and lie behind one another in every part (a fused
    QKV: [q, k, v])."""

    def __init__(self, dim, axis=None, cuts=None, size=None, rule="chunk", blocks=None):
        if isinstance(axis, (list, tuple, range)):
            if cuts is not None:
                raise ValueError("Shard: the cuts are there twice")
            axis, cuts = None, axis
        if rule not in RULES:
            raise ValueError(f"rule {rule!r}: one of {', '.join(RULES)}")
        if sum(given is not None for given in (cuts, size, blocks)) > 1:
            raise ValueError("Shard takes one of cuts, size and blocks")
        self.dim, self.axis, self.size, self.rule = dim, axis, size, rule
        self.cuts = None if cuts is None else tuple(int(cut) for cut in cuts)
        self.blocks = None if blocks is None else tuple(int(block) for block in blocks)

    def key(self):
        return ("shard", self.dim, self.axis, self.cuts, self.size, self.rule, self.blocks)

    def parts(self, intervals, count, part):
        """Of the intervals that a rank has so far, those that are left for one part of count."""
        if self.blocks is not None:
            if len(intervals) != 1 or intervals[0] != (0, sum(self.blocks)):
                raise ValueError(f"blocks of {sum(self.blocks)} elements in {intervals}")
            ends = list(itertools.accumulate(self.blocks, initial=0))
            intervals = list(zip(ends, ends[1:]))
        out = []
        for begin, end in intervals:
            cuts = self.cuts or RULES[self.rule](end - begin, count)
            check_cuts(cuts, end - begin, count)
            out.append((begin + cuts[part], begin + cuts[part + 1]))
        return out

    def __repr__(self):
        return f"Shard({self.dim}" + (f", {self.axis!r}" if self.axis is not None else "") + ")"


def check_cuts(cuts, extent, count):
    if len(cuts) != count + 1 or cuts[0] != 0 or cuts[-1] != extent or list(cuts) != sorted(cuts):
        raise ValueError(f"cuts {list(cuts)} do not cut {extent} elements into {count} parts")


class On:
    """These ranks hold the whole tensor, with equal values; others nothing."""

    def __init__(self, ranks):
        self.ranks = tuple(sorted(set(int(rank) for rank in ranks)))
        if not self.ranks:
            raise ValueError("a tensor that no rank holds")

    def __repr__(self):
        return f"On({list(self.ranks)})"


class Boxes:
    """(rank, offset, size) of every box of every rank. A rank with several boxes has a list of
    tensors, one for each."""

    def __init__(self, shape, boxes):
        self.shape = tuple(int(size) for size in shape)
        self.boxes = [(int(rank), tuple(map(int, offset)), tuple(map(int, size)))
                      for rank, offset, size in boxes]

    def __repr__(self):
        return f"Boxes({list(self.shape)}, {len(self.boxes)} boxes)"


class Flat:
    """(rank, begin, end) of every range of elements in row-major order. A rank's tensor may be
    longer than its range: the rest is padding. With several ranges it has a list of tensors."""

    def __init__(self, shape, ranges):
        self.shape = tuple(int(size) for size in shape)
        self.ranges = [tuple(map(int, entry)) for entry in ranges]

    def __repr__(self):
        return f"Flat({list(self.shape)}, {len(self.ranges)} ranges)"


class Placed:
    """A value with its placement: what a state may have in place of a tensor."""

    def __init__(self, value, placement):
        self.value, self.placement = value, placement


class Like:
    """A tensor that is placed as another one is when both have the same shape (an optimizer's
    moments), else whole on the ranks that hold the other. name: of that one in its module."""

    def __init__(self, value, of, name=None):
        self.value, self.of, self.name = value, of, name


class Absent:
    """A tensor that this rank holds nothing of. dtype: as in the file ("F32"), or torch's or
    NumPy's."""

    def __init__(self, dtype, shape):
        self.dtype, self.shape = dtype, tuple(int(size) for size in shape)


class Layout:
    """rules: {pattern of the path: placement}, the first that matches counts ("*" matches anything,
    dots too), or a function of path and tensor; what no rule names is replicated, and a rule that
    names nothing is an error. aliases: {path:
    path} of tied weights: the first is stored as the second."""

    def __init__(self, rules=None, mesh=None, aliases=None):
        self.rules, self.mesh, self.aliases = rules or {}, mesh, dict(aliases or {})

    def find(self, path, value):
        if callable(self.rules):
            return self.rules(path, value)
        for pattern, placement in self.rules.items():
            if fnmatch.fnmatchcase(path, pattern):
                return placement
        return None

    def check_used(self, paths):
        """A rule for a name that was mistyped would leave a tensor replicated that is not."""
        for pattern in () if callable(self.rules) else self.rules:
            if pattern != "*" and not any(fnmatch.fnmatchcase(path, pattern) for path in paths):
                near = difflib.get_close_matches(pattern, paths, 1)
                raise ValueError(f"the layout's rule {pattern!r} matches no tensor of the state"
                                 + (f"; did you mean {near[0]!r}?" if near else ""))


def as_layout(given):
    if given is None or isinstance(given, (dict,)) or callable(given):
        return Layout(given)
    if isinstance(given, Layout):
        return given
    if isinstance(given, (Replicate, Shard, On, list, tuple)):
        return Layout({"*": given})
    raise TypeError(f"a layout is rules, a placement or a Layout, not {type(given).__qualname__}")


# --- what a placement comes to


class Resolved:
    """shape: global. json: the layout as layout.json has it. parts: this rank's pieces, each a list
    of (begin, end) per dimension within its own tensor, or a number of leading elements (Flat)."""

    def __init__(self, shape, json, parts, several=False):
        self.shape, self.json, self.parts, self.several = tuple(shape), json, parts, several


def resolve(placement, local, rank, world, mesh=None):
    """local: shape of this rank's tensor, or of the whole one (the second item then is True)."""
    shape, is_whole = local
    if placement is None or isinstance(placement, Replicate):
        return whole(shape, range(world), True)
    if isinstance(placement, On):
        if placement.ranks[-1] >= world:
            raise ValueError(f"{placement} in a world of {world}")
        return whole(shape, placement.ranks, rank in placement.ranks)
    if isinstance(placement, Boxes):
        return boxes(placement, rank, world)
    if isinstance(placement, Flat):
        return flat(placement, rank, world)
    shards = [placement] if isinstance(placement, Shard) else list(placement)
    shards = [shard for shard in shards if not isinstance(shard, Replicate)]
    if not all(isinstance(shard, Shard) for shard in shards):
        raise ValueError(f"{placement!r} is no placement")
    mesh = mesh or Mesh(ranks=list(range(world)))
    if sorted(mesh.ranks) != list(range(world)):
        raise ValueError(f"{mesh} is over {len(mesh.ranks)} ranks, the job has {world}")
    return sharded(shards, shape, is_whole, rank, mesh)


def whole(shape, ranks, mine):
    json = {"kind": "grid", "cuts": [[0, size] for size in shape], "ranks": [list(ranks)]}
    return Resolved(shape, json, [[(0, size) for size in shape]] if mine else [])


def global_shape(shards, shape, mesh):
    """Of parts that are all as long as this rank's, where nothing else is said."""
    shape = list(shape)
    for dim in range(len(shape)):
        mine = [shard for shard in shards if shard.dim % len(shape) == dim]
        if not mine:
            continue
        first = mine[0]
        if first.cuts is not None:
            shape[dim] = first.cuts[-1]
        elif first.blocks is not None:
            shape[dim] = sum(first.blocks)
        elif first.size is not None:
            shape[dim] = first.size
        else:
            shape[dim] *= math.prod(mesh.shape[mesh.axis(shard.axis)] for shard in mine)
    return shape


def sharded(shards, shape, is_whole, rank, mesh):
    if not shape:
        raise ValueError("a tensor of no dimensions cannot be cut")
    for shard in shards:
        if not -len(shape) <= shard.dim < len(shape):
            raise ValueError(f"{shard} of a tensor of {len(shape)} dimensions")
    all_of_it = list(shape) if is_whole else global_shape(shards, shape, mesh)
    held = {}
    for number, place in mesh.places():
        own = [[(0, size)] for size in all_of_it]
        for shard in shards:
            axis = mesh.axis(shard.axis)
            dim = shard.dim % len(shape)
            own[dim] = shard.parts(own[dim], mesh.shape[axis], place[axis])
        held[number] = own
    return from_intervals(all_of_it, held, rank, None if is_whole else shape)


def from_intervals(shape, held, rank, local):
    """held: of each rank, its intervals in each dimension; its tensor holds them one behind the
    other."""
    mine = held.get(rank, [[] for _ in shape])
    extents = tuple(sum(end - begin for begin, end in dim) for dim in mine)
    if local is not None and rank in held and extents != tuple(local):
        raise ValueError(f"its shape here is {list(local)}, and {list(extents)} by its placement")
    if all(len(dim) == 1 for own in held.values() for dim in own):
        return Resolved(shape, grid_json(shape, held), local_parts(mine))
    listed = []
    for number, own in sorted(held.items()):
        for box in itertools.product(*own):
            if all(end > begin for begin, end in box):
                listed.append([number, [b for b, _ in box], [e - b for b, e in box]])
    return Resolved(shape, {"kind": "boxes", "boxes": listed}, local_parts(mine))


def grid_json(shape, held):
    cuts = []
    for dim, size in enumerate(shape):
        edges = {0, size}.union(*(own[dim][0] for own in held.values()))
        cuts.append(sorted(edges) if size else [0, 0])
    places = [{cut: at for at, cut in enumerate(dim)} for dim in cuts]
    cells = [[] for _ in range(math.prod(len(dim) - 1 for dim in cuts))]
    for number, own in sorted(held.items()):
        if all(end > begin for ((begin, end),) in own):
            at = 0
            for dim, ((begin, end),) in enumerate(own):
                if places[dim][begin] + 1 != places[dim][end]:
                    raise ValueError("parts of different ranks overlap without being equal")
                at = at * (len(cuts[dim]) - 1) + places[dim][begin]
            cells[at].append(number)
    return {"kind": "grid", "cuts": cuts, "ranks": cells}


def local_parts(own):
    """Where each piece that is not empty lies within the rank's own tensor."""
    local = []
    for dim in own:
        at, spans = 0, []
        for begin, end in dim:
            spans.append((at, at + end - begin))
            at += end - begin
        local.append(spans)
    return [list(box) for box in itertools.product(*local) if all(e > b for b, e in box)]


def boxes(placement, rank, world):
    listed = []
    mine = []
    for number, offset, size in placement.boxes:
        if number >= world or len(offset) != len(placement.shape) or len(size) != len(offset):
            raise ValueError(f"box {(number, offset, size)} of {placement} in a world of {world}")
        if all(size):
            listed.append([number, list(offset), list(size)])
            if number == rank:
                mine.append([(0, extent) for extent in size])
    return Resolved(placement.shape, {"kind": "boxes", "boxes": listed}, mine, True)


def flat(placement, rank, world):
    total = math.prod(placement.shape)
    for number, begin, end in placement.ranges:
        if not (0 <= number < world and 0 <= begin <= end):
            raise ValueError(f"range {(number, begin, end)} of {placement} in a world of {world}")
    json = {"kind": "flat", "ranges": [list(entry) for entry in placement.ranges]}
    mine = [max(0, min(end, total) - begin) for number, begin, end in placement.ranges
            if number == rank]
    return Resolved(placement.shape, json, [count for count in mine if count], True)


# --- torch's DTensor, by what it offers and not by its name


def of_dtensor(value):
    """(mesh, shards in the order in which they cut) of anything with device_mesh, placements and
    to_local."""
    ranks = value.device_mesh.mesh
    mesh = Mesh(ranks=ranks)
    plain, strided = [], []
    for axis, placement in enumerate(value.placements):
        if placement.is_shard():
            late = getattr(placement, "split_factor", None) is not None
            (strided if late else plain).append(Shard(placement.dim, axis, size=None))
        elif not placement.is_replicate():
            raise ValueError(f"a DTensor with the placement {placement} holds no values to save")
    return mesh, plain + strided[::-1]


def resolve_dtensor(value, rank, world):
    mesh, shards = of_dtensor(value)
    shape = tuple(value.shape)
    held = {}
    for number, place in mesh.places():
        own = [[(0, size)] for size in shape]
        for shard in shards:
            own[shard.dim % len(shape)] = shard.parts(
                own[shard.dim % len(shape)], mesh.shape[shard.axis], place[shard.axis])
        held[number] = own
    if max(mesh.ranks) >= world:
        raise ValueError(f"a DTensor over ranks up to {max(mesh.ranks)} in a world of {world}")
    if not shape:
        return whole(shape, sorted(held), rank in held)
    local = tuple(value.to_local().shape) if rank in held else None
    return from_intervals(shape, held, rank, local)
