"""Placements: every rank says the same, and what the ranks hold by it is the whole tensor."""

import itertools
import json
import random

import numpy
import pytest

import rondo
from rondo import _memory, checkpoint
from rondo._state import Tree
from rondo.placement import as_layout, balanced_cuts, chunk_cuts


def described(state, layout, rank, world, loading=False):
    return checkpoint.Described(Tree(state), as_layout(layout), rank, world, loading)


def pieces(one):
    """{tensor's number: its pieces' bytes} of a rank, as C sees them."""
    out = {}
    for at in range(0, len(one.pieces), checkpoint.PIECE.size):
        address, size, number, _ = checkpoint.PIECE.unpack_from(one.pieces, at)
        out.setdefault(number, []).append(_memory.copy_bytes(address, size))
    return out


def range_boxes(shape, begin, end):
    """The elements of a range, as indices."""
    return [numpy.unravel_index(at, shape) for at in range(begin, end)]


def gather(text, ranks):
    """A reader of its own: the global arrays that layout and pieces of all ranks come to. Fails
    where elements are missing, or replicas differ."""
    layout = json.loads(text)
    out = {}
    for number, (name, dtype, shape, kind) in enumerate(layout["tensors"]):
        whole = numpy.zeros(shape, _memory.DTYPES[dtype][2])
        seen = numpy.zeros(shape, bool)
        for rank, held in enumerate(ranks):
            data = b"".join(held.get(number, []))
            at = 0
            for index in indices(layout["layouts"][kind], rank, shape):
                value = numpy.frombuffer(data, whole.dtype, 1, at)[0]
                at += whole.dtype.itemsize
                assert not seen[index] or whole[index] == value, (name, index)
                whole[index], seen[index] = value, True
            assert at == len(data), (name, rank)
        assert seen.all(), name
        out[name] = whole
    return out


def indices(layout, rank, shape):
    if layout["kind"] == "flat":
        total = int(numpy.prod(shape, dtype=int))
        for holder, begin, end in layout["ranges"]:
            if holder == rank:
                yield from range_boxes(shape, begin, min(end, total))
        return
    boxes = layout.get("boxes")
    if boxes is None:
        boxes = []
        spans = [list(zip(cuts, cuts[1:])) for cuts in layout["cuts"]]
        for box, holders in zip(itertools.product(*spans), layout["ranks"]):
            boxes += [[holder, [b for b, _ in box], [e - b for b, e in box]] for holder in holders]
    for holder, offset, size in boxes:
        if holder == rank:
            yield from itertools.product(*(range(o, o + s) for o, s in zip(offset, size)))


def check(whole, world, layout, local, name="x"):
    """local(rank): that rank's value. The text is the same everywhere, the gathered array right."""
    ranks = [described({name: local(rank)}, layout, rank, world) for rank in range(world)]
    assert len({one.text for one in ranks}) == 1
    found = gather(ranks[0].text, [pieces(one) for one in ranks])[name]
    assert found.shape == whole.shape and (found == whole).all()
    return json.loads(ranks[0].text)


def numbers(*shape, dtype="int32"):
    return numpy.arange(1, 1 + int(numpy.prod(shape, dtype=int)), dtype=dtype).reshape(shape)


def test_replicated_is_the_default_also_without_dimensions_or_elements():
    for shape in ((), (0,), (3, 0, 2), (5,), (2, 3)):
        check(numbers(*shape), 3, None, lambda rank: numbers(*shape))


@pytest.mark.parametrize("rule,cuts_of", [("chunk", chunk_cuts), ("balanced", balanced_cuts)])
def test_shards_by_rule_also_with_empty_ranks(rule, cuts_of):
    for size, world in ((7, 4), (4, 4), (5, 4), (2, 5), (13, 3), (0, 2), (1, 1)):
        whole, cuts = numbers(3, size), cuts_of(size, world)
        check(whole, world, rondo.Shard(1, size=size, rule=rule),
              lambda rank: whole[:, cuts[rank] : cuts[rank + 1]])


def test_torch_chunk_is_what_the_rule_says():
    torch = pytest.importorskip("torch")
    for size, parts in itertools.product(range(1, 20), range(1, 8)):
        cuts = chunk_cuts(size, parts)
        want = [len(one) for one in torch.arange(size).chunk(parts)]
        got = [end - begin for begin, end in zip(cuts, cuts[1:])]
        assert got == want + [0] * (parts - len(want))


def test_even_shards_need_no_more_words_and_uneven_ones_are_told_apart():
    whole = numbers(8, 2)
    check(whole, 4, rondo.Shard(0), lambda rank: whole[2 * rank : 2 * rank + 2])
    texts = {described({"x": numbers(size)}, rondo.Shard(0), 0, 2).text for size in (3, 4)}
    assert len(texts) == 2  # the digests differ: such a save is refused


