"""Disks that are full: of the agent's state, and of the vault. Nothing ends that need not, nothing
is lost without a count, and once there is room all goes on by itself."""

import os
import pathlib
import time

import pytest

import rondo_cluster
from rondo_cluster import PYTHON, alive, spec, until

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="mounts file systems: needs root")
STATE_MIB = 24
VAULT_MIB = 16


@pytest.fixture(scope="module")
def cluster():
    """The state directory of n1 and the vault are small, in a mount namespace of the daemon."""
    def prepare(it):
        for path, mode in (("", 0o711), ("agents", 0o711), ("agents/n1", 0o711),
                           ("vault", 0o711)):
            (it.dir / path).mkdir()
            (it.dir / path).chmod(mode)
        (it.dir / "marker").write_text("rondo dev 1\n")
        mount = ('mount -t tmpfs -o size=%dm,mode=711 rondo "$1/agents/n1" && '
                 'mount -t tmpfs -o size=%dm,mode=711 rondo "$1/vault" && shift && exec "$@"')
        it.wrap = ["unshare", "--mount", "--propagation", "private", "sh", "-c",
                   mount % (STATE_MIB, VAULT_MIB), "sh", it.dir]

    with rondo_cluster.running(agents=1, slots=4, flags=["--lease-ms=4000", "--heartbeat-ms=400"],
                               prepare=prepare) as it:
        yield it


class full:
    """Every byte below the directory (as the daemon sees it) is taken, inside the block."""

    def __init__(self, cluster, below):
        self.path = pathlib.Path(f"/proc/{cluster.daemon.pid}/root{cluster.dir}/{below}/filler")

    def fill(self):
        fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            for size in (1 << 20, 4096, 1):
                while True:
                    try:
                        os.write(fd, b"x" * size)
                    except OSError:
                        break
        finally:
            os.close(fd)

    def __enter__(self):
        self.fill()
        return self

    def __exit__(self, *_):
        self.path.unlink()


def healthy(cluster, seconds):
    """The node keeps its lease for that long."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        node = cluster.json("nodes")["nodes"][0]["node"]
        assert node["seen"] == "HEALTHY", node
        time.sleep(0.2)


REPORTS = """
import os, time, rondo
job = rondo.join()
step = 0
while not os.path.exists(os.environ["FLAG"]) or step % 10:
    step += 1
    job.report(step, samples=step, loss=1.0 / step, padding=1)
    time.sleep(0.002)
print("wrote", step, flush=True)
job.finish()
"""


def test_m9_full_state_directory(cluster):
    """Workers run on, the lease is kept, what found no room is counted, and later all is well."""
    flag = cluster.home / "enough"
    job = cluster.submit(spec("reports", [PYTHON, "-c", REPORTS], env={"FLAG": str(flag)}))
    pid = cluster.running(job, 1)["w", 0]
    until(lambda: cluster.sql("select 1 from metric_points(%s, 'loss') limit 1", job),
          lambda: cluster.tell(job))
    agent = cluster.agent_pid("n1")
    with full(cluster, "agents/n1") as disk:
        for _ in range(6):
            healthy(cluster, 1)
            disk.fill()
        assert alive(pid) and cluster.agent_pid("n1") == agent
        assert cluster.state(job) == "RUNNING"
        late = cluster.submit(spec("late", ["/bin/true"], restart={"budget": 0, "backoff_ms": 300}))
        until(lambda: any("No space left" in a.get("end", {}).get("text", "")
                          for a in cluster.show(late).get("attempts", [])),
              lambda: cluster.tell(late))
        assert cluster.state(late) in ("QUEUED", "STARTING", "STOPPING")
    assert cluster.wait(late)["job"]["state"] == "SUCCEEDED"
    assert cluster.show(late)["job"].get("restarts_used", 0) == 0
    time.sleep(1)
    flag.touch()
    shown = cluster.wait(job)
    assert shown["job"]["state"] == "SUCCEEDED" and len(shown["attempts"]) == 1, cluster.tell(job)
    wrote = int(cluster.output(job).split()[-1])
    lost = lambda: cluster.sql("select coalesce(sum(points), 0) from metric_loss where job = %s",
                               job)[0][0]
    stored = lambda: [cluster.sql("select step from metric_points(%s, %s) order by step", job, name)
                      for name in ("loss", "padding")]
    until(lambda: sum(map(len, stored())) + lost() == 2 * wrote,
          lambda: f"{sum(map(len, stored()))} stored, {lost()} lost of {2 * wrote}")
    for each in stored():
        assert len(set(each)) == len(each) and each[-1] == (wrote,)


def test_an_exit_on_a_full_disk_is_known(cluster):
    """Room for the record of the end was taken at the start."""
    flag = cluster.home / "now"
    job = cluster.submit(spec("ends", f"until [ -e {flag} ]; do sleep 0.05; done; exit 7"))
    cluster.running(job, 1)
    with full(cluster, "agents/n1"):
        flag.touch()
        shown = cluster.wait(job)
        assert shown["attempts"][0]["end"]["code"] == "USER_ERROR", cluster.tell(job)
        assert shown["job"]["first_failure"]["exit_code"] == 7
    assert cluster.run(spec("after", ["/bin/true"], workers=4))


def test_an_agent_restarts_on_a_full_disk(cluster):
    job = cluster.submit(spec("kept", "echo up; sleep 600", workers=2))
    pids = cluster.running(job, 2)
    with full(cluster, "agents/n1"):
        old = cluster.agent_pid("n1")
        os.kill(old, 9)
        until(lambda: cluster.agent_pid("n1") not in (None, old), "a new agent")
        until(cluster.is_ready, cluster.log)
        healthy(cluster, 1)
        assert cluster.running(job, 2) == pids
        cluster.cancel(job, "--now")
        assert not [pid for pid in pids.values() if alive(pid)]
    assert cluster.run(spec("after-restart", ["/bin/true"], workers=4))


SAVES = """
import os, time, rondo
job = rondo.join()
step = job.resume.step
while not os.path.exists(os.environ["FLAG"]):
    step += 1
    try:
        with job.save(step, samples=step) as directory:
            with open(os.path.join(directory, "weights"), "wb") as file:
                file.write(os.urandom(1 << 20))
        print("saved", step, flush=True)
    except (OSError, rondo.Error) as error:
        print("failed", step, type(error).__name__, error, flush=True)
    time.sleep(0.2)
