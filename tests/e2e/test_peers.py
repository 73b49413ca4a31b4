"""A job whose checkpoints are in the vault of one node goes on on another: agents fetch the parts
from each other. Two agents, each with a vault of its own."""

import contextlib
import os
import pathlib
import time

import pytest

from agents_by_hand import events, files_of, open_again, two_agents
from rondo_cluster import PYTHON, spec, until

GOOD = ("COMMITTED", "VERIFIED")

PROGRAM = '''
import os, sys, time, numpy, rondo
job = rondo.join()
FLAGS, ROWS = os.environ["FLAGS"], int(os.environ["ROWS"])

def weights(step):
    return numpy.random.RandomState(step).randn(ROWS, 1000)

state = {"w": numpy.zeros((ROWS, 1000)), "rank": rondo.PerRank(job.rank), "step": 0}
loaded = rondo.load(state)
print(f"attempt {job.attempt} loaded {loaded}", flush=True)
if loaded:
    assert state["w"].tobytes() == weights(loaded.step).tobytes(), "other bits"
    assert state["step"] == loaded.step and state["rank"].value == job.rank
    print("went on from", loaded.step, flush=True)
last = loaded.step if loaded else 0
for step in range(last + 1, int(os.environ["STEPS"]) + 1):
    if step % 10 == 0:
        state["w"][:] = weights(step)
        state["step"] = step
        rondo.save(step, state, samples=step * 8, sync=True)
        print(f"saved {step}", flush=True)
    job.report(step, samples=step * 8)
if not loaded:
    while not os.path.exists(os.path.join(FLAGS, f"end-{job.id}")):
        time.sleep(0.02)
    sys.exit(3)
'''


@pytest.fixture(scope="module")
def cluster():
    with two_agents(PROGRAM, ["--lease-ms=9000"]) as it:
        yield it


def submit(cluster, name, steps=20, rows=300):
    return cluster.submit(spec(
        name, [PYTHON, cluster.home / "program.py"], restart={"budget": 3, "backoff_ms": 20},
        env={"FLAGS": str(cluster.home / "flags"), "STEPS": str(steps), "ROWS": str(rows)},
        checkpoint={"keep": 3, "verify": False}))


def saved(cluster, job, step):
    return cluster.while_it_lives(job, lambda: cluster.sql(
        "select id, path from checkpoint where job = %s and step = %s and state = any(%s)",
        job, step, list(GOOD)))[0]


def node_of(cluster, job, attempt):
    return cluster.show(job)["attempts"][attempt - 1]["places"][0]["node"]


def leave(cluster, job):
    """The first attempt ends with a failure; its node takes no more work."""
    here = node_of(cluster, job, 1)
    cluster.ctl("cordon", here)
    flag = cluster.home / "flags" / f"end-{job}"
    flag.touch()
    flag.chmod(0o644)
    return here, "b" if here == "a" else "a"


def test_goes_on_on_another_node_bit_for_bit(cluster):
    with open_again(cluster) as agents:
        job = submit(cluster, "moves")
        checkpoint, path = saved(cluster, job, 20)
        here, there = leave(cluster, job)
        cluster.wait(job, "SUCCEEDED")
        assert node_of(cluster, job, 2) == there
        assert b"went on from 20" in cluster.output(job, "--attempt", 2)
        assert files_of(agents.vault(there), path) == files_of(agents.vault(here), path)
        copies = cluster.sql("select node, durability from shard_copy where checkpoint = %s "
                             "order by node", checkpoint)
        assert copies == [("a", "NODE"), ("b", "NODE")]
        told = [text for kind, text in events(cluster, job) if kind == "checkpoint.fetched"]
        assert len(told) == 1 and f"is on node {there} now: from node {here}" in told[0], told


def shard_of(vault, path):
    found = sorted((pathlib.Path(vault) / path).rglob("*.safetensors"))
    assert found
    return found[0]


def test_a_source_with_other_bytes_is_named_and_the_older_one_is_taken(cluster):
    with open_again(cluster) as agents:
        job = submit(cluster, "corrupt")
        saved(cluster, job, 10)
        _, path = saved(cluster, job, 20)
        here = node_of(cluster, job, 1)
        shard = shard_of(agents.vault(here), path)
        with open(shard, "r+b") as file:
            file.seek(5000)
            byte = file.read(1)[0]
            file.seek(5000)
            file.write(bytes([byte ^ 1]))
        _, there = leave(cluster, job)
        cluster.wait(job, "SUCCEEDED")
        assert b"went on from 10" in cluster.output(job)
        reason = cluster.sql("select reason from checkpoint where job = %s and state = 'DAMAGED'",
                             job)
        assert len(reason) == 1, cluster.tell(job)
        assert f"node {here}" in reason[0][0] and shard.name in reason[0][0], reason
        assert not (agents.vault(there) / path / "manifest.json").exists()


