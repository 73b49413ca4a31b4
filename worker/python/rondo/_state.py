"""A program's state as a tree: its tensors by path, its plain values as JSON, and the way back.

Objects with state_dict and load_state_dict (modules, schedulers, samplers, the adapters) stand for
what they give. One with rondo_template(stored, path) is asked for that instead before a load: it
makes room for what is stored (an optimizer that has not stepped yet).
"""

from . import _memory, _plain
from ._plain import join, refuse
from .placement import Absent, Like, Placed


class PerRank:
    """A value of which each rank has its own (else what rank 0 has counts). A rank that the saving
    job did not have finds none, which is an error unless it is optional: then `value` stays."""

    def __init__(self, value, optional=False):
        self.value, self.optional = value, optional


class Leaf:
    """A tensor. placement: given with it. like: what says which other it is placed like."""

    __slots__ = ("path", "value", "placement", "like")

    def __init__(self, path, value, placement=None, like=None):
        self.path, self.value, self.placement, self.like = path, value, placement, like


class Tree:
    """leaves: {path: Leaf}. common, rank: encoded. objects: {path: what has load_state_dict}."""

    def __init__(self, state, stored=None):
        if not isinstance(state, dict):
            refuse("", f"a dict, not a {type(state).__qualname__}")
        self.state, self.stored = state, stored
        self.leaves, self.objects, self.rank = {}, {}, {}
        self.common = _plain.encode(state, "", self._other)

    def _other(self, value, path):
        if isinstance(value, PerRank):
            self._once(path, self.rank)
            self.rank[path] = _plain.encode(value.value, path, small_tensor)
            return {"$rank": path}
        if isinstance(value, Placed):
            return self._leaf(Leaf(path, value.value, value.placement))
        if isinstance(value, Like):
            return self._leaf(Leaf(path, value.value, None, value))
        if isinstance(value, Absent) or _memory.is_leaf(value):
            return self._leaf(Leaf(path, value))
        if is_object(value):
            return self._object(value, path)
        if hasattr(value, "param_groups"):
            refuse(path, "an optimizer counts its parameters by number: "
                         "rondo.Optimizer(optimizer, model) saves it by their names")
        return None

    def _once(self, path, known):
        """{1: ..., "1": ...}: two keys with one path."""
        if path in known:
            refuse(path, "two values have this path")

    def _leaf(self, leaf):
        if not leaf.path or leaf.path in self.leaves:
            refuse(leaf.path, "two tensors have this path")
        self.leaves[leaf.path] = leaf
        return {"$tensor": leaf.path}

    def _object(self, value, path):
        value = unwrap(value)
        template = getattr(value, "rondo_template", None)
        if self.stored is not None and template:
            given = template(self.stored, path)
        else:
            given = value.state_dict()
        self._once(path, self.objects)
        self.objects[path] = value
        if not isinstance(given, dict):
            refuse(path, f"its state_dict() gave a {type(given).__qualname__}")
        if is_object(given) or any(inner is value for inner in given.values()):
            refuse(path, "its state_dict() gave itself")
        return _plain.encode(given, path, self._other, 1)


def small_tensor(value, path):
    """Tensors of one rank's own, as text: random states."""
    if not (_memory.is_tensor(value) or _memory.is_array(value)):
        return None
    size = value.nbytes if _memory.is_array(value) else value.numel() * value.element_size()
    if size > 1 << 20:
        refuse(path, f"{size} bytes of each rank's own: more than 1 MiB")
    span = _memory.span(value, path, False)
    kind = "torch" if _memory.is_tensor(value) else "numpy"
    return {"$value": [kind, _memory.dtype_name(value.dtype, path), list(value.shape),
                       _plain.encode_scalar(_memory.copy_bytes(span.address, span.bytes), path)]}


def is_object(value):
    return (callable(getattr(value, "state_dict", None)) and
            callable(getattr(value, "load_state_dict", None)) and
            (not hasattr(value, "param_groups") or hasattr(value, "rondo_template")))


def unwrap(value):
    """The module within a data-parallel wrapper, so that names are the same with and without."""
    while type(value).__name__ in ("DistributedDataParallel", "DataParallel"):
        value = value.module
    return value


# --- the way back


class Mismatch(Exception):
    """The checkpoint does not hold what the state asks for, or more."""


