"""Checkpoints: what is a candidate, what a resume names, what is refused."""

import pathlib
import time
import uuid

import pytest

import rondo_cluster
from rondo_cluster import PYTHON, spec, until

grpc = pytest.importorskip("grpc")

PRELUDE = """
import os, sys, time, rondo
job = rondo.join()
first = job.attempt == 1
print(f"rank {job.rank} attempt {job.attempt} resumes {job.resume.checkpoint} at "
      f"{job.resume.step} {job.resume.samples}", flush=True)

def save(step, samples=None, data=b"weights"):
    with job.save(step, samples=step * 8 if samples is None else samples) as directory:
        with open(os.path.join(directory, "model"), "wb") as file:
            file.write(data)

def wait_for(name):
    while not os.path.exists(os.path.join(os.environ["FLAGS"], name)):
        time.sleep(0.02)
"""


@pytest.fixture(scope="module")
def cluster():
    with rondo_cluster.running(agents=2, slots=2) as it:
        (it.home / "flags").mkdir()
        (it.home / "flags").chmod(0o777)
        yield it


def program(cluster, name, text, **more):
    """A job of a Python program over the SDK; its flags are files named by flag()."""
    script = cluster.home / f"{name}.py"
    script.write_text(PRELUDE + text)
    script.chmod(0o644)
    more.setdefault("restart", {"budget": 2, "backoff_ms": 20})
    return spec(name, [PYTHON, script], env={"FLAGS": str(cluster.home / "flags")}, **more)


def flag(cluster, name):
    path = cluster.home / "flags" / name
    path.touch()
    path.chmod(0o644)
    path.parent.chmod(0o755)


def rows(cluster, job):
    """{(attempt, step): (state, samples)}"""
    return {(row[0], row[1]): row[2:] for row in cluster.sql(
        "select attempt, step, state, samples from checkpoint where job = %s", job)}


def committed(cluster, job, *steps):
    cluster.while_it_lives(job, lambda: set(steps) <= {
        key[1] for key, row in rows(cluster, job).items() if row[0] == "COMMITTED"})


def resumed(cluster, job, attempt, ranks):
    """What each rank of the attempt was told: (step, samples)."""
    told = set()
    for rank in range(ranks):
        line = cluster.output(job, "--attempt", attempt, "--rank", rank).decode().split("\n")[0]
        told.add(tuple(map(int, line.split(" at ")[1].split())))
    assert len(told) == 1, told  # M54: all ranks the same
    return told.pop()


def test_m47_torn_checkpoint_is_no_candidate(cluster):
    """Rank 1 dies inside the save of step 20; its files are there, the newest is step 10."""
    job = cluster.submit(program(cluster, "m47", """
if first:
    save(10)
    wait_for("m47")
    directory = job.save_dir(20)
    open(os.path.join(directory, "model"), "wb").write(b"half")
    if job.rank == 1:  # its end is soon the other's, too
        wait_for(f"m47-{job.id}")
        os.kill(os.getpid(), 9)
    job.commit(20, 160)
    open(os.path.join(os.environ["FLAGS"], f"m47-{job.id}"), "w").close()
    time.sleep(60)
job.finish()
""", workers=2))
    committed(cluster, job, 10)
    flag(cluster, "m47")
    shown = cluster.wait(job)
    assert shown["job"]["state"] == "SUCCEEDED", cluster.tell(job)
    assert rows(cluster, job)[1, 20][0] == "TORN"
    assert resumed(cluster, job, 2, 2) == (10, 80)


def test_m53_a_failed_save_does_not_end_training(cluster):
    """One rank of two gives its save up: that checkpoint is torn, work goes on."""
    job = cluster.submit(program(cluster, "m53", """
if job.rank == 1:
    job.save_dir(20)
    job.abort_save(20)
else:
    save(20)
save(30)
wait_for("m53")
job.finish()
""", workers=2))
    committed(cluster, job, 30)
    flag(cluster, "m53")
    shown = cluster.wait(job)
    assert shown["job"]["state"] == "SUCCEEDED" and len(shown["attempts"]) == 1, cluster.tell(job)
    assert rows(cluster, job)[1, 20][0] == "TORN"
    torn = [each for each in shown["checkpoints"] if int(each["step"]) == 20][0]
    assert torn["reason"]


