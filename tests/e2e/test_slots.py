"""Saves handed over in the node's memory, when something has no room or dies: an event and a torn
save at worst, never the end of training, never the loss of what was committed."""

import os
import pathlib
import signal
import time

import pytest

import rondo_cluster
from rondo_cluster import PYTHON, spec, until

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="mounts file systems: needs root")
VAULT_MIB = 96
SHM_MIB = 24
GOOD = ("COMMITTED", "VERIFIED", "EXPIRED", "DELETED")

PROGRAM = '''
import os, sys, time, numpy, rondo
job = rondo.join()
FLAGS = os.environ["FLAGS"]
state = {"w": numpy.zeros(int(os.environ["MIB"]) << 17), "step": 0}
loaded = rondo.load(state)
print("loaded", loaded.step if loaded else 0, flush=True)
for step in range((loaded.step if loaded else 0) + 10, 60, 10):
    while not os.path.exists(os.path.join(FLAGS, f"{job.name}-{step}")):
        time.sleep(0.02)
    state["w"][:] = step
    state["step"] = step
    print("saved", step, rondo.save(step, state, samples=step), flush=True)
job.finish()
'''


@pytest.fixture(scope="module")
def cluster():
    """The vault and /dev/shm are small, in a mount namespace of the daemon."""
    def prepare(it):
        for path in ("", "vault"):
            (it.dir / path).mkdir()
            (it.dir / path).chmod(0o711)
        (it.dir / "marker").write_text("rondo dev 1\n")
        mount = ('mount -t tmpfs -o size=%dm,mode=711 rondo "$1/vault" && '
                 'mount -t tmpfs -o size=%dm,mode=1777 rondo /dev/shm && shift && exec "$@"')
        it.wrap = ["unshare", "--mount", "--propagation", "private", "sh", "-c",
                   mount % (VAULT_MIB, SHM_MIB), "sh", it.dir]
        (it.home / "flags").mkdir()
        (it.home / "flags").chmod(0o755)

    with rondo_cluster.running(agents=1, slots=4, flags=["--lease-ms=8000", "--heartbeat-ms=400"],
                               prepare=prepare) as it:
        yield it


def submit(cluster, name, mib, **checkpoint):
    script = cluster.home / "slots.py"
    script.write_text(PROGRAM)
    script.chmod(0o644)
    return cluster.submit(spec(
        name, [PYTHON, script], env={"FLAGS": str(cluster.home / "flags"), "MIB": str(mib)},
        restart={"budget": 2, "backoff_ms": 20}, checkpoint={"keep": 2, **checkpoint}))


def go(cluster, name, step):
    path = cluster.home / "flags" / f"{name}-{step}"
    path.touch()
    path.chmod(0o644)


def states(cluster, job):
    return dict(cluster.sql("select step, state from checkpoint where job = %s order by id", job))


def reached(cluster, job, step, *wanted):
    cluster.while_it_lives(job, lambda: states(cluster, job).get(step) in wanted)


def inside(cluster, path):
    """A path as the daemon sees it."""
    return pathlib.Path(f"/proc/{cluster.daemon.pid}/root{path}")


def test_k9_a_full_vault_tears_one_save_and_no_more(cluster):
    """M48 K9: no room while the agent writes. Training goes on, the one before stays."""
    job = submit(cluster, "full", 4)
    go(cluster, "full", 10)
    reached(cluster, job, 10, "COMMITTED", "VERIFIED")
    filler = inside(cluster, cluster.dir / "vault/filler")
    with open(filler, "wb") as file, pytest.raises(OSError):
        while True:
            file.write(b"x" * (1 << 20))
            file.flush()
    go(cluster, "full", 20)
    reached(cluster, job, 20, "TORN")
    filler.unlink()
    for step in (30, 40, 50):
        go(cluster, "full", step)
    shown = cluster.wait(job)
    assert shown["job"]["state"] == "SUCCEEDED" and len(shown["attempts"]) == 1, cluster.tell(job)
    after = states(cluster, job)
    assert after[10] in GOOD and after[20] == "TORN"
    assert all(after[step] in GOOD for step in (30, 40, 50)), after
    torn = [each for each in shown["checkpoints"] if int(each["step"]) == 20][0]
    assert "No space left" in torn["reason"], torn
    assert any(each["kind"] == "checkpoint.torn" for each in shown["events"])
    assert not inside(cluster, cluster.dir / f"vault/job-{job}/step-20.1").exists() or until(
        lambda: not inside(cluster, cluster.dir / f"vault/job-{job}/step-20.1").exists(),
        lambda: "the torn save is still there") is None


