"""kill -9 of everything, a node that falls silent, transactions broken off: jobs get there."""

import contextlib
import os
import pathlib
import signal
import threading
import time
import uuid

import pytest

import rondo_cluster
from counting import (LEASE_MS, check_count, check_points, check_resume, counting, reached,
                      three_agents)
from rondo_cluster import alive, spec, until

grpc = pytest.importorskip("grpc")


@pytest.fixture(scope="module")
def cluster():
    with three_agents() as it:
        yield it


def test_kill_a_worker(cluster):
    job = cluster.submit(counting(cluster, "kill-worker"))
    workers = cluster.running(job, 3)
    reached(cluster, job, 200)
    os.kill(workers["w", 1], signal.SIGKILL)
    shown = cluster.wait(job)
    assert shown["job"]["state"] == "SUCCEEDED" and len(shown["attempts"]) == 2, cluster.tell(job)
    assert shown["attempts"][0]["end"]["code"] == "WORKER_SIGNALLED"
    assert shown["job"]["restarts_used"] == 1
    check_resume(cluster, job, 2)
    check_points(cluster, job)
    check_count(cluster, job)


def test_kill_a_shim(cluster):
    job = cluster.submit(counting(cluster, "kill-shim"))
    workers = cluster.running(job, 3)
    reached(cluster, job, 200)
    stat = pathlib.Path(f"/proc/{workers['w', 2]}/stat").read_text()
    shim = int(stat.rpartition(")")[2].split()[1])
    assert b"rondo-shim" in pathlib.Path(f"/proc/{shim}/cmdline").read_bytes()
    os.kill(shim, signal.SIGKILL)
    shown = cluster.wait(job)
    assert shown["job"]["state"] == "SUCCEEDED" and len(shown["attempts"]) == 2, cluster.tell(job)
    assert shown["attempts"][0]["end"]["code"] == "SHIM_LOST"
    assert not [pid for pid in workers.values() if alive(pid)]
    check_resume(cluster, job, 2)
    check_points(cluster, job)
    check_count(cluster, job)


def test_m22_a_broken_gang_is_back_within_seconds(cluster):
    job = cluster.submit(counting(cluster, "m22", steps=100_000, workers=6))
    workers = cluster.running(job, 6)
    for pid in workers.values():
        with contextlib.suppress(ProcessLookupError):  # the agent ends what is left of the gang
            os.kill(pid, signal.SIGKILL)
    cluster.while_it_lives(job, lambda: len(found := cluster.workers(job)) == 6 and
                           not set(found.values()) & set(workers.values()))
    ended, up = cluster.sql("select (select ended_at from attempt where job = %s and number = 1), "
                            "(select running_at from attempt where job = %s and number = 2)",
                            job, job)[0]
    assert (up - ended).total_seconds() < 10
    cluster.cancel(job, "--now")


def test_m18_the_budget_survives_the_daemon(cluster):
    job = cluster.submit(spec("m18", "exit 1", restart={"budget": 2, "backoff_ms": 3000}))
    until(lambda: cluster.show(job)["job"].get("restarts_used", 0) == 1, lambda: cluster.tell(job))
    cluster.kill_daemon()
    cluster.start()
    shown = cluster.wait(job)
    assert shown["job"]["state"] == "FAILED" and shown["job"]["restarts_used"] == 2
    assert len(shown["attempts"]) == 3


def kill_agent(cluster):
    agent = cluster.agent_pid("n1")
    os.kill(agent, signal.SIGKILL)
    until(lambda: cluster.agent_pid("n1") not in (None, agent), "a new agent n1")


def kill_daemon(cluster):
    agents = {node: cluster.agent_pid(node) for node in ("n1", "n2", "n3")}
    cluster.kill_daemon()
    cluster.start()
    assert {node: cluster.agent_pid(node) for node in agents} == agents


def kill_postmaster(cluster):
    server = cluster.postmaster()
    os.kill(server, signal.SIGKILL)
    until(lambda: cluster.postmaster() not in (None, server), "a new postmaster")


@pytest.mark.parametrize("kill", [kill_agent, kill_daemon, kill_postmaster])
def test_healthy_workers_run_on_when(cluster, kill):
    job = cluster.submit(counting(cluster, kill.__name__, steps=3000))
    workers = cluster.running(job, 3)
    reached(cluster, job, 200)
    kill(cluster)
    until(cluster.is_ready, cluster.log)
    assert all(alive(pid) for pid in workers.values()) or cluster.state(job) == "SUCCEEDED"
    shown = cluster.wait(job)
    assert shown["job"]["state"] == "SUCCEEDED" and len(shown["attempts"]) == 1, cluster.tell(job)
    check_points(cluster, job, 3000)
    check_count(cluster, job, 3000)


