"""What a worker gets and what holds it: user, groups, mask, limits, environment, memory; what is
left when it cannot be killed; devices' libraries that hang."""

import contextlib
import json
import os
import pathlib
import shutil
import signal
import time
import types

import pytest

import rondo_cluster
from rondo_cluster import PYTHON, alive, spec, until

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")

LOOK = """
import grp, json, os, resource, signal
names = ("CORE", "NOFILE", "AS", "DATA", "NPROC", "MEMLOCK", "STACK")
status = dict(line.split(":", 1) for line in open("/proc/self/status").read().splitlines())
umask = os.umask(0)
print(json.dumps({
    "uid": os.getresuid(), "gid": os.getresgid(), "groups": os.getgroups(), "umask": umask,
    "limits": {name: resource.getrlimit(getattr(resource, "RLIMIT_" + name)) for name in names},
    "env": dict(os.environ), "cwd": os.getcwd(),
    "fds": sorted(map(int, os.listdir("/proc/self/fd"))),
    "leader": os.getsid(0) == os.getpid(), "blocked": int(status["SigBlk"], 16),
    "ignored": int(status["SigIgn"], 16), "caps": int(status["CapEff"], 16)}))
"""


def look(cluster, **more):
    shown = cluster.run(spec("look", [PYTHON, "-c", LOOK], **more))
    return types.SimpleNamespace(**json.loads(cluster.output(int(shown["job"]["id"]))))


@pytest.fixture(scope="module")
def cluster():
    library = rondo_cluster.BUILD / "tests/libstandin_nvml_hangs.so"
    more = [f"--agent-flags=--nvidia-library={library}"] if library.exists() else []
    with rondo_cluster.running(agents=1, slots=4, flags=[
            "--lease-ms=3000", "--heartbeat-ms=300", "--agent-flags=--worker-umask=63",
            "--agent-flags=--worker-env=OF_THE_NODE=yes", "--agent-flags=--probe-ms-max=1500",
            "--agent-flags=--probe-every-ms=1000", *more], env={"OF_THE_AGENT": "secret"}) as it:
        yield it


def agent_log(cluster, node="n1"):
    return (cluster.dir / "agents" / node / "agent.log").read_text(errors="replace")


# --- what a worker gets

@root_only
def test_a_worker_has_its_users_rights_and_no_more(cluster):
    """Nothing of root's: ids, groups and capabilities are those of the worker's user."""
    seen = look(cluster)
    assert seen.uid == [65534] * 3 and seen.gid == [65534] * 3
    assert seen.groups == [65534] and seen.caps == 0


def test_mask_limits_session_and_descriptors_are_as_stated(cluster):
    seen = look(cluster)
    assert seen.umask == 0o077
    assert seen.limits["CORE"] == [0, 0]
    assert seen.limits["NOFILE"][0] == seen.limits["NOFILE"][1] >= 1024
    assert seen.leader and seen.blocked == 0
    assert seen.ignored & (1 << (signal.SIGTERM - 1) | 1 << (signal.SIGINT - 1)) == 0
    assert [fd for fd in seen.fds if fd > 2] == seen.fds[3:4]  # the one that lists the directory


def test_nothing_of_the_agents_environment_but_what_is_listed(cluster):
    agent = cluster.agent_pid("n1")
    assert b"OF_THE_AGENT=secret" in pathlib.Path(f"/proc/{agent}/environ").read_bytes()
    seen = look(cluster, env={"OMP_NUM_THREADS": "3"})
    assert "OF_THE_AGENT" not in seen.env and "secret" not in seen.env.values()
    assert seen.env["OF_THE_NODE"] == "yes" and seen.env["OMP_NUM_THREADS"] == "3"
    assert seen.env["PATH"] and seen.env["PYTHONUNBUFFERED"] == "1"
    known = ("RONDO_", "TORCHELASTIC_", "MASTER_", "LOCAL_", "GROUP_", "ROLE_")
    assert {name for name in seen.env if not name.startswith(known)} <= {
        "PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "HOME", "USER", "LOGNAME", "SHELL", "TMPDIR",
        "PYTHONUNBUFFERED", "PYTHONPATH", "OMP_NUM_THREADS", "RANK", "WORLD_SIZE", "OF_THE_NODE",
        "GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING", "NCCL_ASYNC_ERROR_HANDLING"}, seen.env
    assert seen.cwd == seen.env["TMPDIR"] and not pathlib.Path(seen.cwd).exists()


