"""rondo.save and rondo.load: a state goes into one checkpoint with all ranks', and comes back on
any number of ranks and in any other placement, bit for bit."""

import bisect
import contextlib
import ctypes
import json
import operator
import os
import struct
import time
import warnings

from . import _current, _library, _memory, _plain
from ._state import Mismatch, Restore, Tree
from .placement import Absent, On, as_layout, resolve, resolve_dtensor
from .sampler import Sampler, SamplerMismatch

SAVE_S = 600.0
ABORT_S = 5.0
SLICE_MS = 200
DEADLINE, NOT_FOUND, DATA_LOSS = -4, 5, 15
RANK_0 = On([0])
PIECE = struct.Struct("=QQII")  # struct rondo_piece


class Damaged(_library.Error):
    """Bytes of the checkpoint are not what was saved; the text names file and block. The job has
    been told: its next attempt begins at an older checkpoint."""


class Described:
    """text: the declared layout, the same bytes on every rank. pieces: this rank's memory, packed.
    spans keep the memory; their finish brings loaded bytes home."""

    def __init__(self, tree, layout, rank, world, loading):
        self.tree, self.rank, self.world, self.loading = tree, rank, world, loading
        self.layout, self.made, self.spans, self.pieces = layout, {}, [], bytearray()
        self.aliases, self.buffers = dict(layout.aliases), None
        self._find_aliases()
        self.text, names = self._text()
        for number, name in enumerate(names):
            self._hold(number, name)

    # --- aliases: tensors that are one in memory

    def _find_aliases(self):
        self.by_identity = {}
        held = self.tree.leaves
        for alias, path in self.aliases.items():
            if path in self.aliases or path == alias:
                raise ValueError(f"{alias}: an alias of {path}, which is one itself")
        for path in sorted(held):
            key = _memory.identity(held[path].value)
            if key is None or path in self.aliases:
                continue
            first = self.by_identity.setdefault(key, held[path])
            if first.path != path:
                self.aliases[path] = first.path
        self._refuse_overlaps()

    def _refuse_overlaps(self):
        spans = sorted((*reach, path) for path, leaf in self.tree.leaves.items()
                       if path not in self.aliases and is_dense(leaf.value)
                       for reach in [_memory.extent(leaf.value)] if reach)
        for one, next_one in zip(spans, spans[1:]):
            if next_one[0] < one[1]:
                _plain.refuse(next_one[2], f"it shares a part of its memory with {one[2]}")

    # --- the layout

    def _resolve(self, leaf):
        value = leaf.value
        if leaf.placement is None and _memory.is_dtensor(value):
            return resolve_dtensor(value, self.rank, self.world)
        if leaf.placement is None and leaf.like is not None:
            return self._resolve_like(leaf)
        placement = leaf.placement
        if placement is None:
            placement = self.layout.find(leaf.path, value)
        if placement is None and not self.loading and leaf.path in self._buffers():
            placement = RANK_0
        return self._resolve_placed(placement, leaf.path, value)

    def _buffers(self):
        """Paths of the modules' buffers: each rank has its own running means, of which data
        parallel training has rank 0's count. Parameters are the same on all."""
        if self.buffers is None:
            self.buffers = {f"{path}.{name}" for path, module in self.tree.objects.items()
                            if hasattr(module, "named_buffers")
                            for name, _ in module.named_buffers()}
        return self.buffers

    def _resolve_like(self, leaf):
        other = self._other(leaf.like)
        placement = None
        if other is not None:
            placement = other.placement
            if placement is None:
                placement = self.layout.find(other.path, other.value)
            same = tuple(leaf.value.shape) == tuple(leaf.like.of.shape)
            placement = placement if same or isinstance(placement, On) else None
        return self._resolve_placed(placement, leaf.path, leaf.value)

    def _other(self, like):
        """By its memory; where it has none here, by its name in one of the state's modules."""
        found = self.by_identity.get(_memory.identity(like.of))
        for path in self.tree.objects if found is None and like.name else ():
            found = found or self.tree.leaves.get(f"{path}.{like.name}")
        return found

    def _resolve_placed(self, placement, path, value):
        several = isinstance(value, (list, tuple))
        absent = is_absent(value)
        shape = (0,) if several or value is None else tuple(value.shape)
        key = (id(placement), shape, absent)
        _, found = self.made.get(key, (None, None))
        if found is None:
            found = resolve(placement, (shape, absent), self.rank, self.world, self.layout.mesh)
            self.made[key] = placement, found  # kept: the key is its address
        if absent and found.parts:
            _plain.refuse(path, "absent, though by its placement this rank holds a part of it")
        return found

    def _text(self):
        """The layout file of these tensors, and their names in its order."""
        leaves = self.tree.leaves
        present = sorted(path for path in leaves if path not in self.aliases)
        missing = sorted(path for path in set(self.aliases.values()) if path not in leaves)
        lent = {self.aliases[alias]: alias for alias in sorted(self.aliases, reverse=True)
                if self.aliases[alias] in missing and alias in leaves}
        self.source = {name: leaves[lent.get(name, name)] for name in [*present, *lent]}
        self.resolved, layouts, rows = {}, {}, []
        by_id = {}
        for name in sorted(self.source):
            leaf = self.source[name]
            try:
                found = self._resolve(leaf)
            except ValueError as problem:
                raise ValueError(f"{name}: {problem}") from None
            self.resolved[name] = found
            number = by_id.get(id(found))
            if number is None:
                form = json.dumps(found.json, separators=(",", ":"))
                number = by_id[id(found)] = layouts.setdefault(form, len(layouts))
            rows.append([name, leaf_dtype(leaf), list(found.shape), number])
        return layout_text(self.world, layouts, rows, self.aliases), sorted(self.source)

    # --- memory

    def _hold(self, number, name):
        leaf, found = self.source[name], self.resolved[name]
        if not found.parts:
            return
        value = leaf.value.to_local() if _memory.is_dtensor(leaf.value) else leaf.value
        for span in _memory.spans(value, found, leaf.path, self.loading):
            if span.bytes:
                self.pieces += PIECE.pack(span.address, span.bytes, number, 0)
                self.spans.append(span)

    def finish(self):
        for span in self.spans:
            if span.finish:
                span.finish()
        for alias, path in self.aliases.items():
            self._fill_alias(self.tree.leaves.get(alias), self.tree.leaves.get(path))

    def _fill_alias(self, alias, leaf):
        """Tied by declaration, but in memory two tensors here: both get the bytes."""
        if alias is None or leaf is None or is_absent(alias.value) or is_absent(leaf.value):
            return
        key = _memory.identity(alias.value)
        if key is None or key != _memory.identity(leaf.value):
            _memory.copy(alias.value, leaf.value, alias.path)


