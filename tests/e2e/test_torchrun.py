"""A script written for torchrun, unmodified, on two agents in network and mount namespaces of their
own that share nothing but the vault."""

import contextlib
import importlib.util
import os
import pathlib
import shutil
import signal
import subprocess
import time

import pytest

import rondo_cluster
from rondo_cluster import BIN, LIMIT_S, ROOT, until

EXAMPLE = ROOT / "examples/torchrun_ddp/job.yaml"
HIDDEN = ("agents", "ca", "ctl", "daemon", "postgres")  # of the daemon's directory


def ip(*words):
    subprocess.run(["ip", *map(str, words)], check=True, timeout=LIMIT_S)


def free_net():
    """A third octet that no interface here uses, and names that nobody has."""
    taken = subprocess.run(["ip", "-4", "-o", "addr"], stdout=subprocess.PIPE, text=True,
                           check=True, timeout=LIMIT_S).stdout
    for octet in range(1, 255):
        if f" 10.213.{octet}." not in taken:
            return octet
    return pytest.skip("no free network")


@contextlib.contextmanager
def network():
    """A bridge with two namespaces on it; gives (net, [namespace, namespace])."""
    octet, tag = free_net(), f"{os.getpid() % 0xffff:04x}"
    net, bridge = f"10.213.{octet}", f"rdb{tag}"
    names = [f"rd{tag}-{number}" for number in (1, 2)]
    try:
        ip("link", "add", bridge, "type", "bridge")
        ip("addr", "add", f"{net}.1/24", "dev", bridge)
        ip("link", "set", bridge, "up")
        for number, name in enumerate(names, 1):
            ip("netns", "add", name)
            ip("link", "add", f"rdv{tag}{number}", "type", "veth", "peer", "name", "eth0",
               "netns", name)
            ip("link", "set", f"rdv{tag}{number}", "master", bridge, "up")
            for words in (("addr", "add", f"{net}.{10 + number}/24", "dev", "eth0"),
                          ("link", "set", "eth0", "up"), ("link", "set", "lo", "up")):
                ip("-n", name, *words)
        yield net, names
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], timeout=LIMIT_S, stderr=subprocess.DEVNULL)
        for number in (1, 2):
            subprocess.run(["ip", "link", "del", f"rdv{tag}{number}"], timeout=LIMIT_S,
                           stderr=subprocess.DEVNULL)
        subprocess.run(["ip", "link", "del", bridge], timeout=LIMIT_S, stderr=subprocess.DEVNULL)
        left = subprocess.run(["ip", "link"], stdout=subprocess.PIPE, text=True,
                              timeout=LIMIT_S).stdout
        assert bridge not in left and f"rdv{tag}" not in left
        assert not [name for name in names if pathlib.Path("/run/netns", name).exists()]


def start_agent(cluster, namespace, name, address, log):
    """In its network namespace, and in a mount namespace where only the vault is the daemon's."""
    own = cluster.issue("--kind", "agent", "--name", name, out=f"cert-{name}")
    state = cluster.home / "node"  # the same path on both, but not the same directory
    state.mkdir(exist_ok=True)
    mounts = [f"mount -t tmpfs -o mode=711 rondo {state}", "mount -t tmpfs rondo /dev/shm"]
    mounts += [f"mount -t tmpfs -o mode=700 rondo {cluster.dir / name}" for name in HIDDEN]
    command = [
        BIN / "rondo-agent", f"--node={name}", f"--daemon={cluster.listen}",
        f"--state-dir={state}/state", f"--cert={own}/agent.pem", f"--key={own}/agent.key",
        f"--ca={own}/ca.pem", f"--address={address}", f"--vault=default={cluster.dir}/vault:shared",
        "--cpu-slots=1", "--port-first=20000", "--port-last=20099",
        "--worker-env=GLOO_SOCKET_IFNAME=eth0", f"--python-path={cluster.python_path}"]
    return subprocess.Popen(
        ["ip", "netns", "exec", namespace, "unshare", "--mount", "--propagation", "private",
         "/bin/sh", "-c", " && ".join(mounts) + ' && exec "$@"', "sh", *map(str, command)],
        stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=cluster.home)