def test_a_node_that_is_gone_is_waited_for_by_name(cluster):
    with open_again(cluster) as agents:
        job = submit(cluster, "gone")
        checkpoint, _ = saved(cluster, job, 20)
        here = node_of(cluster, job, 1)
        cluster.ctl("cordon", here)
        agents.kill(here)
        until(lambda: (reason := cluster.show(job)["job"].get("reason", {}).get("text", ""))
              and f"node {here} (LOST)" in reason and f"of checkpoint {checkpoint} (step 20)" in
              reason, lambda: cluster.tell(job))
        assert cluster.state(job) == "QUEUED"
        agents.start(here)
        cluster.wait(job, "SUCCEEDED")
        last = len(cluster.show(job)["attempts"])
        assert node_of(cluster, job, last) != here
        assert b"went on from 20" in cluster.output(job)


def partial(vault, path):
    """Bytes of a file that is on its way."""
    with contextlib.suppress(OSError):
        return sum(file.stat().st_size for file in (pathlib.Path(vault) / path).rglob(".get-*"))
    return 0


def cut(cluster, agents, name):
    """A large checkpoint is being fetched, and the source holds still in the middle of it."""
    job = submit(cluster, name, steps=10, rows=40000)
    _, path = saved(cluster, job, 10)
    here = node_of(cluster, job, 1)
    there = "b" if here == "a" else "a"
    leave(cluster, job)
    until(lambda: partial(agents.vault(there), path) > 1 << 22, lambda: cluster.tell(job),
          pause=0.001)
    agents.freeze(here)
    time.sleep(0.3)  # what was on the wire has come
    return job, path, here, there


def test_a_receiver_that_is_killed_goes_on_where_it_was(cluster):
    with open_again(cluster) as agents:
        job, path, here, there = cut(cluster, agents, "receiver")
        agents.kill(there)
        have = partial(agents.vault(there), path)
        assert 0 < have < 40000 * 8000
        assert not (agents.vault(there) / path / "manifest.json").exists()
        agents.thaw(here)
        before = len(agents.log.read_text())
        agents.start(there)
        cluster.wait(job, "SUCCEEDED")
        assert b"went on from 10" in cluster.output(job)
        done = [line for line in agents.log.read_text()[before:].splitlines()
                if "fetch.done" in line]
        assert len(done) == 1, done
        got = int(done[0].split("bytes=")[1].split()[0])
        assert got + have <= 40000 * 8000 + (8 << 20), (got, have)


def test_a_source_that_is_killed_is_asked_again(cluster):
    with open_again(cluster) as agents:
        job, path, here, there = cut(cluster, agents, "source")
        agents.kill(here)
        agents.start(here)  # at another port
        cluster.wait(job, "SUCCEEDED")
        assert b"went on from 10" in cluster.output(job)
        assert files_of(agents.vault(there), path) == files_of(agents.vault(here), path)
        copies = cluster.sql(
            "select node from shard_copy where checkpoint = (select id from checkpoint "
            "where job = %s) order by 1", job)
        assert copies == [("a",), ("b",)]


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a file system: needs root")
def test_a_receiver_without_room_says_so_and_goes_on_once_there_is(cluster):
    with open_again(cluster) as agents:
        agents.kill("b")
        small = ["unshare", "--mount", "--propagation", "private", "sh", "-c",
                 'mount -t tmpfs -o size=1m,mode=711 rondo "$1" && shift && exec "$@"', "sh",
                 agents.vault("b")]
        agents.start("b", wrap=small)
        agents.ready(2)
        cluster.ctl("cordon", "b")
        job = submit(cluster, "no-room", steps=20)
        checkpoint, path = saved(cluster, job, 20)
        cluster.ctl("uncordon", "b")
        leave(cluster, job)
        until(lambda: any("No space left on device" in text for _, text in events(cluster, job)),
              lambda: cluster.tell(job))
        root = pathlib.Path(f"/proc/{agents.running['b'].pid}/root")
        left = [file for file in (root / str(agents.vault("b")).lstrip("/")).rglob("*")
                if file.is_file()]
        assert sum(file.stat().st_size for file in left) < 1 << 16, left
        cluster.ctl("uncordon", "a")
        cluster.wait(job, "SUCCEEDED")
        last = cluster.show(job)["attempts"][-1]
        assert last["places"][0]["node"] == "a"
        assert b"went on from 20" in cluster.output(job)
        assert any(code == "NODE_EXHAUSTED" for code in [
            attempt["end"]["code"] for attempt in cluster.show(job)["attempts"][1:-1]])
        agents.kill("b")
