"""A program that counts, and what must be true of it whatever died meanwhile."""

import collections

import rondo_cluster
from rondo_cluster import spec, until

LEASE_MS = 8000


def three_agents():
    return rondo_cluster.running(agents=3, slots=2, flags=[
        f"--lease-ms={LEASE_MS}", "--heartbeat-ms=500"])


def counting(cluster, name, steps=1500, workers=3, **more):
    """A counter over two nodes; about 2 ms a step."""
    more.setdefault("restart", {"budget": 3, "backoff_ms": 20})
    more.setdefault("checkpoint", {"every_steps": 100})
    return spec(name, [cluster.counter, "--steps", steps, "--step-us", 2000], workers=workers,
                success={"rule": "TARGET", "target_samples": steps * workers * 8}, **more)


def reached(cluster, job, step):
    """Waits until rank 0 has reported the step and a checkpoint is committed."""
    cluster.while_it_lives(job, lambda: int(cluster.show(job)["job"].get("step", 0)) >= step and
                           cluster.sql("select 1 from checkpoint where job = %s and "
                                       "state = 'COMMITTED'", job))


def points_of(cluster, job):
    return cluster.sql("select rank, attempt, incarnation, step, effective "
                       "from metric_points(%s, 'loss')", job)


def check_points(cluster, job, steps=1500, workers=3):
    """Each step of each rank counts once, none was stored twice, none is missing inside an
    attempt."""
    wanted = {(rank, step): 1 for rank in range(workers) for step in range(1, steps + 1)}

    def effective():
        return collections.Counter((row[0], row[3]) for row in points_of(cluster, job) if row[4])

    until(lambda: len(effective()) >= len(wanted), lambda: f"{len(effective())} points", 30)
    assert effective() == wanted
    every = collections.Counter(row[:4] for row in points_of(cluster, job))
    assert set(every.values()) == {1}
    runs = collections.defaultdict(list)
    for rank, attempt, incarnation, step in every:
        runs[rank, attempt, incarnation].append(step)
    for key, seen in runs.items():
        assert len(seen) == max(seen) - min(seen) + 1, key
    assert cluster.sql("select coalesce(sum(points), 0) from metric_loss where job = %s",
                       job) == [(0,)]


def check_count(cluster, job, steps=1500, workers=3):
    """The counter's sum is that of an undisturbed run."""
    samples = steps * workers * 8
    out = cluster.output(job).decode()
    assert f"done at step {steps}, sample {samples}, sum {samples * (samples - 1) // 2}" in out


def check_resume(cluster, job, attempt):
    """The attempt began where a committed checkpoint of an earlier one said."""
    shown = cluster.show(job)
    resume = int(shown["attempts"][attempt - 1]["resume_checkpoint"])
    step, samples, state, wrote = cluster.sql(
        "select step, samples, state, attempt from checkpoint where id = %s", resume)[0]
    assert wrote < attempt and step > 0
    out = cluster.output(job, "--attempt", attempt).decode()
    assert f"resumed at step {step}, sample {samples}\n" in out


# --- one process killed