def layout_text(world, layouts, rows, aliases):
    """In pieces: tens of thousands of rows are written in one go, layouts are text already."""
    head = f'{{"format":"rondo-layout-1","world":{world},"layouts":[' + ",".join(layouts) + "]"
    body = ',"tensors":' + json.dumps(rows, separators=(",", ":"), ensure_ascii=False)
    known = {row[0] for row in rows}
    listed = {alias: path for alias, path in sorted(aliases.items()) if path in known}
    tail = ',"aliases":' + json.dumps(listed, separators=(",", ":"), ensure_ascii=False)
    return (head + body + tail + "}").encode()


def is_absent(value):
    device = getattr(value, "device", None)
    return isinstance(value, Absent) or getattr(device, "type", "") == "meta"


def is_dense(value):
    if _memory.is_array(value):
        return value.flags.c_contiguous
    return _memory.is_tensor(value) and not _memory.is_dtensor(value) and value.is_contiguous()


def leaf_dtype(leaf):
    value = leaf.value[0] if isinstance(leaf.value, (list, tuple)) else leaf.value
    if not hasattr(value, "dtype"):
        _plain.refuse(leaf.path, "no tensor; where this rank holds nothing of it: rondo.Absent")
    return _memory.dtype_name(value.dtype, leaf.path)


# --- save


class SaveStruct(ctypes.Structure):
    """struct rondo_save."""

    _fields_ = [
        ("size", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("step", ctypes.c_int64),
        ("samples", ctypes.c_int64),
        ("layout", ctypes.c_char_p),
        ("layout_len", ctypes.c_size_t),
        ("pieces", ctypes.c_char_p),
        ("pieces_count", ctypes.c_size_t),
        ("state", ctypes.c_char_p),
        ("state_len", ctypes.c_size_t),
        ("ms", ctypes.c_uint32),
        ("how", ctypes.c_uint32),
    ]


SYNC, SKIP = 1, 2  # flags
SKIPPED = 4
IN_MEMORY = 1
HOW = {0: "file", IN_MEMORY: "memory", 2: "sealed"}
BUSY = {"wait": 0, "skip": SKIP}


def state_json(tree):
    state = {"common": tree.common, "rank": tree.rank}
    return json.dumps(state, separators=(",", ":"), allow_nan=False).encode()


def samples_of(tree, samples):
    """The cursor of the samplers in the state, which must be the one that is given."""
    found = {path: value.cursor for path, value in tree.objects.items()
             if isinstance(value, Sampler)}
    if samples is None:
        if len(set(found.values())) != 1:
            raise ValueError("samples: say the data cursor; there is no rondo.Sampler in the state "
                             "that would know it")
        return next(iter(found.values()))
    for path, cursor in found.items():
        if cursor != samples:
            raise ValueError(f"{path} is at sample {cursor}, the save says {samples}")
    return whole_number("samples", samples)


def whole_number(name, value):
    """ctypes would cut what does not fit, and int() what is behind the point."""
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} is a whole number, not {value!r}") from None
    if not 0 <= number < 1 << 63:
        raise ValueError(f"{name} is 0 or more and less than 2**63, not {value!r}")
    return number


