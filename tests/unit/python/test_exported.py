"""What `rondoctl checkpoint export` writes, opened by readers that share nothing with us: every
tensor is bitwise what was saved.

PyTorch's own reader of such directories (torch.distributed.checkpoint's Hugging Face storage) is
younger than the torch that distributions ship, so that a stand-in does here what it is documented
to do: it takes every file of the directory, believes the three DCP keys of each, makes of a tensor
what its boxes reach, and fills any box of a state from those that it meets."""

import glob
import itertools
import json
import os
import subprocess

import numpy
import pytest

from ranks_of import BUILD
from safetensors_rows import read

CTL = os.path.join(BUILD, "bin", "rondoctl")
DTYPES = {"F32": "f4", "F64": "f8", "I16": "i2", "I64": "i8", "U8": "u1", "BOOL": "?", "F16": "f2"}
WHOLE = """
    import numpy
    rng = numpy.random.default_rng(11)
    bits = lambda dtype, *shape: numpy.frombuffer(
        rng.bytes(int(numpy.prod(shape, dtype=int)) * numpy.dtype(dtype).itemsize), dtype
        ).reshape(shape).copy()
    WHOLE = {"model.rows": bits("f4", 41, 6), "model.wide": bits("i2", 6, 41),
             "model.cube": bits("f8", 5, 4, 41), "half": bits("f2", 41, 3), "one": bits("f8"),
             "none": bits("u1", 0, 3), "mask": numpy.array([True, False, True])}
    """
SAVE = WHOLE + """
    import rondo
    job = rondo.join()
    cuts = [0, 10, 10, 27, 41]
    mine = slice(cuts[job.rank], cuts[job.rank + 1])
    dims = {"model.rows": 0, "model.wide": 1, "model.cube": 2, "half": 0}
    state = {name: value[(slice(None),) * dims[name] + (mine,)].copy() if name in dims else value
             for name, value in WHOLE.items()}
    nested = {"model": {name[6:]: value for name, value in state.items() if "." in name},
              **{name: value for name, value in state.items() if "." not in name}}
    nested["tied"] = nested["model"]["rows"]
    places = {name: rondo.Shard(dim, cuts) for name, dim in dims.items()}
    rondo.save(4, nested, layout=rondo.Layout(places, aliases={"tied": "model.rows"}), samples=7,
               sync=True)
    """


def whole():
    names = {}
    exec("\n".join(line[4:] for line in WHOLE.splitlines()), names)  # what the ranks had
    return names["WHOLE"]


@pytest.fixture
def export(ranks):
    """Writes what four ranks saved, as asked for; gives the directory."""
    ranks.run(4, SAVE)
    (saved,) = glob.glob(os.path.join(ranks.directory, "checkpoints", "**", "manifest.json"),
                         recursive=True)

    def run(*words):
        subprocess.run([CTL, "checkpoint", "export", os.path.dirname(saved), "out", *words],
                       cwd=ranks.directory, check=True, timeout=120, stdout=subprocess.DEVNULL)
        return os.path.join(ranks.directory, "out")

    return run


def open_file(path):
    """(metadata, {name: array}) by the second reader."""
    with open(path, "rb") as file:
        blob = file.read()
    meta, tensors = read(blob)
    data = 8 + int.from_bytes(blob[:8], "little")
    return meta, {name: numpy.frombuffer(blob[data + begin : data + end], DTYPES[dtype])
                  .reshape(shape) for begin, end, name, dtype, shape in tensors}


def same(found, want):
    assert set(found) == set(want)
    for name, value in want.items():
        assert (found[name].dtype, found[name].shape) == (value.dtype, value.shape), name
        assert found[name].tobytes() == value.tobytes(), name


# --- Hugging Face's form


def test_one_file_holds_every_tensor_bit_for_bit(export):
    out = export()
    assert os.listdir(out) == ["model.safetensors"]
    meta, found = open_file(os.path.join(out, "model.safetensors"))
    assert meta["format"] == "pt"
    same(found, whole())