print("resumed at", job.resume.step, flush=True)
job.finish()
"""


def committed(cluster, job):
    return {row[0] for row in cluster.sql("select step from checkpoint where job = %s and "
                                          "state = 'COMMITTED'", job)}


def saves(cluster, name, **more):
    flag = cluster.home / f"flag-{name}"
    return flag, cluster.submit(spec(name, [PYTHON, "-c", SAVES], env={"FLAG": str(flag)},
                                     checkpoint={"keep": 2}, **more))


def said_by_both(cluster, job):
    return [cluster.output(job, "--rank", rank).decode() for rank in range(2)]


def test_m53_full_vault(cluster):
    """Saves fail and say so, training goes on; no half checkpoint is a candidate; with room again
    saves succeed."""
    flag, job = saves(cluster, "vault-full", workers=2)
    until(lambda: committed(cluster, job), lambda: cluster.tell(job))
    workers = cluster.running(job, 2)
    with full(cluster, "vault") as disk:
        until(lambda: any("failed" in said for said in said_by_both(cluster, job)),
              lambda: cluster.tell(job))  # the last free blocks may be enough for one of them
        disk.fill()
        time.sleep(2)
        disk.fill()
        assert all(alive(pid) for pid in workers.values())
        before = committed(cluster, job)
        assert before
    until(lambda: committed(cluster, job) - before, lambda: cluster.tell(job), 90)
    flag.touch()
    shown = cluster.wait(job)
    assert shown["job"]["state"] == "SUCCEEDED" and len(shown["attempts"]) == 1, cluster.tell(job)
    assert any("No space left" in said for said in said_by_both(cluster, job))


def test_a_kill_while_the_vault_is_full_resumes_from_what_is_whole(cluster):
    flag, job = saves(cluster, "vault-kill", restart={"budget": 1, "backoff_ms": 20})
    until(lambda: committed(cluster, job), lambda: cluster.tell(job))
    pid = cluster.running(job, 1)["w", 0]
    with full(cluster, "vault"):
        cluster.said(job, "failed")
        whole = committed(cluster, job)
        os.kill(pid, 9)
        cluster.while_it_lives(job, lambda: cluster.workers(job).get(("w", 0)) not in (None, pid))
        flag.touch()
        shown = cluster.wait(job)
    assert shown["job"]["state"] == "SUCCEEDED" and len(shown["attempts"]) == 2, cluster.tell(job)
    out = cluster.output(job, "--attempt", 2).decode()
    assert f"resumed at {max(whole)}\n" in out, (out[-500:], whole)