PASSING = (4, 8, 14)  # no answer in time, no room, I/O error: not the program's fault


def save(step, state, layout=None, samples=None, sync=False, busy="wait", timeout=SAVE_S,
         job=None):
    """Saves what all ranks of the job hold of the state; each rank calls it, at the same step. It
    returns when the state's bytes are copied (the agent goes on with the rest), or with sync=True,
    or where there is no agent, when this rank's part is durable. layout: see rondo.Layout; without
    one every rank holds everything, and each writes its share.

    busy: while the two saves before are still being written, "wait" waits for one of them, as long
    as timeout says; "skip" saves nothing and gives "skipped" at once. A step that one rank skips is
    no checkpoint of the others either.

    Gives "memory", "file", or "sealed" where that step was saved before. "failed": there was no
    room for it, or the agent did not answer in time; a job of Rondo's trains on then, with a
    warning, and the previous checkpoint stays. With sync=True, and outside Rondo, that raises. What
    failed or was skipped is an event of the job."""
    if busy not in BUSY:
        raise ValueError(f"busy is 'wait' or 'skip', not {busy!r}")
    step = whole_number("step", step)
    job = job or _current.job()
    tree = Tree(state)
    samples = samples_of(tree, samples)
    layout = as_layout(layout)
    layout.check_used(tree.leaves)
    described = Described(tree, layout, job.rank, job.world, False)
    text = state_json(tree)
    pieces = bytes(described.pieces)
    request = SaveStruct(
        size=ctypes.sizeof(SaveStruct), flags=(SYNC if sync else 0) | BUSY[busy],
        step=step, samples=samples,
        layout=described.text, layout_len=len(described.text),
        pieces=pieces, pieces_count=len(described.spans), state=text, state_len=len(text),
    )
    deadline = time.monotonic() + timeout
    while True:
        request.ms = SLICE_MS
        result = job._lib.rondo_save_sharded(ctypes.byref(request))
        if result != DEADLINE or time.monotonic() >= deadline:
            break
    if result == SKIPPED:
        return "skipped"
    try:
        _library.check(job._lib, result)
    except _library.Exists:
        return HOW[2]
    except _library.Error as problem:
        if result == DEADLINE and job.managed and request.how != IN_MEMORY:
            with contextlib.suppress(_library.Error):  # the job hears that it comes to nothing
                job.abort_save(step, ABORT_S)
        if sync or not job.managed or problem.status not in PASSING:
            raise
        warnings.warn(f"the save at step {step} failed: {problem}; training goes on",
                      RuntimeWarning, stacklevel=2)
        return "failed"
    return HOW.get(request.how, "file")


def prepare(state, layout=None, job=None):
    """Makes room for saves of this state before the first one, in the background. Not needed: the
    first load or save does the same."""
    job = job or _current.job()
    tree = Tree(state)
    described = Described(tree, as_layout(layout), job.rank, job.world, False)
    _library.check(job._lib, job._lib.rondo_prepare_sharded(described.text, len(described.text)))


# --- load