@pytest.fixture(scope="module")
def cluster():
    if os.geteuid() != 0:
        pytest.skip("needs root: network and mount namespaces")
    if not shutil.which("ip") or not shutil.which("unshare"):
        pytest.skip("needs ip and unshare")
    if not importlib.util.find_spec("torch"):
        pytest.skip("needs torch")
    with network() as (net, names), rondo_cluster.running(
            agents=0, address=f"{net}.1", flags=[f"--hosts={net}.1"]) as it:
        with open(it.home / "agents.log", "ab") as log:
            agents = []
            try:
                for number, name in enumerate(names, 1):
                    agents.append(start_agent(it, name, f"m{number}", f"{net}.{10 + number}", log))
                until(lambda: it.json("status").get("nodes_healthy") == 2,
                      lambda: (it.home / "agents.log").read_text() + it.log())
                yield it
            finally:
                for job in it.json("jobs", "--active").get("jobs", []):
                    it.ctl("cancel", "--now", "--wait", job["id"], check=False)
                for agent in agents:
                    agent.send_signal(signal.SIGTERM)
                for agent in agents:
                    assert agent.wait(LIMIT_S) == 0


def test_torchrun_script_over_two_hosts(cluster):
    reply = cluster.json("submit", EXAMPLE)
    job = int(reply["results"][0]["job"])
    workers = cluster.running(job, 2)
    places = cluster.show(job)["attempts"][0]["places"]
    assert {place["node"] for place in places} == {"m1", "m2"}
    links = {os.readlink(f"/proc/{pid}/ns/{kind}") for pid in workers.values()
             for kind in ("net", "mnt")}
    assert len(links) == 4  # two of each
    cluster.while_it_lives(job, lambda: cluster.sql(
        "select 1 from checkpoint where job = %s and state = 'COMMITTED'", job))
    os.kill(workers["trainer", 1], signal.SIGKILL)
    shown = cluster.wait(job, limit=3 * LIMIT_S)
    assert shown["job"]["state"] == "SUCCEEDED", cluster.tell(job)
    assert len(shown["attempts"]) == 2
    resume = int(shown["attempts"][1]["resume_checkpoint"])
    step = cluster.sql("select step from checkpoint where id = %s", resume)[0][0]
    assert step % 50 == 0 and step > 0
    for rank in range(2):
        out = cluster.output(job, "--attempt", 2, "--rank", rank).decode()
        assert f"rank {rank} of 2 starts at step {step}\n" in out
    assert "step 300 loss" in cluster.output(job).decode()
    # Rank 0 wrote into the vault only; what was another node's stayed there.
    left = sorted(path.name for path in (cluster.dir / f"vault/job-{job}").glob("step-*"))
    assert left and not list((cluster.home / "node").iterdir())


def test_sdk_job_over_two_hosts(cluster):
    """The same with librondo: parts of both nodes make one checkpoint."""
    shown = cluster.run(rondo_cluster.spec(
        "two-hosts", [cluster.counter, "--steps", 300, "--step-us", 1000], workers=2,
        checkpoint={"every_steps": 100},
        success={"rule": "TARGET", "target_samples": 300 * 2 * 8}))
    job = int(shown["job"]["id"])
    assert {place["node"] for place in shown["attempts"][0]["places"]} == {"m1", "m2"}
    newest = max(shown["checkpoints"], key=lambda each: int(each["step"]))
    assert (newest["state"], {part["node"] for part in newest["parts"]}) == (
        "COMMITTED", {"m1", "m2"})
    until(lambda: cluster.sql("select count(*) from metric_points(%s, 'loss')", job) == [(600,)],
          cluster.log)


def test_a_cut_link_heals(cluster):
    """One host off the network for a moment, shorter than its lease: nobody notices."""
    job = cluster.submit(rondo_cluster.spec(
        "cut", [cluster.counter, "--steps", 3000, "--step-us", 2000], workers=2,
        success={"rule": "TARGET", "target_samples": 3000 * 2 * 8},
        checkpoint={"every_steps": 1000}))
    workers = cluster.running(job, 2)
    pid = workers["w", 1]
    subprocess.run(["nsenter", "-t", str(pid), "-n", "ip", "link", "set", "eth0", "down"],
                   check=True, timeout=LIMIT_S)
    time.sleep(3)
    subprocess.run(["nsenter", "-t", str(pid), "-n", "ip", "link", "set", "eth0", "up"],
                   check=True, timeout=LIMIT_S)
    shown = cluster.wait(job)
    assert shown["job"]["state"] == "SUCCEEDED" and len(shown["attempts"]) == 1, cluster.tell(job)
    until(lambda: cluster.sql("select count(*), count(distinct (rank, step)) from "
                              "metric_points(%s, 'loss')", job) == [(6000, 6000)], cluster.log)
