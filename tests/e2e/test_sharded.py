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


def test_ranks_that_disagree_on_the_cursor_make_no_checkpoint(cluster):
    job = cluster.submit(program(cluster, "cursor", """
state["w"][:] = weights(10)
rondo.save(10, state, samples=80 + job.rank, sync=True)
save(20, sync=True)
"""))
    cluster.wait(job, "SUCCEEDED")
    assert rows(cluster, job)[20] in GOOD and rows(cluster, job)[10] == "TORN"
    reason = cluster.sql("select reason from checkpoint where job = %s and step = 10", job)[0][0]
    assert "at sample 80" in reason and "at sample 81" in reason and "cursor" in reason, reason


def test_a_step_that_is_saved_again_is_saved_already(cluster):
    job = cluster.submit(program(cluster, "again", """
for sync in (True, False):
    step = 10 if sync else 20
    save(step, sync=sync)
    for _ in range(20):
        how = rondo.save(step, state, samples=step * 8, sync=sync)
        assert how == "sealed", how
"""))
    cluster.wait(job, "SUCCEEDED")
    assert rows(cluster, job)[10] in GOOD and rows(cluster, job)[20] in GOOD


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


ELASTIC = """
import os, signal, time, numpy, rondo
job = rondo.join()
FLAGS = os.environ["FLAGS"]
sampler = rondo.Sampler(60, batch=4, seed=1)
cuts = rondo.placement.balanced_cuts(5, job.world)
begin, end = cuts[job.rank], cuts[job.rank + 1]
layout = {"w": rondo.Shard(0, size=5, rule="balanced")}
state = {"sampler": sampler, "w": numpy.zeros(end - begin)}
if rondo.load(state, layout):
    assert (state["w"] == numpy.arange(begin, end) + job.resume.step).all(), state
print("world", job.world, "from", job.resume.step, flush=True)
for step in range(job.resume.step + 1, 16):
    for index in sampler.share():
        print("trained", index, "at", step, flush=True)
    sampler.advance()
    state["w"][:] = numpy.arange(begin, end) + step
    rondo.save(step, state, layout)
    if step in (5, 10) and job.attempt == step // 5:
        while not os.path.exists(os.path.join(FLAGS, f"go{step}")):
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGKILL)
"""


def test_m55_a_job_goes_on_with_fewer_workers_and_with_more_again():
    """2 -> 1 -> 2 workers: what is kept is trained once each, and every bit of it is there."""
    with rondo_cluster.running(agents=2, slots=1) as cluster:
        flags = cluster.home / "flags"
        flags.mkdir()
        flags.chmod(0o755)
        script = cluster.home / "elastic.py"
        script.write_text(ELASTIC)
        script.chmod(0o644)
        job = spec("elastic", [PYTHON, script], env={"FLAGS": str(flags)}, workers=2,
                   restart={"budget": 4, "backoff_ms": 20},
                   checkpoint={"resizable": True, "keep": 20})
        job["roles"][0]["workers_min"] = 1
        job = cluster.submit(job)
        for step, verb in ((5, "cordon"), (10, "uncordon")):
            cluster.while_it_lives(job, lambda at=step: rows(cluster, job).get(at) in GOOD)
            cluster.ctl(verb, "n2")
            (flags / f"go{step}").touch()
        cluster.wait(job, "SUCCEEDED")
        trained, first = {}, {1: 1, 2: 6, 3: 11}
        for attempt, world in ((1, 2), (2, 1), (3, 2)):
            for rank in range(world):
                text = said(cluster, job, attempt, rank)
                want = f"world {world} from {first[attempt] - 1}"
                assert want in text, cluster.tell(job)
                for line in text.splitlines():
                    word, index, _, step = line.split()
                    if word == "trained" and int(step) >= first[attempt]:
                        trained.setdefault(int(step), []).append(int(index))
        kept = [index for step in range(1, 16) for index in trained[step]]
        assert sorted(kept) == list(range(60))