def test_several_files_and_their_index_hold_every_tensor_bit_for_bit(export):
    out = export("--max-shard-bytes", "2kB")
    with open(os.path.join(out, "model.safetensors.index.json"), "rb") as file:
        index = json.load(file)
    files = sorted(name for name in os.listdir(out) if name.endswith(".safetensors"))
    assert len(files) > 2 and sorted(set(index["weight_map"].values())) == files
    assert files == [f"model-{at + 1:05}-of-{len(files):05}.safetensors"
                     for at in range(len(files))]
    found = {}
    for name in files:
        meta, tensors = open_file(os.path.join(out, name))
        assert meta["format"] == "pt"
        assert all(index["weight_map"][tensor] == name for tensor in tensors)
        assert not set(tensors) & set(found)
        found.update(tensors)
    same(found, whole())
    assert index["metadata"]["total_size"] == sum(value.nbytes for value in whole().values())


def test_a_prefix_is_left_out_of_the_names(export):
    _, found = open_file(os.path.join(export("--prefix", "model."), "model.safetensors"))
    same(found, {name[6:]: value for name, value in whole().items() if name.startswith("model.")})


# --- PyTorch's form


class Storage:
    """A directory as the documented reader takes it."""

    def __init__(self, directory):
        self.chunks = {}  # name: [(offsets, values)]
        for path in sorted(glob.glob(os.path.join(directory, "*.safetensors"))):
            meta, tensors = open_file(path)
            assert meta["format"] == "pt" and meta["DCP_VERSION"] == "1.0"
            places = json.loads(meta["DCP_SHARDING_INFO"])
            for name, values in tensors.items():
                offsets = places[name]["saved_offsets"]  # not listed: KeyError
                assert len(offsets) == values.ndim
                self.chunks.setdefault(name, []).append((tuple(offsets), values))

    def shape(self, name):
        chunks = self.chunks[name]
        return tuple(max(offsets[dim] + values.shape[dim] for offsets, values in chunks)
                     for dim in range(chunks[0][1].ndim))

    def fill(self, name, offsets, out):
        """Elements that were written, which are all of the box if it is covered once."""
        written = 0
        for at, values in self.chunks[name]:
            begin = [max(a, b) for a, b in zip(at, offsets)]
            end = [min(a + n, b + m) for a, n, b, m in zip(at, values.shape, offsets, out.shape)]
            if any(a >= b for a, b in zip(begin, end)):
                continue
            source = tuple(slice(a - o, b - o) for a, b, o in zip(begin, end, at))
            target = tuple(slice(a - o, b - o) for a, b, o in zip(begin, end, offsets))
            out[target] = values[source]
            written += values[source].size
        return written


def test_pytorchs_form_gives_whole_tensors(export):
    storage = Storage(export("--as", "dcp"))
    want = whole()
    del want["none"]  # without elements it has no box
    assert set(storage.chunks) == set(want)
    found = {name: numpy.empty(storage.shape(name), storage.chunks[name][0][1].dtype)
             for name in want}
    for name, out in found.items():
        assert storage.fill(name, (0,) * out.ndim, out) == out.size, name
    same(found, want)


def test_pytorchs_form_gives_any_box(export):
    """As a job of another world asks for it: boxes of two ways to cut each dimension."""
    storage = Storage(export("--as", "dcp"))
    for name, value in whole().items():
        cuts = [sorted({0, size // 3, size // 2, size}) for size in value.shape]
        for box in itertools.product(*(list(zip(one, one[1:])) for one in cuts)):
            place = tuple(slice(begin, end) for begin, end in box)
            out = numpy.empty(value[place].shape, value.dtype)
            assert storage.fill(name, [begin for begin, _ in box], out) == out.size
            assert out.tobytes() == value[place].tobytes(), (name, box)


@pytest.mark.parametrize("how", ["", ", partial=True"])
def test_what_is_imported_is_loaded(ranks, how):
    """It holds tensors alone: whatever else the state has stays as it is."""
    ranks.run(4, SAVE)
    (saved,) = glob.glob(os.path.join(ranks.directory, "checkpoints", "**", "manifest.json"),
                         recursive=True)
    out, back = (os.path.join(ranks.directory, name) for name in ("hf", "imported"))
    for words in (("export", os.path.dirname(saved), out), ("import", out, back)):
        subprocess.run([CTL, "checkpoint", *words], check=True, stdout=subprocess.DEVNULL)
    ranks.run(1, WHOLE + f"""
    import rondo
    rondo.join()
    state = {{name: numpy.zeros_like(value) for name, value in WHOLE.items()}}
    state["note"] = "stays"
    loaded = rondo.load(state, directory={back!r}{how})
    assert loaded.world == 1 and state["note"] == "stays"
    for name, value in WHOLE.items():
        assert state[name].tobytes() == value.tobytes(), name
    """)