def test_memory_without_room_falls_back_to_files(cluster):
    """The slot does not fit into /dev/shm: an error there, no SIGBUS, and the plain way."""
    job = submit(cluster, "small", 20)
    for step in (10, 20, 30, 40, 50):
        go(cluster, "small", step)
        reached(cluster, job, step, *GOOD) if step < 50 else None
    shown = cluster.wait(job)
    assert shown["job"]["state"] == "SUCCEEDED" and len(shown["attempts"]) == 1, cluster.tell(job)
    assert all(state in GOOD for state in states(cluster, job).values()), states(cluster, job)
    assert "saved 10 file" in cluster.output(job).decode()


def test_k7_an_agent_killed_while_it_writes_loses_nothing(cluster):
    """After each hand-over the agent is killed: the next one goes on from the slot."""
    job = submit(cluster, "killed", 4)
    for step in (10, 20, 30, 40):
        go(cluster, "killed", step)
        cluster.while_it_lives(job, lambda: f"saved {step}" in cluster.output(job).decode())
        os.kill(cluster.agent_pid("n1"), signal.SIGKILL)
        reached(cluster, job, step, *GOOD)
    go(cluster, "killed", 50)
    shown = cluster.wait(job)
    assert shown["job"]["state"] == "SUCCEEDED" and len(shown["attempts"]) == 1, cluster.tell(job)
    assert all(state in GOOD for state in states(cluster, job).values()), states(cluster, job)
    assert "saved 10 memory" in cluster.output(job).decode()


def test_committed_ones_are_verified_and_counted(cluster):
    """M51: read again behind the commit, by the agent; the numbers are in /metrics."""
    job = submit(cluster, "verified", 1)
    for step in (10, 20, 30, 40, 50):
        go(cluster, "verified", step)
    cluster.wait(job, "SUCCEEDED")
    until(lambda: states(cluster, job)[50] == "VERIFIED", lambda: cluster.tell(job))
    shown = cluster.show(job)
    newest = [each for each in shown["checkpoints"] if int(each["step"]) == 50][0]
    assert len(newest["tree_digest"]) == 64 and newest["format"] == "SHARDED"
    copies = cluster.sql("select node, durability, lost from shard_copy where checkpoint = %s",
                         int(newest["id"]))
    assert copies == [("n1", "SHARED", False)] or copies == [("n1", "NODE", False)]
    assert "rondo_saves_verified_total" in cluster.http("/metrics")[1]
    until(lambda: "rondo_persists 0" in cluster.http("/metrics")[1], "agents tell it by and by")


def test_an_agent_that_is_stopped_leaves_no_slots(cluster):
    """With no worker left, a stopped agent takes its slots along: memory is not kept for nobody."""
    job = submit(cluster, "leaves", 1)
    for step in (10, 20, 30, 40, 50):
        go(cluster, "leaves", step)
    cluster.wait(job, "SUCCEEDED")
    slots = inside(cluster, cluster.slots_in_memory()[0])

    def gone():
        pid = cluster.agent_pid("n1") if slots.exists() else None
        if pid:  # its last worker may still be on its way to the daemon
            os.kill(pid, signal.SIGTERM)
            time.sleep(0.5)
        return not slots.exists()

    until(gone, lambda: list(slots.rglob("*")))