# --- memory

EATS = """
import sys
kept = bytearray(64 << 20)
print("small", flush=True)
kept2 = bytearray(400 << 20)
for at in range(0, len(kept2), 4096):
    kept2[at] = 1
print("large", flush=True)
"""


def eats(cluster, name):
    """A worker that needs more than it may: it ends, for that reason, and nothing else does."""
    shown = cluster.run(spec(name, [PYTHON, "-c", EATS], resources={"memory_mib": 192}),
                        state="FAILED")
    job = int(shown["job"]["id"])
    assert cluster.output(job) == b"small\n"
    assert shown["attempts"][0]["end"]["code"] == "OUT_OF_MEMORY", cluster.tell(job)
    shown = cluster.run(spec(name + "-fits", [PYTHON, "-c", EATS], resources={"memory_mib": 1024}))
    assert cluster.output(int(shown["job"]["id"])) == b"small\nlarge\n"


def limits_said(cluster):
    """What the agent said at its start, and what the daemon tells of it."""
    told = cluster.json("nodes")["nodes"][0]["node"]["inventory"].get("limits", [])
    line = [line for line in agent_log(cluster).splitlines() if "limits=" in line][-1]
    said = line.split("limits=")[1].split()[0].strip('"')
    assert said.split(",") == told, (line, told)
    return told


def test_memory_is_limited(cluster):
    said = limits_said(cluster)
    assert any(word.startswith("memory") for word in said), said
    eats(cluster, "eats")


@root_only
def test_memory_is_limited_without_cgroups():
    """A machine that offers no cgroups: each process gets the limit, and the agent says so."""
    hide = 'umount -l -R /sys/fs/cgroup 2>/dev/null; exec "$@"'
    wrap = ["unshare", "--mount", "--propagation", "private", "sh", "-c", hide, "sh"]
    with rondo_cluster.running(agents=1, slots=2, wrap=wrap) as cluster:
        assert limits_said(cluster) == ["memory.process"]
        eats(cluster, "eats-bare")


# --- processes

FORKS = """
import os, signal, sys
children = []
try:
    for _ in range(200):
        child = os.fork()
        if child == 0:
            signal.pause()
        children.append(child)
except BlockingIOError:
    print("no more", flush=True)
print(len(children), flush=True)
for child in children:
    os.kill(child, signal.SIGKILL)
"""


def test_a_worker_has_no_more_processes_than_it_may():
    with rondo_cluster.running(agents=1, slots=2,
                               flags=["--agent-flags=--worker-tasks-max=64"]) as cluster:
        if "pids" not in limits_said(cluster):
            assert "worker_tasks_max does not hold" in agent_log(cluster)
            pytest.skip("no pids controller that the agent could use")
        shown = cluster.run(spec("forks", [PYTHON, "-c", FORKS]))
        assert cluster.output(int(shown["job"]["id"])) == b"no more\n63\n"


@root_only
def test_a_setuid_program_gives_a_worker_no_rights(cluster):
    """A copy of a program that is root's and setuid runs as the worker's user."""
    look_at = cluster.dir / "vault" / "setuid-id"
    look_at.parent.mkdir(exist_ok=True)
    shutil.copy("/usr/bin/id", look_at)
    look_at.chmod(0o4755)
    script = f"{look_at} -u; grep NoNewPrivs /proc/self/status"
    shown = cluster.run(spec("setuid", ["/bin/sh", "-c", script]))
    assert cluster.output(int(shown["job"]["id"])) == b"65534\nNoNewPrivs:\t1\n"


