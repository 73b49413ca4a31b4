"""Shards as others see them: each opens in a reader that shares nothing with ours, and all of them
together keep the rules of PyTorch's distributed checkpoints (one directory, every file says where
its boxes lie, sizes are what the boxes reach)."""

import glob
import json
import math
import os
import re

from safetensors_rows import BITS, read

NAME = re.compile(r"shard-(\d{5})-model-(\d{5})-of-(\d{5})\.safetensors")
SAVE = """
    import numpy, rondo
    job = rondo.join()
    rows = numpy.arange(41 * 6, dtype="f4").reshape(41, 6)
    cuts = [0, 10, 10, 27, 41]
    wide = numpy.arange(6 * 41, dtype="i2").reshape(6, 41)
    mine = slice(cuts[job.rank], cuts[job.rank + 1])
    state = {"rows": rows[mine].copy(), "wide": wide[:, mine].copy(), "one": numpy.array(2.5),
             "none": numpy.zeros((0, 3), "u1"), "mask": numpy.array([True, False, True])}
    rondo.save(4, state, layout={"rows": rondo.Shard(0, cuts), "wide": rondo.Shard(1, cuts)},
               samples=7, sync=True)
"""
SHAPES = {"rows": ("F32", (41, 6)), "wide": ("I16", (6, 41)), "one": ("F64", ()),
          "none": ("U8", (0, 3)), "mask": ("BOOL", (3,))}


def shards(directory):
    """(rank, metadata, tensors as they lie, where data begins) of every shard below it."""
    for path in sorted(glob.glob(os.path.join(directory, "**", "*.safetensors"), recursive=True)):
        with open(path, "rb") as file:
            blob = file.read()
        rank, number, count = map(int, NAME.fullmatch(os.path.basename(path)).groups())
        assert 1 <= number <= count
        meta, tensors = read(blob)
        yield rank - 1, meta, tensors, 8 + int.from_bytes(blob[:8], "little")


def test_every_shard_opens_and_says_its_place(ranks):
    ranks.run(4, SAVE)
    boxes, seen = {}, set()
    for rank, meta, tensors, data_at in shards(ranks.directory):
        assert (meta["format"], meta["DCP_VERSION"]) == ("pt", "1.0")
        assert data_at % 4096 == 0
        where = json.loads(meta["DCP_SHARDING_INFO"])
        assert set(where) == {name for _, _, name, *_ in tensors}  # else PyTorch: KeyError
        for begin, _, name, dtype, shape in tensors:
            assert dtype == SHAPES[name][0]
            assert begin % max(1, BITS[dtype] // 8) == 0  # aligned, as readers by mmap like it
            offsets = where[name]["saved_offsets"]
            assert len(offsets) == len(shape)
            if math.prod(shape):
                boxes.setdefault(name, []).append((offsets, shape))
        seen.add(rank)
    assert seen <= set(range(4))
    for name, (_, shape) in SHAPES.items():
        found = boxes.get(name, [])
        assert sum(math.prod(size) for _, size in found) == math.prod(shape), name
        if found:  # a box less at the end would make the tensor smaller there
            reach = [max(ends) for ends in zip(*([at + n for at, n in zip(*box)]
                                                 for box in found))]
            assert tuple(reach) == shape, name