def test_m48_saving_a_step_again(cluster):
    """In the same attempt it is sealed already; in the next one it is another checkpoint."""
    job = cluster.submit(program(cluster, "m48", """
save(10)
if first:
    wait_for("m48")
    save(10, data=b"other bytes")
    wait_for("m48-again")
    sys.exit(1)
job.finish()
"""))
    committed(cluster, job, 10)
    flag(cluster, "m48")
    flag(cluster, "m48-again")
    shown = cluster.wait(job)
    assert shown["job"]["state"] == "SUCCEEDED", cluster.tell(job)
    assert {key: row[0] for key, row in rows(cluster, job).items()} == {
        (1, 10): "COMMITTED", (2, 10): "COMMITTED"}
    assert resumed(cluster, job, 2, 1) == (10, 80)


@pytest.mark.parametrize("step, samples", [
    (2**31 + 5, 2**31 + 7), (2**53 + 1, 2**53 + 3), (2**62, 2**63 - 1)])
def test_m56_large_numbers_are_exact(cluster, step, samples):
    job = cluster.submit(program(cluster, f"m56-{step}", f"""
if first:
    job.report({step}, samples={samples}, loss=0.5, count={samples})
    save({step}, samples={samples})
    wait_for("m56-{step}")
    sys.exit(1)
job.finish()
"""))
    committed(cluster, job, step)
    flag(cluster, f"m56-{step}")
    shown = cluster.wait(job)
    assert shown["job"]["state"] == "SUCCEEDED", cluster.tell(job)
    assert resumed(cluster, job, 2, 1) == (step, samples)
    found = cluster.json("checkpoints", job)["checkpoints"][0]
    assert (found["step"], found["samples"]) == (str(step), str(samples))
    series = cluster.json("metrics", job, "count", "--attempt", 1)["series"][0]
    assert (series["steps"], series["integers"]) == ([str(step)], [str(samples)])


def damage(cluster, job, step):
    """One bit of each file of the committed checkpoint."""
    for model in cluster.dir.glob(f"vault/job-{job}/step-{step}.*/*/model"):
        data = bytearray(model.read_bytes())
        data[0] ^= 1
        mode = model.stat().st_mode
        model.chmod(0o600)
        model.write_bytes(data)
        model.chmod(mode)


DAMAGED = """
if first:
    save(10)
    save(20)
    wait_for("%s")
    sys.exit(1)
job.finish()
"""


def test_m59_damaged_checkpoint_is_refused_and_the_one_before_is_taken(cluster):
    job = cluster.submit(program(cluster, "m59", DAMAGED % "m59"))
    committed(cluster, job, 10, 20)
    damage(cluster, job, 20)
    flag(cluster, "m59")
    shown = cluster.wait(job)
    assert shown["job"]["state"] == "SUCCEEDED", cluster.tell(job)
    assert rows(cluster, job)[1, 20][0] == "DAMAGED"
    assert [a["end"]["code"] for a in shown["attempts"]] == [
        "USER_ERROR", "CHECKPOINT_ERROR", "ALL_ZERO"]
    assert resumed(cluster, job, 3, 1) == (10, 80)
    assert shown["job"]["restarts_used"] == 1


@pytest.mark.parametrize("start_over", [False, True])
def test_m49_start_over_only_when_asked(cluster, start_over):
    """Every committed checkpoint is damaged: step 0 is refused unless the job file allows it."""
    name = f"m49-{start_over}".lower()
    job = cluster.submit(program(cluster, name, DAMAGED % name,
                                 checkpoint={"start_over": start_over}))
    committed(cluster, job, 10, 20)
    damage(cluster, job, 20)
    damage(cluster, job, 10)
    flag(cluster, name)
    shown = cluster.wait(job)
    if start_over:
        assert shown["job"]["state"] == "SUCCEEDED", cluster.tell(job)
        assert resumed(cluster, job, len(shown["attempts"]), 1)[0] <= 0
    else:
        assert shown["job"]["state"] == "FAILED", cluster.tell(job)
        assert shown["job"]["reason"]["code"] == "CHECKPOINT_ERROR"
        assert "start_over" in shown["job"]["reason"]["text"]