# --- submits

def test_100_acknowledged_submits_survive_the_daemon(cluster):
    ran = cluster.home / "ran"
    ran.mkdir()
    ran.chmod(0o777)
    messages = rondo_cluster.stubs().control
    request = messages.SubmitRequest()
    job = request.spec
    job.name = "once"
    role = job.roles.add(name="w")
    role.command.extend(["/bin/sh", "-c", f"umask 0; echo x >> {ran}/$RONDO_JOB"])
    job.restart.budget = 0
    acknowledged = {}
    with cluster.control() as control:
        for _ in range(100):
            request.request_id = uuid.uuid4().hex
            acknowledged[request.request_id] = control.Submit(request, timeout=30).job
    cluster.kill_daemon()
    cluster.start()
    ids = sorted(acknowledged.values())
    assert len(set(ids)) == 100
    until(lambda: cluster.sql("select count(*) from job where state = 'SUCCEEDED' and "
                              "id = any(%s)", ids) == [(100,)], cluster.log)
    assert sorted(int(path.name) for path in ran.iterdir()) == ids
    assert {path.read_text() for path in ran.iterdir()} == {"x\n"}
    assert cluster.sql("select count(*) from job where name = 'once'") == [(100,)]
    with cluster.control() as control:  # a retry of the last is answered, not repeated
        assert control.Submit(request, timeout=30).job == acknowledged[request.request_id]


def test_submits_by_many_clients_while_the_daemon_dies(cluster):
    """Whoever got an id finds the job; whoever did not repeats the request and gets one."""
    messages = rondo_cluster.stubs().control
    got, errors = {}, {}

    def client(number):
        request = messages.SubmitRequest(request_id=f"client-{number}-{uuid.uuid4().hex}")
        request.spec.name = f"storm-{number}"
        request.spec.roles.add(name="w").command.append("/bin/true")
        end = time.monotonic() + 60
        with cluster.control() as control:
            while time.monotonic() < end:
                try:
                    # A Python client moves its connection on only while it waits in a call.
                    got[number] = control.Submit(request, timeout=20, wait_for_ready=True).job
                    return
                except grpc.RpcError as error:
                    if error.code() not in (grpc.StatusCode.UNAVAILABLE,
                                            grpc.StatusCode.DEADLINE_EXCEEDED):
                        got[number] = error.code()
                        return
                    errors[number] = f"{error.code()} {error.details()}"
                    time.sleep(0.1)

    threads = [threading.Thread(target=client, args=(number,)) for number in range(24)]
    for thread in threads[:12]:
        thread.start()
    time.sleep(0.02)
    cluster.kill_daemon()
    for thread in threads[12:]:
        thread.start()
    cluster.start()
    for thread in threads:
        thread.join(90)
    assert sorted(got) == list(range(24)), errors
    found = dict(cluster.sql("select id, name from job where name like 'storm-%%'"))
    assert found == {job: f"storm-{number}" for number, job in got.items()}
    until(lambda: cluster.sql("select count(*) from job where name like 'storm-%%' and state = "
                              "'SUCCEEDED'") == [(24,)], cluster.log)


# --- transactions that the database breaks off

BREAK_OFF = """
create sequence break_off_tries;
create function break_off() returns trigger language plpgsql as $$ begin
  if current_setting('break_off.done', true) is distinct from txid_current()::text then
    perform set_config('break_off.done', txid_current()::text, true);
    if nextval('break_off_tries') %% 3 = 0 then
      raise exception 'deadlock, as asked' using errcode = '40P01';
    end if;
  end if;
  return new;
end $$;
create trigger break_off before insert or update on job
  for each row execute function break_off();
select 1
"""


def test_m42_broken_transactions_are_repeated(cluster):
    """Every third transaction that changes a job ends in a deadlock: nothing is lost or doubled,
    all jobs end."""
    cluster.sql(BREAK_OFF)
    try:
        files = [cluster.write(spec(f"m42-{n}", "echo once")) for n in range(12)]
        ids = [int(cluster.json("submit", file)["results"][0]["job"]) for file in files]
        until(lambda: cluster.sql("select count(*) from job where state = 'SUCCEEDED' and "
                                  "attempt = 1 and id = any(%s)", ids) == [(12,)], cluster.log)
        assert cluster.sql("select last_value > 16 from break_off_tries") == [(True,)]
        assert cluster.sql("select count(*) from job where name like 'm42-%%'") == [(12,)]
        assert all(cluster.output(job) == b"once\n" for job in ids)
    finally:
        cluster.sql("drop trigger break_off on job; drop function break_off; "
                    "drop sequence break_off_tries; select 1")


# --- silence

