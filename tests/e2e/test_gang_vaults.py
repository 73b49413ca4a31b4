"""A gang whose nodes keep their own vaults: each has its part of a checkpoint, all of them make
one; it is verified, fetched, gone on from and deleted on all of them."""

import os
import pathlib
import signal

import pytest

from agents_by_hand import events, files_of, open_again, two_agents
from rondo_cluster import PYTHON, spec, until

GOOD = ("COMMITTED", "VERIFIED")

PROGRAM = '''
import os, time, numpy, rondo
job = rondo.join()
FLAGS, HALF = os.environ["FLAGS"], 300

def rows(step):
    return numpy.random.RandomState(step * 100 + job.rank).randn(HALF, 500)

state = {"split": numpy.zeros((HALF, 500)), "same": numpy.zeros(1000),
         "rank": rondo.PerRank(job.rank), "step": 0}
layout = {"split": rondo.Shard(0), "same": rondo.Replicate()}
loaded = rondo.load(state, layout)
print(f"rank {job.rank} attempt {job.attempt} loaded {loaded}", flush=True)
last = loaded.step if loaded else 0
if loaded:
    assert state["split"].tobytes() == rows(last).tobytes(), "other bits"
    assert (state["same"] == last).all() and state["step"] == last
    assert state["rank"].value == job.rank
for step in range(last + 10, int(os.environ["STEPS"]) + 1, 10):
    state["split"][:] = rows(step)
    state["same"][:] = step
    state["step"] = step
    rondo.save(step, state, layout, samples=step * 8, sync=True)
    job.report(step, samples=step * 8)
    while step == int(os.environ["WAIT"]) and not os.path.exists(f"{FLAGS}/{job.id}"):
        time.sleep(0.02)
'''


@pytest.fixture(scope="module")
def cluster():
    with two_agents(PROGRAM, ["--lease-ms=9000"]) as it:
        yield it


def submit(cluster, name, steps, wait, keep=5, allow=True):
    return cluster.submit(spec(
        name, [PYTHON, cluster.home / "program.py"], workers=2,
        restart={"budget": 3, "backoff_ms": 20},
        env={"FLAGS": str(cluster.home / "flags"), "STEPS": str(steps), "WAIT": str(wait)},
        checkpoint={"keep": keep, "verify": False, "allow_node_vault": allow}))


def saved(cluster, job, step):
    return cluster.while_it_lives(job, lambda: cluster.sql(
        "select id, path from checkpoint where job = %s and step = %s and state = any(%s)",
        job, step, list(GOOD)))[0]


def go_on(cluster, job):
    (cluster.home / "flags" / str(job)).touch()


def parts_in(vault, path):
    return sorted(each.name for each in (pathlib.Path(vault) / path).iterdir() if each.is_dir())


def both(cluster):
    return [cluster.agents_by_hand.vault(name) for name in ("a", "b")]


def test_each_node_has_its_part_and_a_killed_gang_goes_on_bit_for_bit(cluster):
    job = submit(cluster, "parts", steps=30, wait=20)
    checkpoint, path = saved(cluster, job, 20)
    parts = [parts_in(vault, path) for vault in both(cluster)]
    assert sorted(parts) == [["w-0"], ["w-1"]]
    manifests = {(vault / path / "manifest.json").read_bytes() for vault in both(cluster)}
    assert len(manifests) == 1  # the very same on both
    copies = cluster.sql("select rank, node, durability, lost from shard_copy "
                         "where checkpoint = %s order by rank", checkpoint)
    assert [(rank, durability, lost) for rank, _, durability, lost in copies] == [
        (0, "NODE", False), (1, "NODE", False)]
    assert {node for _, node, _, _ in copies} == {"a", "b"}
    os.kill(cluster.running(job, 2)["w", 1], signal.SIGKILL)
    go_on(cluster, job)
    cluster.wait(job, "SUCCEEDED")
    for rank in range(2):
        assert b"step=20" in cluster.output(job, "--attempt", 2, "--rank", rank)
    assert saved(cluster, job, 30)
    cluster.ctl("checkpoint", "verify", checkpoint)
    assert cluster.sql("select state from checkpoint where id = %s", checkpoint) == [("VERIFIED",)]


def test_an_agent_that_is_killed_comes_back_with_its_part(cluster):
    with open_again(cluster) as agents:
        job = submit(cluster, "agent", steps=30, wait=20)
        checkpoint, path = saved(cluster, job, 20)
        before = {name: files_of(agents.vault(name), path) for name in ("a", "b")}
        agents.kill("b")
        agents.start("b")
        go_on(cluster, job)
        cluster.wait(job, "SUCCEEDED")
        for name, files in before.items():
            now = files_of(agents.vault(name), path)
            assert all(now[file] == data for file, data in files.items())
        assert saved(cluster, job, 30)
        cluster.ctl("checkpoint", "verify", checkpoint)


def test_a_damaged_part_is_named_with_its_node_and_the_older_one_is_taken(cluster):
    with open_again(cluster) as agents:
        job = submit(cluster, "damaged", steps=20, wait=20)
        saved(cluster, job, 10)
        checkpoint, path = saved(cluster, job, 20)
        node = cluster.sql("select node from shard_copy where checkpoint = %s and rank = 1",
                           checkpoint)[0][0]
        shard = next((agents.vault(node) / path / "w-1").rglob("*.safetensors"))
        with open(shard, "r+b") as file:
            file.seek(-8, os.SEEK_END)
            byte = file.read(1)[0]
            file.seek(-8, os.SEEK_END)
            file.write(bytes([byte ^ 4]))
        out = cluster.ctl("checkpoint", "verify", checkpoint, check=False)
        assert out.returncode == 1
        assert f"{shard.name}, block {shard.stat().st_size // 65536}: " in out.stdout, out.stdout
        os.kill(cluster.running(job, 2)["w", 0], signal.SIGKILL)
        go_on(cluster, job)
        cluster.wait(job, "SUCCEEDED")
        assert any(kind == "checkpoint.damaged" for kind, _ in events(cluster, job)), \
            events(cluster, job)
        assert "step=10" in cluster.output(job, "--attempt", 2, "--rank", 1).decode()


def test_retention_deletes_on_every_node(cluster):
    job = submit(cluster, "retention", steps=50, wait=0, keep=2)
    cluster.wait(job, "SUCCEEDED")
    until(lambda: [state for state, in cluster.sql(
        "select state from checkpoint where job = %s order by step", job)][:3] == ["DELETED"] * 3,
        lambda: cluster.tell(job))
    for vault in both(cluster):
        steps = sorted(each.name for each in (vault / f"job-{job}").iterdir())
        assert steps == ["step-40.1", "step-50.1"], steps


def test_without_being_allowed_it_does_not_even_start(cluster):
    job = submit(cluster, "refused", steps=10, wait=0, allow=False)
    until(lambda: "checkpoint.allow_node_vault" in
          cluster.show(job)["job"].get("reason", {}).get("text", ""), lambda: cluster.tell(job))
    assert not cluster.show(job).get("attempts")
    cluster.cancel(job, "--wait")