def test_watch_finds_checkpoints_of_a_program_without_the_sdk(cluster):
    """A directory without its marker does not count."""
    job = cluster.submit(spec("watch", """
cd $RONDO_ATTEMPT_DIR || exit 9
if [ $RONDO_ATTEMPT = 1 ]; then
    mkdir step-5 step-7
    echo five > step-5/model; echo seven > step-7/model
    echo > step-5/DONE
    while [ ! -e $FLAGS/watch ]; do sleep 0.05; done
    exit 1
fi
echo $RONDO_RESUME_STEP $(cat $RONDO_RESUME_DIR/w-0/model)
""", env={"FLAGS": str(cluster.home / "flags")}, restart={"budget": 1, "backoff_ms": 20},
        workers=2, checkpoint={"watch": {"pattern": "step-{step}", "marker": "DONE"}}))
    committed(cluster, job, 5)
    flag(cluster, "watch")
    shown = cluster.wait(job)
    assert shown["job"]["state"] == "SUCCEEDED", cluster.tell(job)
    assert cluster.output(job) == b"5 five\n"
    assert list(rows(cluster, job)) == [(1, 5)]


def test_retention_keeps_the_newest(cluster):
    job = cluster.submit(program(cluster, "keep", """
for step in range(1, 8):
    save(step)
    wait_for(f"keep-{step}")
job.finish()
""", checkpoint={"keep": 2}))
    for step in range(1, 8):
        committed(cluster, job, step)
        flag(cluster, f"keep-{step}")
    assert cluster.wait(job)["job"]["state"] == "SUCCEEDED"
    until(lambda: {key[1]: row[0] for key, row in rows(cluster, job).items()} == {
        **{step: "DELETED" for step in range(1, 6)}, 6: "COMMITTED", 7: "COMMITTED"},
        lambda: rows(cluster, job))
    left = {path.name for path in (cluster.dir / f"vault/job-{job}").glob("step-*")}
    assert left == {"step-6.1", "step-7.1"}


def test_success_needs_the_target(cluster):
    """Exit code 0 without the cursor and a committed checkpoint is a failure."""
    shown = cluster.run(program(cluster, "target", "save(10)\njob.finish()\n",
                                success={"rule": "TARGET", "target_samples": 81}, checkpoint={},
                                restart={"budget": 0}), state="FAILED")
    assert shown["job"]["reason"]["code"] == "TARGET_MISSED"
    assert "80 of 81" in shown["job"]["reason"]["text"]
    cluster.run(program(cluster, "target-met", "save(10)\njob.finish()\n",
                        success={"rule": "TARGET", "target_samples": 80}, checkpoint={}))


STEPS = """
step = max(job.resume.step, 0)
while step < 100000:
    step += 1
    time.sleep(0.004 + 0.0002 * job.rank)
    job.report(step, samples=step * 8, loss=1.0)
    stop = job.should_stop(step)
    if job.should_save(step) or stop:
        print("saves", step, flush=True)
        save(step)
    if stop:
        print("stops", step, flush=True)
        break
    if not first and job.resume.step + 3 <= step:
        job.finish()
        break
"""


def test_every_rank_saves_and_stops_at_the_same_step(cluster):
    """Ranks that drift apart; saves by the clock, a stop by hold, then a resume from there."""
    job = cluster.submit(program(cluster, "same-step", STEPS, workers=3,
                                 checkpoint={"every_s": 1, "keep": 100}))
    cluster.while_it_lives(job, lambda: sum(
        row[0] == "COMMITTED" for row in rows(cluster, job).values()) >= 2)
    cluster.ctl("hold", job)
    cluster.wait(job, "HELD")
    said = [[line for line in cluster.output(job, "--rank", rank).decode().splitlines()
             if line.startswith("s")] for rank in range(3)]
    assert said[0] == said[1] == said[2] and said[0][-1].startswith("stops")
    stopped = int(said[0][-1].split()[1])
    assert rows(cluster, job)[1, stopped][0] == "COMMITTED"
    cluster.ctl("release", job)
    shown = cluster.wait(job)
    assert shown["job"]["state"] == "SUCCEEDED", cluster.tell(job)
    assert resumed(cluster, job, 2, 3) == (stopped, stopped * 8)


