"""What stands in a state for objects whose own state_dict() does not travel: optimizers, which
count parameters by number, and random generators, of which each rank has its own."""

import hashlib
import random
import sys

from . import _memory, _plain
from ._plain import refuse
from ._state import Mismatch, PerRank, children, unwrap
from .placement import Absent, Like, On, Placed


def named(model):
    """{id: (name, parameter)} of a module, or of modules or pairs of name and parameter."""
    if hasattr(model, "named_parameters"):
        pairs = unwrap(model).named_parameters()
    elif isinstance(model, dict):
        pairs = ((f"{key}.{name}", parameter) for key, module in model.items()
                 for name, parameter in unwrap(module).named_parameters())
    else:
        pairs = list(model)
        if any(hasattr(item, "named_parameters") for item in pairs):
            return named({str(at): module for at, module in enumerate(pairs)})
    return {id(parameter): (name, parameter) for name, parameter in pairs}


class Optimizer:
    """An optimizer in a state, its entries under the names of the parameters:

        state = {"model": model, "optimizer": rondo.Optimizer(optimizer, model)}

    An entry of a parameter's own shape is placed as the parameter is; others are replicated. model:
    a module, a dict or list of modules, or (name, parameter) pairs. Parameters on torch's "meta"
    device are other ranks' (stages of a pipeline): say by a layout whose they are."""

    def __init__(self, optimizer, model):
        self.optimizer, self.model = optimizer, model

    # --- names

    def _named(self):
        known = named(self.model)
        out = {}
        for group in self._groups():
            for parameter in group["params"]:
                if id(parameter) not in known:
                    refuse("optimizer", "it has a parameter that the model does not name, of shape "
                                        f"{list(parameter.shape)}")
                out[known[id(parameter)][0]] = parameter
        return out

    def _groups(self):
        return self.optimizer.param_groups

    def _entries(self, parameter):
        return self.optimizer.state.get(parameter, {})

    def _place(self, value, name, parameter):
        if isinstance(value, Absent) or _memory.is_leaf(value):
            return Like(value, parameter, name)
        return value

    # --- saved

    def _state(self, entries_of):
        state = {}
        for name, parameter in self._named().items():
            entries = {key: self._place(value, name, parameter)
                       for key, value in entries_of(name, parameter).items()}
            if entries:
                state[name] = entries
        names = {id(parameter): name for name, parameter in self._named().items()}
        groups = [{key: [names[id(parameter)] for parameter in value] if key == "params" else value
                   for key, value in group.items()} for group in self._groups()]
        return {"state": state, "groups": groups}

    def state_dict(self):
        kinds = entry_kinds(self.optimizer.state)

        def entries(name, parameter):
            if not is_elsewhere(parameter):
                return self._entries(parameter)
            return absent_entries(kinds, parameter) if parameter.requires_grad else {}
        return self._state(entries)

    def load_state_dict(self, state):
        raise TypeError("rondo.load reads it")

    # --- loaded

    def rondo_template(self, stored, path):
        """Room for the entries that are stored of each parameter."""
        def entries(name, parameter):
            begin = f"{path}.state.{name}."
            return {key: self._room(key, entry, parameter, begin + key)
                    for key, entry in stored.under(begin).items()}
        return self._state(entries)

    def _room(self, key, entry, parameter, path):
        dtype, shape = entry
        if is_elsewhere(parameter):
            return Absent(dtype, shape)
        held = self._entries(parameter).get(key)
        if _memory.is_leaf(held) and _memory.dtype_name(held.dtype, path) == dtype:
            return held
        torch = _memory.torch_or_none()
        made = _memory.torch_dtype(dtype, path)
        if shape and len(shape) == parameter.ndim:
            if _memory.is_dtensor(parameter):
                return torch.zeros_like(parameter, dtype=made)
            return torch.empty_like(parameter.detach(), dtype=made)
        return torch.empty(shape, dtype=made)

    def rondo_apply(self, restore, stored, path):
        found = children(stored) or {}
        state = children(found.get("state", {})) or {}
        groups = _plain.decode(found.get("groups", []))
        mine = self._named()
        self._apply_groups(groups, mine, restore.partial, path)
        for name, parameter in mine.items():
            entries = children(state.get(name, {})) or {}
            fresh = {key: self._entry(restore, value, f"{path}.state.{name}.{key}")
                     for key, value in entries.items()}
            self._store(parameter, {key: value for key, value in fresh.items()
                                    if not isinstance(value, Absent)})

    def _entry(self, restore, value, path):
        leaf = restore.tree.leaves.get(path)
        return leaf.value if leaf is not None else restore._decode(value)

    def _store(self, parameter, entries):
        if entries:
            self.optimizer.state[parameter] = entries
        else:
            self.optimizer.state.pop(parameter, None)

    def _apply_groups(self, groups, mine, partial, path):
        """A group is found again by the parameters that it has."""
        names = {id(parameter): name for name, parameter in mine.items()}
        by_names = {frozenset(group["params"]): group for group in groups}
        for group in self._groups():
            own = frozenset(names[id(parameter)] for parameter in group["params"])
            found = by_names.get(own)
            if found is None:
                if partial:
                    continue
                raise Mismatch(f"{path}: no group in the checkpoint has the parameters "
                               f"{', '.join(sorted(own)[:4])} ...")
            group.update({key: value for key, value in found.items() if key != "params"})