class LoadStruct(ctypes.Structure):
    """struct rondo_load."""

    _fields_ = [
        ("size", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
        ("layout", ctypes.c_char_p),
        ("layout_len", ctypes.c_size_t),
        ("pieces", ctypes.c_char_p),
        ("pieces_count", ctypes.c_size_t),
        ("bytes", ctypes.c_uint64),
        ("bytes_memory", ctypes.c_uint64),
        ("bytes_disk", ctypes.c_uint64),
    ]


PARTIAL = 1


class Stored:
    """An open checkpoint: its tensors by name, its plain values; Stored(dir) for any directory."""

    def __init__(self, directory=None, lib=None, partial=False):
        self._lib = lib or _library.load()
        self._handle = ctypes.c_void_p()
        path = os.fsencode(directory) if directory else None
        flags = PARTIAL if partial else 0
        check(self._lib, self._lib.rondo_stored_open(path, flags, ctypes.byref(self._handle)))
        layout = json.loads(self._text(self._lib.rondo_stored_layout))
        self.world = layout["world"]
        self.tensors = {name: (dtype, tuple(shape)) for name, dtype, shape, _ in layout["tensors"]}
        self.aliases = layout.get("aliases", {})
        self._names = sorted([*self.tensors, *self.aliases])
        self.common = self._common()

    def _common(self):
        """None: it holds tensors alone, as one that was imported does."""
        try:
            return self.state(0)["common"]
        except _library.Error as problem:
            if problem.status != NOT_FOUND:
                raise
            return None

    def _text(self, call, *which):
        size = ctypes.c_size_t()
        data = ctypes.c_void_p()
        check(self._lib, call(self._handle, *which, ctypes.byref(data), ctypes.byref(size)))
        return ctypes.string_at(data, size.value)

    def state(self, rank):
        """What that rank's state.json says: encoded."""
        found = json.loads(self._text(self._lib.rondo_stored_state, rank))
        if not isinstance(found, dict) or not {"common", "rank"} <= set(found):
            raise Mismatch(f"the plain values of rank {rank} are of another form")
        return found

    def entry(self, name):
        """(dtype, shape) of a tensor or of what it is an alias of."""
        return self.tensors[self.aliases.get(name, name)]

    def under(self, begin):
        """{name: (dtype, shape)} of the tensors directly below a path that ends with a dot."""
        out = {}
        for at in range(bisect.bisect_left(self._names, begin), len(self._names)):
            name = self._names[at]
            if not name.startswith(begin):
                break
            if "." not in name[len(begin):]:
                out[name[len(begin):]] = self.entry(name)
        return out

    def close(self):
        if self._handle:
            self._lib.rondo_stored_close(self._handle)
            self._handle = ctypes.c_void_p()

    def __enter__(self):
        return self

    def __exit__(self, *problem):
        self.close()

    def __del__(self):
        if getattr(self, "_handle", None):
            self.close()


def check(lib, result):
    if result == -DATA_LOSS:
        raise Damaged(DATA_LOSS, lib.rondo_error().decode("utf-8", "replace"))
    return _library.check(lib, result)


class Loaded:
    """step, samples of the checkpoint; world that saved it; bytes loaded, and how many of them came
    from the node's memory and from the disk."""

    def __init__(self, step, samples, world, result):
        self.step, self.samples, self.world = step, samples, world
        self.bytes, self.bytes_memory = result.bytes, result.bytes_memory
        self.bytes_disk = result.bytes_disk

    def __repr__(self):
        return (f"Loaded(step={self.step}, samples={self.samples}, world={self.world}, "
                f"bytes={self.bytes}, bytes_memory={self.bytes_memory})")


def load(state, layout=None, partial=False, prepare=True, job=None, directory=None):
    """Fills the state from the checkpoint that the job goes on from; None where it begins. Tensors
    are filled where they are, objects with load_state_dict get theirs, other plain values are
    replaced in their dicts.

    partial: what the checkpoint lacks stays as it is, what the state lacks is passed over; else
    either is an error, before a tensor is touched. prepare: this state will be saved, make room for
    that behind. directory: another checkpoint; one that was imported holds tensors alone, other
    values stay as they are."""
    job = job or _current.job()
    if directory is None and not job.resume:
        return None
    with Stored(directory, job._lib, partial) as stored:
        tree = Tree(state, stored)
        layout = as_layout(layout)
        if not partial:
            layout.check_used(tree.leaves)
        described = Described(tree, layout, job.rank, job.world, True)
        pieces = bytes(described.pieces)
        request = LoadStruct(
            size=ctypes.sizeof(LoadStruct),
            layout=described.text, layout_len=len(described.text),
            pieces=pieces, pieces_count=len(described.spans),
        )
        check(job._lib, job._lib.rondo_load_sharded(stored._handle, ctypes.byref(request)))
        described.finish()
        bare = stored.common is None
        own = stored.state(job.rank)["rank"] if not bare and job.rank < stored.world else {}
        common = tree.common if bare else stored.common
        restore = Restore(tree, common, own, partial or bare)
        restore.seed_text = json.dumps(common, sort_keys=True)
        restore.run()
        resume = job.resume
        loaded = Loaded(resume.step, resume.samples, stored.world, request)
    if prepare and job.managed:
        job._lib.rondo_prepare_sharded(described.text, len(described.text))
    if directory is None:
        for path, value in tree.objects.items():
            if isinstance(value, Sampler) and value.cursor != resume.samples:
                raise SamplerMismatch(f"{path} is at sample {value.cursor}, the checkpoint at "
                                      f"{resume.samples}")
    return loaded
