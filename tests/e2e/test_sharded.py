"""Sharded checkpoints with real agents: what was handed over is committed whoever dies, and is
loaded from memory, else from disk, bit for bit."""

import json
import pathlib

import pytest

import rondo_cluster
from rondo_cluster import PYTHON, spec

GOOD = ("COMMITTED", "VERIFIED")

PRELUDE = '''
import os, signal, sys, time, numpy, rondo
job = rondo.join()
first = job.attempt == 1
FLAGS = os.environ["FLAGS"]

def wait_for(name):
    while not os.path.exists(os.path.join(FLAGS, name)):
        time.sleep(0.02)

def weights(step):
    return numpy.random.RandomState(step).randn(400, 1000)

def die():
    """Once all ranks are here: the end of one is soon the end of the others."""
    open(os.path.join(FLAGS, f"{job.id}-{job.rank}"), "w").close()
    for rank in range(job.world):
        wait_for(f"{job.id}-{rank}")
    os.kill(os.getpid(), signal.SIGKILL)

state = {"w": numpy.zeros((400, 1000)), "rank": rondo.PerRank(job.rank), "step": 0}
try:
    loaded = rondo.load(state)
except rondo.Damaged as problem:
    print("damaged:", problem, flush=True)
    raise
print(f"rank {job.rank} attempt {job.attempt} loaded {loaded}", flush=True)
if loaded:
    assert (state["w"] == weights(loaded.step)).all() and state["step"] == loaded.step
    assert state["rank"].value == job.rank

def save(step, **more):
    state["w"][:] = weights(step)
    state["step"] = step
    how = rondo.save(step, state, samples=step * 8, **more)
    state["w"][:] = -1  # training goes on at once
    print(f"saved {step} {how}", flush=True)
'''


@pytest.fixture(scope="module")
def cluster():
    with rondo_cluster.running(agents=2, slots=2) as it:
        (it.home / "flags").mkdir()
        (it.home / "flags").chmod(0o777)
        yield it


def program(cluster, name, text, **more):
    script = cluster.home / f"{name}.py"
    script.write_text(PRELUDE + text)
    script.chmod(0o644)
    more.setdefault("restart", {"budget": 2, "backoff_ms": 20})
    more.setdefault("workers", 2)
    return spec(name, [PYTHON, script], env={"FLAGS": str(cluster.home / "flags")}, **more)


def flag(cluster, name):
    path = cluster.home / "flags" / name
    path.touch()
    path.chmod(0o644)


def rows(cluster, job):
    """{step: state}"""
    return dict(cluster.sql("select step, state from checkpoint where job = %s order by id", job))


def said(cluster, job, attempt, rank=0):
    return cluster.output(job, "--attempt", attempt, "--rank", rank).decode()


def vault_of(cluster, job, step):
    found = [path for path in pathlib.Path(cluster.home).rglob("manifest.json")
             if f"job-{job}/step-{step}." in str(path)]
    assert len(found) == 1, found
    return found[0].parent


def test_what_was_handed_over_is_committed_though_every_rank_dies(cluster):
    job = cluster.submit(program(cluster, "handed", """
if first:
    save(10)
    die()
print("went on from", loaded.step)
"""))
    cluster.wait(job, "SUCCEEDED")
    assert rows(cluster, job)[10] in GOOD
    for rank in range(2):
        assert "saved 10 memory" in said(cluster, job, 1, rank)
        assert "went on from 10" in said(cluster, job, 2, rank)
    manifest = json.loads((vault_of(cluster, job, 10) / "manifest.json").read_text())
    assert manifest["format"] == "rondo-checkpoint-2"


def test_it_is_loaded_from_the_nodes_memory(cluster):
    job = cluster.submit(program(cluster, "memory", """
if first:
    save(10)
    wait_for("memory")
    die()
"""))
    cluster.while_it_lives(job, lambda: rows(cluster, job).get(10) in GOOD)
    flag(cluster, "memory")
    cluster.wait(job, "SUCCEEDED")
    assert any("bytes_memory=0" not in said(cluster, job, 2, rank) for rank in range(2))


def test_a_synchronous_save_is_the_same_checkpoint(cluster):
    job = cluster.submit(program(cluster, "sync", """
if first:
    save(10, sync=True)
    die()
"""))
    cluster.wait(job, "SUCCEEDED")
    assert "saved 10 file" in said(cluster, job, 1)
    assert rows(cluster, job)[10] in GOOD
    manifest = json.loads((vault_of(cluster, job, 10) / "manifest.json").read_text())
    assert manifest["format"] == "rondo-checkpoint-2"
    assert manifest["layout"] == "w-0/layout.json"


def test_k39_many_saves_reuse_two_slots(cluster):
    job = cluster.submit(program(cluster, "many", """
for step in range(10, 130, 10):
    if not loaded or step > loaded.step:
        save(step)
"""))
    cluster.wait(job, "SUCCEEDED")
    states = rows(cluster, job)
    assert states[120] in GOOD
    assert set(states) == set(range(10, 130, 10))
    assert "TORN" not in states.values()


def test_k17_damage_is_told_and_the_older_one_taken(cluster):
    job = cluster.submit(program(cluster, "damage", """
if first:
    save(10, sync=True)
    save(20, sync=True)
    wait_for("damaged")
    die()
"""))
    cluster.while_it_lives(job, lambda: rows(cluster, job).get(20) == "VERIFIED")
    for shard in vault_of(cluster, job, 20).rglob("*.safetensors"):
        data = bytearray(shard.read_bytes())
        data[-70000] ^= 1
        shard.write_bytes(data)
    flag(cluster, "damaged")
    cluster.wait(job, "SUCCEEDED")
    assert rows(cluster, job)[20] == "DAMAGED"
    assert "damaged: " in said(cluster, job, 2) + said(cluster, job, 2, 1)
    assert "step=10" in said(cluster, job, 3)