def is_elsewhere(parameter):
    """Of another stage of a pipeline: known by its shape only."""
    return parameter.device.type == "meta"


def entry_kinds(state):
    """(key, dtype, shape; None: the parameter's) of the entries of the first parameter that has
    any: the others' are of the same kinds."""
    for parameter, entries in state.items():
        out = []
        for key, value in sorted(entries.items()):
            if not _memory.is_leaf(value):
                continue
            same = tuple(value.shape) == tuple(parameter.shape) and value.ndim > 0
            out.append([key, _memory.dtype_name(value.dtype, key),
                        None if same else list(value.shape)])
        if out:
            return out
    return []


def absent_entries(kinds, parameter):
    return {key: Absent(dtype, parameter.shape if shape is None else shape)
            for key, dtype, shape in kinds}


class ZeroOptimizer(Optimizer):
    """ZeRO-1: torch.distributed.optim.ZeroRedundancyOptimizer, of which each rank holds the entries
    of its own parameters. It saves those alone, and loads them in any other world.

    A save asks the other ranks which parameters have entries, and of what kinds: a collective,
    until every parameter that wants a gradient has some."""

    def __init__(self, optimizer, model):
        super().__init__(optimizer, model)
        self._told = None

    def _owners(self):
        """{id of a parameter: rank}."""
        return {id(parameter): rank
                for rank, groups in enumerate(self.optimizer._partition_parameters())
                for group in groups for parameter in group["params"]}

    def _entries(self, parameter):
        return self.optimizer.optim.state.get(parameter, {})

    def _store(self, parameter, entries):
        state = self.optimizer.optim.state
        if entries:
            state[parameter] = entries
        else:
            state.pop(parameter, None)

    def _place(self, value, name, parameter):
        if isinstance(value, Absent) or _memory.is_leaf(value):
            return Placed(value, On([self._owners()[id(parameter)]]))
        return value

    def _apply_groups(self, groups, mine, partial, path):
        super()._apply_groups(groups, mine, partial, path)
        self.optimizer._sync_param_groups(self.optimizer.param_groups,
                                          self.optimizer.optim.param_groups)

    def rondo_template(self, stored, path):
        owners, rank = self._owners(), self.optimizer.rank

        def entries(name, parameter):
            begin = f"{path}.state.{name}."
            found = stored.under(begin)
            if owners[id(parameter)] != rank:
                return {key: Absent(*entry) for key, entry in found.items()}
            return {key: self._room(key, entry, parameter, begin + key)
                    for key, entry in found.items()}
        return self._state(entries)

    def state_dict(self):
        owners, rank = self._owners(), self.optimizer.rank
        kinds, having = self._agreed(owners)

        def entries(name, parameter):
            if owners[id(parameter)] == rank:
                return self._entries(parameter)
            return absent_entries(kinds, parameter) if name in having else {}
        return self._state(entries)

    def _agreed(self, owners):
        """(kinds of entries, names of parameters that have some): the same on all ranks. One that
        is frozen, unused, or not stepped yet has none."""
        if self._told is not None:
            return self._told
        mine = self._named()
        names = list(mine)
        bits = sum(1 << at for at, name in enumerate(names)
                   if owners[id(mine[name])] == self.optimizer.rank and
                   any(_memory.is_leaf(value) for value in self._entries(mine[name]).values()))
        own = [entry_kinds(self.optimizer.optim.state), format(bits, "x")]
        every = gather_json(own, 8192 + len(names) // 4) if self.optimizer.world_size > 1 else [own]
        kinds = max((kinds for kinds, _ in every), key=len)
        union = 0
        for _, text in every:
            union |= int(text, 16)
        having = {name for at, name in enumerate(names) if union >> at & 1}
        if all(name in having for name in names if mine[name].requires_grad):
            self._told = kinds, having
        return kinds, having


def gather_json(value, room=8192):
    """What every rank of torch.distributed's default group has."""
    import json

    import torch
    import torch.distributed as dist

    text = json.dumps(value).encode()
    if len(text) > room:
        raise ValueError(f"{len(text)} bytes to tell the other ranks")
    device = "cuda" if dist.get_backend() == "nccl" else "cpu"
    mine = torch.zeros(room, dtype=torch.uint8)
    mine[: len(text)] = torch.tensor(list(text), dtype=torch.uint8)
    mine = mine.to(device)
    every = [torch.zeros_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(every, mine)
    return [json.loads(bytes(one.cpu().tolist()).rstrip(b"\0")) for one in every]


class Random:
    """The random generators of this rank: Python's, NumPy's, torch's, and of torch's CUDA devices.

    A job of the same world goes on in each stream where it was. In another world there is no such
    place: every rank begins a new stream, which follows from the saved ones, its rank and the
    world."""

    def state_dict(self):
        return {"own": PerRank(self._streams(), optional=True), "world": self._world()}

    def load_state_dict(self, state):
        raise TypeError("rondo.load reads it")

    @staticmethod
    def _world():
        from . import _current

        return _current.joined.world if _current.joined else 1

    @staticmethod
    def _streams():
        out = {"python": random.getstate()}
        numpy, torch = sys.modules.get("numpy"), _memory.torch_or_none()
        if numpy is not None and hasattr(numpy, "random"):
            kind, keys, *rest = numpy.random.get_state()
            out["numpy"] = [kind, keys, *rest]
        if torch is not None:
            out["torch"] = torch.get_rng_state()
            if torch.cuda.is_available():
                out["cuda"] = list(torch.cuda.get_rng_state_all())
        return out

    def rondo_apply(self, restore, stored, path):
        found = children(stored) or {}
        own = restore.rank.get(f"{path}.own")
        if own is not None and _plain.decode(found.get("world")) == self._world():
            self._set(restore._decode({"$rank": f"{path}.own"}))
        else:
            self._begin(restore.seed_text)

    @staticmethod
    def _set(streams):
        numpy, torch = sys.modules.get("numpy"), _memory.torch_or_none()
        random.setstate(streams["python"])
        if "numpy" in streams and numpy is not None:
            numpy.random.set_state(tuple(streams["numpy"]))
        if "torch" in streams and torch is not None:
            torch.set_rng_state(streams["torch"])
        if "cuda" in streams and torch is not None and torch.cuda.is_available():
            for device, one in enumerate(streams["cuda"][: torch.cuda.device_count()]):
                torch.cuda.set_rng_state(one, device)

    def _begin(self, text):
        from . import _current

        rank = _current.joined.rank if _current.joined else 0
        key = f"{text}/{self._world()}/{rank}".encode()
        seed = int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "little")
        numpy, torch = sys.modules.get("numpy"), _memory.torch_or_none()
        random.seed(seed)
        if numpy is not None and hasattr(numpy, "random"):
            numpy.random.seed(seed & 0xFFFFFFFF)
        if torch is not None:
            torch.manual_seed(seed >> 1)
