"""rondoctl fsck: every difference between database, vaults and agents, made for real: named,
repaired, and gone afterwards."""

import json
import os
import pathlib
import shutil
import signal
import threading
import time

import pytest

import rondo_cluster
from rondo_cluster import PYTHON, spec, until

PRELUDE = """
import os, sys, time, rondo
job = rondo.join()
print(f"attempt {job.attempt} resumes {job.resume.checkpoint} at {job.resume.step}", flush=True)

def save(step, data=b"weights"):
    with job.save(step, samples=step * 8) as directory:
        with open(os.path.join(directory, "model"), "wb") as file:
            file.write(data)

def wait_for(name):
    while not os.path.exists(os.path.join(os.environ["FLAGS"], name)):
        time.sleep(0.02)
"""
LONG_AGO = 1_000_000_000


@pytest.fixture(scope="module")
def cluster():
    with rondo_cluster.running(agents=2, slots=4) as it:
        (it.home / "flags").mkdir()
        yield it


def program(cluster, name, text, **more):
    script = cluster.home / f"{name}.py"
    script.write_text(PRELUDE + text)
    script.chmod(0o644)
    more.setdefault("restart", {"budget": 2, "backoff_ms": 20})
    return spec(name, [PYTHON, script], env={"FLAGS": str(cluster.home / "flags")}, **more)


def flag(cluster, name):
    path = cluster.home / "flags" / name
    path.touch()
    path.chmod(0o644)


def saved(cluster, name, steps=(10, 20, 30), **more):
    """A job that has saved, and ended."""
    more.setdefault("checkpoint", {"keep": 10})
    return int(cluster.run(program(cluster, name, "".join(
        f"save({step})\n" for step in steps) + "job.finish()\n", **more))["job"]["id"])


def place(cluster, job, step, attempt=1):
    return cluster.dir / f"vault/job-{job}/step-{step}.{attempt}"


def row(cluster, job, step, attempt=1):
    """(id, state)"""
    return cluster.sql("select id, state from checkpoint where job = %s and step = %s and "
                       "attempt = %s", job, step, attempt)[0]


def fsck(cluster, *words, exit=0):
    done = cluster.ctl("fsck", *words, "-o", "json", check=False)
    assert done.returncode == exit, (done.stdout, done.stderr, cluster.log(10))
    return json.loads(done.stdout)


def told(report):
    return [(each["kind"], each.get("path", ""), each["outcome"])
            for each in report.get("differences", [])]


def quiet(cluster, *words):
    """Until agents have done what they were asked to."""
    until(lambda: cluster.ctl("fsck", *words, check=False).returncode == 0,
          lambda: cluster.ctl("fsck", *words, check=False).stdout)


def repaired(cluster, kind, path, job, *words, more=()):
    """One difference, which is named, repaired, and then gone; what else may be found: more."""
    expected = sorted([(kind, path), *more])
    found = fsck(cluster, "--job", job, *words, exit=1)
    assert sorted(each[:2] for each in told(found)) == expected, found
    assert {each[2] for each in told(found)} == {"FOUND"}
    again = fsck(cluster, "--job", job, *words, exit=1)
    assert told(again) == told(found)  # nothing was changed
    done = fsck(cluster, "--job", job, "--repair", *words)
    assert sorted(each[:2] for each in told(done)) == expected, done
    assert {each[2] for each in told(done)} == {"REPAIRED"}, done
    fsck(cluster, "--job", job, *words)
    return found["differences"]


def test_a_cluster_at_rest_is_clean(cluster):
    job = saved(cluster, "clean", checkpoint={"keep": 1})
    until(lambda: row(cluster, job, 10)[1] == "DELETED", lambda: row(cluster, job, 10))
    quiet(cluster)
    done = cluster.ctl("fsck")
    assert "directories, 2 nodes: clean" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 100
    assert fsck(cluster, "--deep")["summary"]["bytes"] == "7"


def test_a_directory_that_is_gone(cluster):
    job = saved(cluster, "gone")
    shutil.rmtree(place(cluster, job, 30))
    table = cluster.ctl("fsck", "--job", job, check=False)
    assert table.returncode == 1
    assert max(map(len, table.stdout.splitlines())) <= 100
    assert f"missing  #{row(cluster, job, 30)[0]} job-{job}/step-30.1" in table.stdout
    assert table.stdout.splitlines()[-1].endswith("1 differences; nothing was changed (--repair)")
    repaired(cluster, "MISSING", f"job-{job}/step-30.1", job)
    assert row(cluster, job, 30)[1] == "DAMAGED"
    events = cluster.json("events", job)["events"]
    assert any(each["kind"] == "checkpoint.fsck" and "MISSING" in each["text"] for each in events)