def test_shards_over_a_mesh_and_replicas_over_its_other_axis():
    mesh = rondo.Mesh(data=2, tensor=3)
    whole = numbers(9, 4)
    layout = rondo.Layout({"*": rondo.Shard(0, "tensor")}, mesh)
    found = check(whole, 6, layout, lambda rank: whole[3 * (rank % 3) : 3 * (rank % 3) + 3])
    assert found["layouts"][0]["ranks"] == [[0, 3], [1, 4], [2, 5]]
    both = rondo.Layout({"*": [rondo.Shard(0, "tensor"), rondo.Shard(1, "data")]}, mesh)
    check(whole, 6, both, lambda rank: whole[3 * (rank % 3) : 3 * (rank % 3) + 3,
                                             2 * (rank // 3) : 2 * (rank // 3) + 2])
    assert mesh.coordinates(4) == {"data": 1, "tensor": 1}


def test_two_axes_may_cut_one_dimension():
    mesh = rondo.Mesh(data=2, tensor=2)
    whole = numbers(7)
    layout = rondo.Layout({"*": [rondo.Shard(0, "tensor", size=7), rondo.Shard(0, "data")]}, mesh)
    outer = chunk_cuts(7, 2)

    def local(rank):
        part = whole[outer[rank % 2] : outer[rank % 2 + 1]]
        inner = chunk_cuts(len(part), 2)
        return part[inner[rank // 2] : inner[rank // 2 + 1]]

    check(whole, 4, layout, local)


def test_blocks_are_cut_each_on_its_own():
    """A fused QKV: each rank has its part of q, of k and of v."""
    q, k, v = numbers(6, 4), numbers(3, 4) + 100, numbers(3, 4) + 200
    whole = numpy.concatenate([q, k, v])
    for dim, array in ((0, whole), (1, whole.T.copy())):
        local = [numpy.concatenate([numpy.split(part, 3)[rank] for part in (q, k, v)])
                 for rank in range(3)]
        local = local if dim == 0 else [part.T.copy() for part in local]
        found = check(array, 3, rondo.Shard(dim, blocks=[6, 3, 3]), lambda rank: local[rank])
        assert found["layouts"][0]["kind"] == "boxes"


def test_explicit_cuts_boxes_and_flat_ranges():
    whole = numbers(6, 5)
    cuts = [0, 1, 1, 6]
    check(whole, 3, rondo.Shard(0, cuts=cuts), lambda rank: whole[cuts[rank] : cuts[rank + 1]])
    boxes = rondo.Boxes((6, 5), [(0, (0, 0), (6, 2)), (1, (0, 2), (4, 3)), (0, (4, 2), (2, 3))])

    def local(rank):
        parts = [whole[:, :2].copy(), whole[4:, 2:].copy()] if rank == 0 else [whole[:4, 2:]]
        return rondo.Placed(parts if rank == 0 else parts[0], boxes)

    check(whole, 2, None, local)
    flat = rondo.Flat((6, 5), [(0, 0, 11), (1, 11, 22), (2, 22, 33)])
    padded = numpy.concatenate([whole.reshape(-1), numpy.zeros(3, whole.dtype)])
    check(whole, 3, None,
          lambda rank: rondo.Placed(padded[11 * rank : 11 * rank + 11], flat))


def test_holders_of_stages_and_experts_are_declared_on_every_rank():
    whole = numbers(4, 4)
    check(whole, 3, {"*": rondo.On([1])},
          lambda rank: whole if rank == 1 else rondo.Absent("I32", (4, 4)))
    torch = pytest.importorskip("torch")
    meta = torch.empty((4, 4), dtype=torch.int32, device="meta")
    check(whole, 3, {"*": rondo.On([1, 2])},
          lambda rank: torch.from_numpy(whole) if rank else meta)
    with pytest.raises(rondo.Unsaveable, match="x: absent"):
        described({"x": rondo.Absent("I32", (4,))}, None, 0, 2)


def test_k24_expert_stacks_are_the_first_dimension():
    whole = numbers(8, 3, 2)
    mesh = rondo.Mesh(expert=4, data=2)
    check(whole, 8, rondo.Layout({"*experts*": rondo.Shard(0, "expert")}, mesh),
          lambda rank: whole[2 * (rank // 2) : 2 * (rank // 2) + 2], name="moe.experts.w1")


@pytest.mark.parametrize("layout,word", [
    (rondo.Shard(2, size=4), "dimensions"),
    (rondo.Shard(0, size=9), r"its shape here is \[4, 4\], and \[5, 4\]"),
    (rondo.Shard(0, cuts=[0, 4]), "cuts"),
    (rondo.Shard(0, "tensor"), "axes"),
    (rondo.On([5]), "world of 2"),
    (rondo.Boxes((4, 4), [(7, (0, 0), (4, 4))]), "world of 2"),
    (rondo.Layout({"*": rondo.Shard(0)}, rondo.Mesh(data=3)), "the job has 2"),
])
def test_wrong_placements_name_the_tensor(layout, word):
    layout = {"*": layout} if isinstance(layout, rondo.Boxes) else layout
    with pytest.raises(ValueError, match=f"(?s)^model.w: .*{word}"):
        described({"model": {"w": numbers(4, 4)}}, layout, 0, 2)


class StandinMesh:
    def __init__(self, shape):
        self.mesh = numpy.arange(int(numpy.prod(shape))).reshape(shape)


class StandinPlacement:
    """torch's Shard, Replicate, Partial and _StridedShard, as far as anybody looks."""

    def __init__(self, kind, dim=None, split_factor=None):
        self.kind, self.dim = kind, dim
        if split_factor is not None:
            self.split_factor = split_factor

    def is_shard(self, dim=None):
        return self.kind == "shard"

    def is_replicate(self):
        return self.kind == "replicate"


class StandinDTensor:
    def __init__(self, whole, mesh, placements, local):
        self.shape, self.dtype = whole.shape, whole.dtype
        self.device_mesh, self.placements, self.local = mesh, placements, local

    def to_local(self):
        return self.local


def chunked(array, dim, parts, at):
    cuts = chunk_cuts(array.shape[dim], parts)
    return array[(slice(None),) * dim + (slice(cuts[at], cuts[at + 1]),)]


@pytest.mark.parametrize("seed", range(25))
def test_dtensors_are_known_by_what_they_offer(seed):
    rnd = random.Random(seed)
    shape = tuple(rnd.randint(1, 7) for _ in range(rnd.randint(1, 3)))
    grid = tuple(rnd.randint(1, 3) for _ in range(rnd.randint(1, 2)))
    whole = numbers(*shape)
    kinds = [rnd.choice(["replicate", rnd.randrange(len(shape))]) for _ in grid]
    placements = [StandinPlacement("replicate") if kind == "replicate"
                  else StandinPlacement("shard", kind) for kind in kinds]
    mesh = StandinMesh(grid)

    def local(rank):
        part = whole
        for axis, kind in enumerate(kinds):
            if kind != "replicate":
                part = chunked(part, kind, grid[axis], numpy.unravel_index(rank, grid)[axis])
        return StandinDTensor(whole, mesh, placements, part)

    check(whole, int(numpy.prod(grid)), None, local)


def test_fully_sharded_over_tensor_parallel_is_cut_by_the_tensor_axis_first():
    whole, mesh = numbers(7, 3), StandinMesh((2, 2))
    placements = [StandinPlacement("shard", 0, split_factor=2), StandinPlacement("shard", 0)]
    check(whole, 4, None, lambda rank: StandinDTensor(
        whole, mesh, placements, chunked(chunked(whole, 0, 2, rank % 2), 0, 2, rank // 2)))


def test_k25_partial_sums_are_no_values():
    part = StandinDTensor(numbers(4), StandinMesh((2,)), [StandinPlacement("partial")], numbers(4))
    with pytest.raises(ValueError, match="w: .*holds no values"):
        described({"w": part}, None, 0, 2)


def test_k25_equal_values_are_never_one_tensor():
    same = {"a": numbers(4), "b": numbers(4)}
    layout = json.loads(described(same, None, 0, 2).text)
    assert [row[0] for row in layout["tensors"]] == ["a", "b"] and not layout["aliases"]


def test_k25_tied_weights_are_stored_once():
    weight = numbers(4)
    layout = json.loads(described({"lm_head": weight, "embed": weight}, None, 0, 2).text)
    assert [row[0] for row in layout["tensors"]] == ["embed"]
    assert layout["aliases"] == {"lm_head": "embed"}
    # Declared, where no rank has both: the first and the last stage of a pipeline.
    layout = rondo.Layout({"*": rondo.On([0, 1])}, aliases={"lm_head": "embed"})
    texts = {described({name: numbers(4)}, layout, rank, 2).text
             for rank, name in enumerate(("embed", "lm_head"))}
    assert len(texts) == 1


def test_partly_shared_memory_is_refused():
    memory = numbers(10)
    state = {"a": memory[:6], "b": memory[4:]}
    for loading in (False, True):  # what could not be loaded is not saved either
        with pytest.raises(rondo.Unsaveable, match="^b: it shares a part of its memory with a"):
            described(state, None, 0, 1, loading=loading)