class Restore:
    """Puts what was stored into the state: tensors are loaded already, plain values follow."""

    def __init__(self, tree, common, rank, partial):
        self.tree, self.common, self.rank, self.partial = tree, common, rank, partial

    def run(self):
        self._dict(self.tree.state, self.common, "")

    def _tag(self, tag, inner):
        if tag == "$tensor":
            leaf = self.tree.leaves.get(inner)
            if leaf is None:
                raise Mismatch(f"{inner}: a tensor in the checkpoint, and none in the state")
            return leaf.value
        if tag == "$rank":
            if inner not in self.rank:
                raise Mismatch(f"{inner}: this rank has no value of its own in the checkpoint")
            return _plain.decode(self.rank[inner], small_value)
        return small_value(tag, inner)

    def _decode(self, stored):
        return _plain.decode(stored, self._tag)

    def _dict(self, given, stored, path):
        found = children(stored)
        if found is None:
            raise Mismatch(f"{path or 'the state'}: a dict here, something else in the checkpoint")
        self._keys(given, found, path)
        for key in list(given):
            if key in found:
                given[key] = self._value(given[key], found[key], join(path, key))

    def _keys(self, given, found, path):
        missing = [str(key) for key in given if key not in found]
        surplus = [str(key) for key in found if key not in given]
        if (missing or surplus) and given and not self.partial:
            what = [f"{word}: {', '.join(sorted(names)[:8])}"
                    for word, names in (("not in the checkpoint", missing),
                                        ("only in the checkpoint", surplus)) if names]
            raise Mismatch(f"{path or 'the state'}: {'; '.join(what)}")
        if not given:
            given.update({key: self._decode(found[key]) for key in surplus})

    def _value(self, given, stored, path):
        if path in self.tree.objects:
            self._object(given, stored, path)
            return given
        if path in self.tree.leaves:
            return given
        if isinstance(given, PerRank):
            self._per_rank(given, path)
            return given
        if isinstance(given, dict):
            self._dict(given, stored, path)
            return given
        if isinstance(given, list):
            self._list(given, stored, path)
            return given
        if isinstance(given, tuple) and self._holds(given, path):
            return self._tuple(given, stored, path)
        return self._decode(stored)

    def _holds(self, given, path):
        """Is there anything in it that is filled where it is?"""
        return any(isinstance(one, (PerRank, dict, list)) or
                   join(path, at) in self.tree.objects or join(path, at) in self.tree.leaves or
                   isinstance(one, tuple) and self._holds(one, join(path, at))
                   for at, one in enumerate(given))

    def _tuple(self, given, stored, path):
        items = stored.get("$tuple") if isinstance(stored, dict) and len(stored) == 1 else None
        if not isinstance(items, list) or len(items) != len(given):
            raise Mismatch(f"{path}: a tuple of {len(given)} here, something else in the "
                           "checkpoint")
        return tuple(self._value(one, inner, join(path, at))
                     for at, (one, inner) in enumerate(zip(given, items)))

    def _list(self, given, stored, path):
        if not isinstance(stored, list):
            raise Mismatch(f"{path}: a list here, something else in the checkpoint")
        if len(given) == len(stored):
            given[:] = [self._value(one, inner, join(path, at))
                        for at, (one, inner) in enumerate(zip(given, stored))]
        elif any(leaf.startswith(path + ".") for leaf in self.tree.leaves):
            raise Mismatch(f"{path}: {len(given)} items, {len(stored)} in the checkpoint")
        else:
            given[:] = [self._decode(inner) for inner in stored]

    def _per_rank(self, given, path):
        if path in self.rank:
            given.value = _plain.decode(self.rank[path], small_value)
        elif not given.optional and not self.partial:
            raise Mismatch(f"{path}: this rank has no value of its own in the checkpoint")

    def _object(self, given, stored, path):
        given = unwrap(given)
        apply = getattr(given, "rondo_apply", None)
        if apply:
            apply(self, stored, path)
        elif not in_place(given, self.tree, path, stored):
            given.load_state_dict(self._decode(stored))


def in_place(given, tree, path, stored):
    """A module whose state is nothing but its own parameters and buffers: they are loaded."""
    if not hasattr(given, "named_parameters") or not hasattr(given, "named_buffers"):
        return False
    own = {_memory.identity(tensor) for _, tensor in given.named_parameters()}
    own |= {_memory.identity(tensor) for _, tensor in given.named_buffers()}
    begin = path + "."
    held = [leaf for name, leaf in tree.leaves.items() if name.startswith(begin)]
    only_tensors = all(isinstance(inner, dict) and "$tensor" in inner
                       for inner in (children(stored) or {"": None}).values())
    return only_tensors and all(_memory.identity(leaf.value) in own | {None} for leaf in held)


def children(stored):
    """{key: encoded} of an encoded dict; None: it is none."""
    if not isinstance(stored, dict):
        return None
    if len(stored) == 1:
        ((tag, inner),) = stored.items()
        if tag in ("$dict", "$counter"):
            return {_plain.decode(key): item for key, item in inner}
        if tag.startswith("$"):
            return None
    return stored


def small_value(tag, inner):
    if tag != "$value":
        raise ValueError(f"state.json has the tag {tag!r}")
    kind, dtype, shape, data = inner
    data = bytearray(_plain.decode(data))
    if kind == "torch":
        import torch

        made = torch.empty(shape, dtype=_memory.torch_dtype(dtype, "state.json"))
        flat = torch.frombuffer(data, dtype=torch.uint8) if data else torch.empty(0)
        if made.numel() * made.element_size() != len(data):
            raise ValueError(f"state.json has {len(data)} bytes for {dtype} {shape}")
        if data:
            made.view(-1).view(torch.uint8).copy_(flat)
        return made
    import numpy

    return numpy.frombuffer(data, dtype=_memory.DTYPES[dtype][2]).reshape(shape)
