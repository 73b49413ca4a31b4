"""examples/checkpoint_reader: a reader that knows nothing of us finds every tensor of several
ranks, and sees a damaged byte."""

import glob
import os
import subprocess
import sys

from ranks_of import SOURCE

READER = os.path.join(SOURCE, "examples", "checkpoint_reader", "read_checkpoint.py")

SAVE = """
    import numpy, rondo
    job = rondo.join()
    rows = numpy.arange(37 * 5, dtype="f4").reshape(37, 5)
    cuts = [0, 9, 20, 37]
    state = {"rows": rows[cuts[job.rank]:cuts[job.rank + 1]].copy(), "all": numpy.arange(11),
             "one": numpy.array(2.5)}
    rondo.save(4, state, layout={"rows": rondo.Shard(0, cuts)}, samples=7, sync=True)
"""


def read(*args):
    return subprocess.run([sys.executable, READER, *args], capture_output=True, timeout=120)


def test_it_finds_every_tensor_and_every_damage(ranks):
    import numpy
    ranks.run(3, SAVE)
    found = glob.glob(os.path.join(ranks.directory, "checkpoints", "**", "manifest.json"),
                      recursive=True)
    assert len(found) == 1
    where = os.path.dirname(found[0])
    assert read(where).stdout.decode().splitlines() == ["I64 11 all", "F64 1 one", "F32 37x5 rows"]
    whole = numpy.arange(37 * 5, dtype="f4").tobytes()
    assert read(where, "rows").stdout == whole
    assert read(where, "all").stdout == numpy.arange(11).tobytes()
    shard = sorted(glob.glob(os.path.join(where, "*-1", "shard-*.safetensors")))[0]
    with open(shard, "r+b") as file:
        file.seek(-1, os.SEEK_END)
        last = file.read(1)
        file.seek(-1, os.SEEK_END)
        file.write(bytes([last[0] ^ 1]))
    refused = read(where, "rows")
    assert refused.returncode == 1
    assert b"block 0: damaged" in refused.stderr


def test_it_is_as_short_as_it_says():
    with open(READER, encoding="utf-8") as file:
        assert sum(1 for line in file if line.strip()) <= 60