@pytest.mark.parametrize("resizable", [False, True])
def test_a_change_of_size_needs_a_program_that_can(cluster, resizable):
    """Four ranks saved, then only two slots are in service."""
    messages = rondo_cluster.stubs().control
    name = f"resize-{resizable}".lower()
    job = program(cluster, name, """
save(10)
if first:
    wait_for("%s")
    os.kill(os.getpid(), 9)
job.finish()
""" % name, workers=4, checkpoint={"resizable": resizable})
    job["roles"][0]["workers_min"] = 2
    job = cluster.submit(job)
    committed(cluster, job, 10)

    def set_node(admin):
        with cluster.control() as control:
            control.SetNode(messages.SetNodeRequest(
                request_id=uuid.uuid4().hex, node="n2",
                admin=getattr(rondo_cluster.stubs().node.Node, admin)), timeout=30)

    set_node("CORDONED")
    try:
        flag(cluster, name)
        if resizable:
            shown = cluster.wait(job)
            assert shown["job"]["state"] == "SUCCEEDED", cluster.tell(job)
            assert len(shown["attempts"][1]["places"]) == 2
            assert resumed(cluster, job, 2, 2) == (10, 80)
            return
        cluster.wait(job, "QUEUED")
        time.sleep(1)
        shown = cluster.show(job)
        assert shown["job"]["state"] == "QUEUED" and len(shown["attempts"]) == 1
    finally:
        set_node("IN_SERVICE")
    shown = cluster.wait(job)
    assert shown["job"]["state"] == "SUCCEEDED", cluster.tell(job)
    assert len(shown["attempts"][1]["places"]) == 4


def test_files_of_a_checkpoint_are_not_for_everybody(cluster):
    """Written by the workers' user; the manifest and the directory above are ours."""
    shown = cluster.run(program(cluster, "modes", "save(1)\njob.finish()\n"))
    job = shown["job"]["id"]
    top = cluster.dir / f"vault/job-{job}/step-1.1"
    for path in (top, top / "manifest.json", pathlib.Path(top).parent):
        assert path.stat().st_uid == pathlib.Path(cluster.dir).stat().st_uid
        assert path.stat().st_mode & 0o022 == 0, path


@pytest.mark.parametrize("away", ["gone", "empty"])
def test_m49_a_vault_that_is_away_for_a_while_damages_nothing(cluster, away):
    """Unmounted, or its server restarts: what cannot be seen has not been found to be wrong."""
    job = cluster.submit(program(cluster, f"away-{away}", f"""
if first:
    save(10)
    save(20)
    wait_for("away-{away}")
    os.kill(os.getpid(), 9)
job.finish()
"""))
    committed(cluster, job, 20)
    vault, aside = cluster.dir / "vault", cluster.dir / "vault.away"
    vault.rename(aside)
    if away == "empty":
        vault.mkdir()
    try:
        flag(cluster, f"away-{away}")
        until(lambda: any(attempt.get("end", {}).get("code") == "SOURCE_LOST"
                          for attempt in cluster.show(job)["attempts"]),
              lambda: cluster.tell(job))
    finally:
        if away == "empty":
            vault.rmdir()
        aside.rename(vault)
    assert cluster.wait(job)["job"]["state"] == "SUCCEEDED", cluster.tell(job)
    assert {state for state, *_ in rows(cluster, job).values()} <= {"COMMITTED", "VERIFIED"}
    assert resumed(cluster, job, len(cluster.show(job)["attempts"]), 1) == (20, 160)
