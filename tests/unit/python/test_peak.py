"""What rondo.load needs of memory beyond the tensors themselves: at most 256 MiB, whatever there is
of them and however they lie."""

import os
import subprocess

import pytest

from ranks_of import BUILD

MAKER = os.path.join(BUILD, "tests", "sparse_checkpoint")
STATE_MIB, EXTRA_MIB = 768, 256

COMMON = """
    import numpy, os, rondo
    from rondo import checkpoint
    from rondo._state import Tree
    job = rondo.join()
    count, side, columns = (int(os.environ[name]) for name in ("COUNT", "SIDE", "COLUMNS"))
    width = side // job.world if columns else side
    state = {f"t{at:06}": numpy.empty((side, width), "f4") for at in range(count)}
    layout = rondo.Layout(lambda path, value: rondo.Shard(1)) if columns else None
    """
# The files that a save of this state would have beside its shards.
DESCRIBE = COMMON + """
    described = checkpoint.Described(Tree(state), checkpoint.as_layout(layout), 0, 1, False)
    open("layout.json", "wb").write(described.text)
    open("state.json", "wb").write(checkpoint.state_json(Tree(state)))
    """
LOAD = COMMON + """
    def mib(name):
        with open("/proc/self/status") as lines:
            return next(int(line.split()[1]) // 1024 for line in lines if line.startswith(name))

    before = mib("VmRSS:")
    if job.rank == job.world - 1:
        loaded = rondo.load(state, layout, directory="whole")
        assert loaded.bytes == sum(value.nbytes for value in state.values())
        print(before, mib("VmHWM:"), loaded.bytes >> 20)
    """


def free_mib():
    with open("/proc/meminfo", encoding="ascii") as lines:
        return next(int(line.split()[1]) // 1024 for line in lines if line.startswith("MemAvail"))


@pytest.mark.skipif(not os.path.exists(MAKER), reason="sparse_checkpoint is not built")
@pytest.mark.skipif(free_mib() < 2 * STATE_MIB, reason="there is too little memory")
@pytest.mark.parametrize("count, side", [(3, 8192), (3072, 256)], ids=["few", "many"])
def test_loading_needs_little_beside_the_tensors(ranks, count, side):
    assert count * side * side * 4 == STATE_MIB << 20
    more = {"COUNT": str(count), "SIDE": str(side)}
    ranks.run(1, DESCRIBE, COLUMNS="0", **more)
    os.mkdir(ranks.directory / "whole")
    subprocess.run([MAKER, "whole", "layout.json", "state.json"], cwd=ranks.directory, check=True,
                   timeout=120)
    for world in (1, 2):
        said = ranks.run(world, LOAD, COLUMNS=str(world - 1), **more)[-1]
        before, most, tensors = map(int, said.split())
        assert tensors == STATE_MIB // world
        assert most >= tensors  # else it measures nothing
        assert most <= before + tensors + EXTRA_MIB, said
