"""Database or daemon are away for a while: nothing that was told is lost, and gangs run on."""

import contextlib
import os
import pathlib
import signal
import time
import uuid

import pytest

import rondo_cluster
from counting import LEASE_MS, check_count, check_points, counting, reached, three_agents
from rondo_cluster import alive, spec, until

grpc = pytest.importorskip("grpc")


@pytest.fixture(scope="module")
def cluster():
    with three_agents() as it:
        yield it


# --- the database is away

@contextlib.contextmanager
def frozen_database(cluster):
    data = os.path.realpath(cluster.dir / "postgres/data")
    frozen = []
    for entry in pathlib.Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and os.readlink(entry / "cwd") == data:
                frozen.append(int(entry.name))
    assert frozen
    for pid in frozen:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in frozen:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


AWAY_S = float(os.environ.get("RONDO_AWAY_S", "10"))  # nightly.sh: 1, 60, 600


def test_m41_database_away(cluster):
    steps = int(8000 * max(1, AWAY_S / 10))
    messages = rondo_cluster.stubs().control
    request = messages.SubmitRequest(request_id=uuid.uuid4().hex)
    request.spec.name = "while-away"
    request.spec.roles.add(name="w").command.append("/bin/true")
    job = cluster.submit(counting(cluster, "runs-on", steps=steps))
    workers = cluster.running(job, 3)
    reached(cluster, job, 200)
    with frozen_database(cluster):
        end = time.monotonic() + AWAY_S
        status, text = until(lambda: (answer := cluster.http("/readyz"))[0] == 503 and answer,
                             cluster.log, 30)
        assert "database" in text
        assert cluster.http("/healthz")[0] == 200
        with cluster.control() as control:
            with pytest.raises(grpc.RpcError) as info:
                control.Submit(request, timeout=30)
            assert info.value.code() is grpc.StatusCode.UNAVAILABLE
            shown = control.ShowJob(messages.ShowJobRequest(job=job), timeout=30)
            assert shown.job.spec.name == "runs-on"
        while time.monotonic() < end:
            assert all(alive(pid) for pid in workers.values())
            time.sleep(0.2)
    until(lambda: cluster.http("/readyz")[0] == 200, cluster.log, 60)
    with cluster.control() as control:
        first = control.Submit(request, timeout=30).job
        assert control.Submit(request, timeout=30).job == first
    assert cluster.wait(first)["job"]["state"] == "SUCCEEDED"
    assert cluster.sql("select id from job where name = 'while-away'") == [(first,)]
    shown = cluster.wait(job, limit=rondo_cluster.LIMIT_S + 6 * AWAY_S)
    assert shown["job"]["state"] == "SUCCEEDED" and len(shown["attempts"]) == 1, cluster.tell(job)
    check_points(cluster, job, steps)
    check_count(cluster, job, steps)


# --- a gang on one node goes on while nobody leads

@contextlib.contextmanager
def daemon_away(cluster):
    cluster.kill_daemon()
    try:
        yield
    finally:
        cluster.start()


@contextlib.contextmanager
def database_away(cluster):
    """And the daemon knows it: what it was about to decide when it froze would count."""
    with frozen_database(cluster):
        until(lambda: cluster.http("/readyz")[0] == 503, cluster.log, 30)
        yield


def of_incarnation(cluster, job, incarnation):
    """{rank: pid} of the processes of that incarnation of attempt 1, as the machine shows them."""
    found = {}
    for pid in rondo_cluster.processes_of(cluster.dir):
        with contextlib.suppress(OSError):
            told = dict(entry.split(b"=", 1) for entry in pathlib.Path(
                f"/proc/{pid}/environ").read_bytes().split(b"\0") if b"=" in entry)
            if (told.get(b"RONDO_JOB"), told.get(b"RONDO_ATTEMPT"), told.get(
                    b"RONDO_INCARNATION")) == (b"%d" % int(job), b"1", b"%d" % incarnation):
                found[int(told[b"RANK"])] = pid
    return found


@pytest.mark.parametrize("away", [daemon_away, database_away])
def test_a_gang_on_one_node_goes_on_without_a_leader(cluster, away):
    steps = 12000
    job = cluster.submit(counting(cluster, away.__name__, steps=steps, workers=2))
    workers = cluster.running(job, 2)
    reached(cluster, job, 200)
    with away(cluster):
        os.kill(workers["w", 1], signal.SIGKILL)
        again = until(lambda: len(found := of_incarnation(cluster, job, 2)) == 2 and found,
                      cluster.log)
        assert not any(alive(pid) for pid in workers.values())
    until(cluster.is_ready, cluster.log)
    assert all(alive(pid) for pid in again.values()) or cluster.state(job) == "SUCCEEDED"
    shown = cluster.wait(job)
    assert shown["job"]["state"] == "SUCCEEDED" and len(shown["attempts"]) == 1, cluster.tell(job)
    attempt, = shown["attempts"]
    assert attempt["incarnation"] == 2 and shown["job"]["restarts_used"] == 1
    restart, = attempt["restarts"]
    assert (restart["rank"], restart["signal"]) == (1, signal.SIGKILL)
    step, samples, state = cluster.sql("select step, samples, state from checkpoint where id = %s",
                                       int(restart["resume_checkpoint"]))[0]
    assert step >= 100 and state in ("COMMITTED", "EXPIRED", "DELETED")
    assert f"resumed at step {step}, sample {samples}\n" in cluster.output(job).decode()
    told, = cluster.sql("select text from event where job = %s and kind = 'job.restarted'", job)
    assert "rank 1" in told[0] and "signal 9" in told[0]
    assert "incarnation 2" in cluster.ctl("show", job).stdout
    check_points(cluster, job, steps, 2)
    check_count(cluster, job, steps, 2)


def test_without_allowance_the_leader_is_waited_for(cluster):
    """The budget is used up: what is granted is nothing, and nothing is started."""
    job = cluster.submit(counting(cluster, "no-allowance", steps=100_000, workers=2,
                                  restart={"budget": 0}))
    workers = cluster.running(job, 2)
    reached(cluster, job, 200)
    with daemon_away(cluster):
        os.kill(workers["w", 1], signal.SIGKILL)
        time.sleep(LEASE_MS / 1000)
        assert not of_incarnation(cluster, job, 2) and alive(workers["w", 0])
    assert cluster.wait(job)["job"]["state"] == "FAILED"


# --- the daemon is away for longer than a lease

def test_m39_daemon_away_for_longer_than_the_lease(cluster):
    """Unreachable is not dead: after its return leases start full."""
    job = cluster.submit(counting(cluster, "m39", steps=100_000))
    workers = cluster.running(job, 3)
    cluster.kill_daemon()
    time.sleep(LEASE_MS / 1000 + 1)
    assert all(alive(pid) for pid in workers.values())
    cluster.start()
    time.sleep(1)
    assert cluster.running(job, 3) == workers
    assert len(cluster.show(job)["attempts"]) == 1
    cluster.cancel(job, "--now")