# --- a process that survives KILL

@contextlib.contextmanager
def frozen(pid):
    """The v1 freezer holds it so that even KILL waits: state D."""
    base = pathlib.Path("/sys/fs/cgroup/freezer")
    if not (base / "cgroup.procs").exists():
        pytest.skip("no v1 freezer to make a process unkillable with")
    group = base / f"rondo-test-{os.getpid()}-{pid}"
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"the freezer is not for us: {error}")
    try:
        (group / "cgroup.procs").write_text(str(pid))
        (group / "freezer.state").write_text("FROZEN")
        yield
    finally:
        (group / "freezer.state").write_text("THAWED")
        until(lambda: not (group / "cgroup.procs").read_text().split(), "the group is empty")
        group.rmdir()


def devices(cluster, health):
    inventory = cluster.json("nodes")["nodes"][0]["node"]["inventory"]
    return sum(device["kind"] == "cpu" and device["health"] == health
               for device in inventory["devices"])


@root_only
def test_an_unkillable_worker_keeps_its_devices_from_others(cluster):
    """The job ends as asked; its slots are nobody's until the process is gone, also over deaths of
    agent and daemon."""
    job = cluster.submit(spec("stuck", "echo up; sleep 600", workers=2, grace_ms=100))
    pid = cluster.running(job, 2)["w", 1]
    with frozen(pid):
        cluster.ctl("cancel", job)
        assert cluster.wait(job)["job"]["state"] == "CANCELLED"
        shown = cluster.show(job)
        place = [p for p in shown["attempts"][0]["places"] if p.get("rank", 0) == 1][0]
        assert "uninterruptible" in place["message"] and str(pid) in place["message"], place
        until(lambda: devices(cluster, "QUARANTINED") == 1, cluster.log)
        wide = cluster.submit(spec("wide", ["/bin/true"], workers=4))
        assert cluster.run(spec("narrow", ["/bin/true"], workers=3))
        old = cluster.agent_pid("n1")
        os.kill(old, signal.SIGKILL)
        until(lambda: cluster.agent_pid("n1") not in (None, old), "a new agent")
        cluster.kill_daemon()
        cluster.start()
        assert cluster.run(spec("narrow-again", ["/bin/true"], workers=3))
        time.sleep(2)
        assert not cluster.show(wide).get("attempts"), cluster.tell(wide)
        until(lambda: devices(cluster, "QUARANTINED") == 1, cluster.log)
        assert alive(pid)
    assert cluster.wait(wide)["job"]["state"] == "SUCCEEDED"
    assert devices(cluster, "QUARANTINED") == 0 and devices(cluster, "HEALTHY") == 4


# --- a device's library that hangs

def test_m5_a_hanging_library_holds_up_nothing(cluster):
    """Its probe is a child with a deadline. Meanwhile: leases are kept, jobs start and end, and
    there is never more than one such child."""
    if not any("nvidia-library" in flag for flag in cluster.flags):
        pytest.skip("the stand-in library is not built")
    agent, end, most, runs = cluster.agent_pid("n1"), time.monotonic() + 8, 0, 0
    before = cluster.sql("select count(*) from event where kind = 'node.seen'")
    while time.monotonic() < end:
        began = time.monotonic()
        cluster.run(spec(f"m5-{runs}", ["/bin/true"]))
        assert time.monotonic() - began < rondo_cluster.LIMIT_S / 4
        runs += 1
        most = max(most, sum("--probe-devices nvidia" in command
                             for command in cluster.processes().values()))
    assert runs >= 3 and most == 1
    assert cluster.agent_pid("n1") == agent
    assert cluster.sql("select count(*) from event where kind = 'node.seen'") == before
    assert "did not answer and was killed" in agent_log(cluster)