def test_m15_m20_a_silent_node_loses_its_attempt(cluster):
    """The agent of rank 0 is frozen past the lease: the gang starts elsewhere; what the old one
    still reports does not count, and its workers go once it is back."""
    job = cluster.submit(counting(cluster, "m15", steps=1000))
    cluster.running(job, 3)
    reached(cluster, job, 150)
    places = cluster.show(job)["attempts"][0]["places"]
    node = places[2]["node"]
    old = cluster.running(job, 3)
    agent = cluster.agent_pid(node)
    os.kill(agent, signal.SIGSTOP)
    os.kill(old["w", 2], signal.SIGSTOP)  # else it would simply reach its end
    try:
        until(lambda: cluster.sql("select 1 from attempt where job = %s and number = 1 and "
                                  "reason = 'NODE_LOST'", job), lambda: cluster.tell(job),
              LEASE_MS / 1000 + 30)
        shown = cluster.wait(job)
    finally:
        os.kill(agent, signal.SIGCONT)
    assert shown["job"]["state"] == "SUCCEEDED", cluster.tell(job)
    assert node not in [place["node"] for place in shown["attempts"][1]["places"]]
    assert shown["job"].get("restarts_used", 0) == 0  # never the user's fault
    until(lambda: not alive(old["w", 2]), "the zombie's end", 30)
    until(cluster.is_ready, cluster.log)
    check_points(cluster, job, 1000)
    check_count(cluster, job, 1000)


def test_m19_a_node_that_comes_back_is_a_spare(cluster):
    """Its gang has gone on elsewhere: it joins nothing, harms nobody, and takes the next job."""
    job = cluster.submit(counting(cluster, "m19", steps=100_000, workers=4))
    old = cluster.running(job, 4)
    node = cluster.show(job)["attempts"][0]["places"][3]["node"]
    agent = cluster.agent_pid(node)
    os.kill(agent, signal.SIGSTOP)
    try:
        until(lambda: len(cluster.show(job)["attempts"]) == 2, lambda: cluster.tell(job),
              LEASE_MS / 1000 + 30)
        workers = cluster.running(job, 4)
        assert not set(workers.values()) & set(old.values())
    finally:
        os.kill(agent, signal.SIGCONT)
    until(cluster.is_ready, cluster.log)
    until(lambda: not [pid for pid in old.values() if alive(pid)], "the end of the old gang", 30)
    shown = cluster.run(spec("m19-next", "echo up", workers=2))
    assert {place["node"] for place in shown["attempts"][0]["places"]} == {node}
    assert cluster.workers(job) == workers and len(cluster.show(job)["attempts"]) == 2
    assert cluster.show(job)["job"].get("restarts_used", 0) == 0
    cluster.cancel(job, "--now")


def test_m10_cancelled_while_the_daemon_was_dying(cluster):
    job = cluster.submit(spec("m10", "trap '' TERM; echo up; while :; do sleep 0.2; done",
                              grace_ms=4000, workers=2))
    cluster.said(job, "up")
    workers = cluster.running(job, 2)
    cluster.ctl("cancel", job)
    cluster.kill_daemon()
    cluster.start()
    assert cluster.wait(job)["job"]["state"] == "CANCELLED"
    assert not [pid for pid in workers.values() if alive(pid)]


def test_m40_cancel_during_recovery(cluster):
    job = cluster.submit(counting(cluster, "m40", steps=100_000, grace_ms=1000))
    workers = cluster.running(job, 3)
    reached(cluster, job, 100)
    os.kill(workers["w", 0], signal.SIGKILL)
    cluster.ctl("cancel", job, "--wait")
    assert cluster.state(job) == "CANCELLED"
    assert not [pid for pid in workers.values() if alive(pid)]
    until(lambda: not [command for command in cluster.processes().values()
                       if "rondo-counter" in command], "every counter's end", 30)


def test_everything_dies_at_once(cluster):
    """Daemon, database and agents: the workers do not notice."""
    job = cluster.submit(counting(cluster, "all-die", steps=3000))
    workers = cluster.running(job, 3)
    reached(cluster, job, 200)
    agents = [cluster.agent_pid(node) for node in ("n1", "n2", "n3")]
    server = cluster.postmaster()
    cluster.daemon.kill()
    for pid in [server, *agents]:
        os.kill(pid, signal.SIGKILL)
    cluster.daemon.wait(30)
    cluster.start()
    until(cluster.is_ready, cluster.log)
    assert all(alive(pid) for pid in workers.values()) or cluster.state(job) == "SUCCEEDED"
    shown = cluster.wait(job)
    assert shown["job"]["state"] == "SUCCEEDED" and len(shown["attempts"]) == 1, cluster.tell(job)
    check_points(cluster, job, 3000)
    check_count(cluster, job, 3000)
