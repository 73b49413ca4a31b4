"""rondoctl fsck: every difference between database, vaults and agents, made for real: named,
repaired, and gone afterwards."""

import json
import os
import shutil
import signal
import subprocess
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
    assert "1 directory, 2 nodes: clean" in done.stdout
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


def copied(source, target, change=None):
    """A directory like a checkpoint's; change(text) makes another manifest."""
    shutil.copytree(source, target)
    manifest = target / "manifest.json"
    if change:
        manifest.write_text(change(manifest.read_text()))
    return target


def aside(cluster, path):
    return cluster.dir / "vault/lost+found" / path.replace("/", ".")


def test_a_manifest_that_is_gone_is_written_again(cluster):
    job = saved(cluster, "sealed")
    manifest = place(cluster, job, 20) / "manifest.json"
    before = manifest.read_bytes()
    manifest.unlink()
    repaired(cluster, "MANIFEST_MISSING", f"job-{job}/step-20.1", job)
    assert manifest.read_bytes() == before
    assert row(cluster, job, 20)[1] == "COMMITTED"


@pytest.mark.parametrize("kind", ["MANIFEST_BAD", "MANIFEST_DIFFERS", "PART_MISSING",
                                  "PART_DAMAGED"])
def test_bytes_that_are_not_what_was_committed(cluster, kind):
    job = saved(cluster, kind.lower().replace("_", "-"))
    directory = place(cluster, job, 20)
    if kind == "MANIFEST_BAD":
        (directory / "manifest.json").write_text("{")
    elif kind == "MANIFEST_DIFFERS":
        text = (directory / "manifest.json").read_text()
        (directory / "manifest.json").write_text(text.replace('"samples": 160', '"samples": 161'))
    elif kind == "PART_MISSING":
        (directory / "w-0/model").unlink()
    else:
        os.truncate(directory / "w-0/model", 3)
    found = repaired(cluster, kind, f"job-{job}/step-20.1", job)
    if kind.startswith("PART"):
        assert "w-0/model" in found[0]["text"] and found[0]["role"] == "w"
    assert row(cluster, job, 20)[1] == "DAMAGED"
    assert directory.exists()  # marked, never removed


def test_a_flipped_bit_is_found_by_reading_and_a_good_one_is_good_again(cluster):
    job = saved(cluster, "deep")
    model = place(cluster, job, 20) / "w-0/model"
    good = model.read_bytes()
    model.write_bytes(b"Weights")
    fsck(cluster, "--job", job)  # its size is right
    repaired(cluster, "PART_DAMAGED", f"job-{job}/step-20.1", job, "--deep")
    assert row(cluster, job, 20)[1] == "DAMAGED"
    model.write_bytes(good)
    repaired(cluster, "WHOLE_AGAIN", f"job-{job}/step-20.1", job, "--deep")
    until(lambda: row(cluster, job, 20)[1] == "VERIFIED", lambda: row(cluster, job, 20))


def test_a_vault_that_is_away_damages_nothing(cluster):
    job = saved(cluster, "mounted")
    vault, away = cluster.dir / "vault", cluster.dir / "vault.away"
    vault.rename(away)
    vault.mkdir(mode=0o755)
    try:
        report = fsck(cluster, "--repair", exit=1)
        assert [(each[0], each[2]) for each in told(report)] == [("VAULT_EMPTY", "LEFT")], report
        assert row(cluster, job, 20)[1] == "COMMITTED"
    finally:
        vault.rmdir()
        away.rename(vault)
    fsck(cluster, "--job", job)


def test_leftovers_are_removed_and_nothing_else(cluster):
    job = saved(cluster, "left", checkpoint={"keep": 1})
    until(lambda: row(cluster, job, 10)[1] == row(cluster, job, 20)[1] == "DELETED",
          lambda: row(cluster, job, 10))
    quiet(cluster)
    kept = place(cluster, job, 30)
    copied(kept, place(cluster, job, 10))
    (place(cluster, job, 20)).mkdir()
    (place(cluster, job, 20) / "deleted").touch()
    (place(cluster, job, 40) / "w-0").mkdir(parents=True)
    (place(cluster, job, 40) / "w-0/model").write_text("half")
    making = cluster.dir / f"vault/job-{job}/on-3.making-77"
    making.mkdir()
    os.utime(making, (LONG_AGO, LONG_AGO))
    slots = cluster.slots_in_memory()[0]
    slots.mkdir(mode=0o700, exist_ok=True)
    (slots / "job-99999/1.1/w-0").mkdir(parents=True)
    expected = [("DELETED_LEFT", f"job-{job}/step-10.1"),
                ("TOMBSTONE_LEFT", f"job-{job}/step-20.1"),
                ("STAGING_LEFT", f"job-{job}/step-40.1"),
                ("MAKING_LEFT", f"job-{job}/on-3.making-77"), ("SLOT_LEFT", "job-99999/1.1")]
    assert sorted(each[:2] for each in told(fsck(cluster, exit=1))) == sorted(expected)
    assert {each[2] for each in told(fsck(cluster, "--repair"))} == {"REPAIRED"}
    fsck(cluster)
    assert [each.name for each in kept.parent.iterdir()] == ["step-30.1"]
    assert not (slots / "job-99999/1.1").exists()
    assert row(cluster, job, 30)[1] == "COMMITTED"


def test_a_torn_save_whose_files_came_back(cluster):
    job = cluster.submit(program(cluster, "torn", """
save(10)
if job.rank == 1:
    job.save_dir(20)
    job.abort_save(20)
else:
    save(20)
wait_for("torn")
job.finish()
""", workers=2))
    cluster.while_it_lives(job, lambda: ("TORN",) in cluster.sql(
        "select state from checkpoint where job = %s and step = 20", job))
    fsck(cluster, "--job", job)  # it lives: a worker may write there
    flag(cluster, "torn")
    assert cluster.wait(job)["job"]["state"] == "SUCCEEDED"
    until(lambda: not place(cluster, job, 20).exists(), "the torn one is deleted")
    (place(cluster, job, 20) / "w-0").mkdir(parents=True)
    repaired(cluster, "TORN_LEFT", f"job-{job}/step-20.1", job)
    assert not place(cluster, job, 20).exists()


def test_checkpoints_of_nobody_are_set_aside(cluster):
    job = saved(cluster, "aside")
    source = place(cluster, job, 30)
    vault = cluster.dir / "vault"
    copied(source, vault / f"job-{job}/step-31.1")  # its manifest says step 30
    copied(source, vault / "job-99999/step-30.1",
           lambda text: text.replace(f'"job": {job}', '"job": 99999'))
    copied(source, vault / f"job-{job}/step-32.1", lambda text: text[:100])
    found = fsck(cluster, exit=1)
    assert sorted(each[:2] for each in told(found)) == [
        ("BAD_STRAY", f"job-{job}/step-31.1"), ("BAD_STRAY", f"job-{job}/step-32.1"),
        ("UNKNOWN_JOB", "job-99999/step-30.1")]
    fsck(cluster, "--repair")
    clean = fsck(cluster)
    assert clean["summary"]["set_aside"] >= 2
    for path in (f"job-{job}/step-31.1", f"job-{job}/step-32.1", "job-99999/step-30.1"):
        assert aside(cluster, path).is_dir() and not (vault / path).exists()
    offline = cluster.ctl("fsck", "--vault", vault, "--job", job)
    assert offline.stdout.strip().endswith(": clean"), offline.stdout


# --- the database

def test_rows_that_somebody_deleted(cluster):
    job = saved(cluster, "rows")
    number, _ = row(cluster, job, 20)
    cluster.sql("delete from checkpoint where id = %s returning id", number)
    repaired(cluster, "ROW_LOST", f"job-{job}/step-20.1", job)
    assert row(cluster, job, 20) == (number, "COMMITTED")
    cluster.sql("update checkpoint set state = 'TORN' where id = %s returning id", number)
    repaired(cluster, "ROW_STALE", f"job-{job}/step-20.1", job)
    assert row(cluster, job, 20) == (number, "COMMITTED")
    cluster.sql("delete from shard_copy where checkpoint = %s returning rank", number)
    repaired(cluster, "ROW_STALE", f"job-{job}/step-20.1", job)
    assert cluster.sql("select count(*) from shard_copy where checkpoint = %s", number) == [(1,)]


def edited(cluster, number, change):
    """The stored row, changed while no daemon looks."""
    pytest.importorskip("grpc")
    checkpoint = rondo_cluster.stubs().control.rondo_dot_v1_dot_checkpoint__pb2.Checkpoint
    cluster.kill_daemon()
    stored = checkpoint.FromString(bytes(cluster.sql(
        "select packed from checkpoint where id = %s", number)[0][0]))
    change(stored)
    state = checkpoint.State.Name(stored.state)
    cluster.sql("update checkpoint set packed = %s, state = %s where id = %s returning id",
                stored.SerializeToString(), state, number)
    cluster.start()


def test_a_forgotten_checkpoint_is_registered_again_and_gone_on_from(cluster):
    """A database of yesterday: the row is gone, the bytes are there."""
    job = cluster.submit(program(cluster, "again", """
if job.resume.step < 20:
    save(10)
    save(20)
    step = 21
    while not job.should_stop(step):
        time.sleep(0.02)
        step += 1
    sys.exit(0)
job.finish()
"""))
    cluster.while_it_lives(job, lambda: cluster.sql(
        "select 1 from checkpoint where job = %s and step = 20 and state = 'COMMITTED'", job))
    cluster.ctl("hold", job)
    cluster.wait(job, "HELD")
    number, _ = row(cluster, job, 20)
    cluster.kill_daemon()
    cluster.sql("delete from checkpoint where id = %s returning id", number)
    cluster.start()
    repaired(cluster, "UNREGISTERED", f"job-{job}/step-20.1", job,
             more=[("LAST_UNKNOWN", "")])
    assert row(cluster, job, 20) == (number, "COMMITTED")
    cluster.ctl("release", job)
    assert cluster.wait(job)["job"]["state"] == "SUCCEEDED", cluster.tell(job)
    last = cluster.show(job)["attempts"][-1]["number"]
    assert b"at 20" in cluster.output(job, "--attempt", last)


def test_rows_that_refer_to_nothing(cluster):
    job = saved(cluster, "refer")

    def change(stored):
        stored.parent = 999999

    edited(cluster, row(cluster, job, 20)[0], change)
    assert [each[:2] for each in told(fsck(cluster, exit=1))] == [
        ("PARENT_UNKNOWN", f"job-{job}/step-20.1")]
    fsck(cluster, "--repair")
    quiet(cluster)

    def staged(stored):
        stored.state = 1
        stored.parts_expected = 2

    number = row(cluster, job, 10)[0]
    edited(cluster, number, staged)
    repaired(cluster, "STAGED_OVER", f"job-{job}/step-10.1", job)
    assert row(cluster, job, 10)[1] == "TORN"

    def pinned(stored):
        stored.state, stored.pinned = 6, True

    until(lambda: not place(cluster, job, 10).exists(), "the torn one is deleted")
    edited(cluster, number, pinned)
    repaired(cluster, "PIN_WITHOUT_BYTES", f"job-{job}/step-10.1", job)


# --- jobs that live

def test_an_agent_that_was_killed_in_the_middle_of_a_save(cluster):
    """What the save left is nobody's once the job has ended, and not before."""
    job = cluster.submit(program(cluster, "killed", """
save(10)
directory = job.save_dir(20)
open(os.path.join(directory, "model"), "wb").write(b"half")
print("half", flush=True)
time.sleep(600)
"""))
    cluster.said(job, "half")
    node = cluster.show(job)["workers"][0]["node"]
    pid = cluster.agent_pid(node)
    os.kill(pid, signal.SIGKILL)
    until(lambda: cluster.agent_pid(node) not in (None, pid), "another agent")
    until(lambda: cluster.json("status").get("nodes_healthy", 0) == 2, "both nodes are healthy")
    fsck(cluster, "--job", job)
    assert place(cluster, job, 20).exists()
    cluster.cancel(job, "--now")
    until(lambda: [each[:2] for each in told(json.loads(
        cluster.ctl("fsck", "--job", job, "-o", "json", check=False).stdout))] ==
        [("STAGING_LEFT", f"job-{job}/step-20.1")], "the attempt is over")
    until(lambda: cluster.ctl("fsck", "--job", job, "--repair", check=False).returncode == 0,
          "its worker is forgotten")
    assert not place(cluster, job, 20).exists() and place(cluster, job, 10).exists()
    fsck(cluster, "--job", job)


def test_a_job_that_saves_all_the_time_differs_in_nothing(cluster):
    job = cluster.submit(program(cluster, "busy", """
step = 0
while not os.path.exists(os.path.join(os.environ["FLAGS"], "busy")):
    step += 1
    save(step)
job.finish()
""", workers=2, checkpoint={"keep": 2}))
    cluster.while_it_lives(job, lambda: len(cluster.sql(
        "select 1 from checkpoint where job = %s and state = 'DELETED'", job)) >= 2)
    runs = changing = 0
    end = time.monotonic() + 15
    while time.monotonic() < end:
        report = fsck(cluster, "--repair")
        runs += 1
        changing += report["summary"]["changing"]
    flag(cluster, "busy")
    assert cluster.wait(job)["job"]["state"] == "SUCCEEDED", cluster.tell(job)
    assert len(cluster.show(job)["attempts"]) == 1
    quiet(cluster, "--job", job)
    assert runs >= 3


# --- the rest

def test_callers_who_leave_and_callers_at_once(cluster):
    """A run ends with its caller; one that meets another is refused, and harms nobody."""
    job = saved(cluster, "leave")
    environment = {"PATH": "/usr/bin:/bin", "RONDO_CONTEXT": str(cluster.dir / "ctl")}
    command = [rondo_cluster.BIN / "rondoctl", "fsck", "--deep"]
    for pause in (0.0, 0.01, 0.02, 0.03, 0.05, 0.08):
        process = subprocess.Popen(command, env=environment, cwd=cluster.home,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(pause)
        process.kill()
        process.wait(rondo_cluster.LIMIT_S)
    quiet(cluster, "--job", job)
    many = [subprocess.Popen(command, env=environment, cwd=cluster.home, text=True,
                             stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
            for _ in range(4)]
    said = [(process.communicate(timeout=rondo_cluster.LIMIT_S)[1], process.returncode)
            for process in many]
    assert all(code in (0, 4) for _, code in said), said
    assert any(code == 0 for _, code in said), said
    assert all("another fsck is under way" in text for text, code in said if code == 4), said
    quiet(cluster, "--job", job)


def test_usage_and_refusals(cluster):
    assert cluster.ctl("fsck", "--job", "1", "--project", "a", check=False).returncode == 2
    assert cluster.ctl("fsck", "--vault", "/nowhere", check=False).returncode == 4
    assert cluster.ctl("fsck", "--vault", "/tmp", "--gone", "a", check=False).returncode == 2
    shown = cluster.ctl("fsck", "--help").stdout
    assert "--repair" in shown and "rondoctl fsck --deep" in shown
    job = saved(cluster, "scope")
    shutil.rmtree(place(cluster, job, 20))
    fsck(cluster, "--project", "another")
    assert [each[:2] for each in told(fsck(cluster, "--project", "default", exit=1))] == [
        ("MISSING", f"job-{job}/step-20.1")]
    fsck(cluster, "--project", "default", "--repair")


def test_a_directory_alone(cluster):
    """Without a daemon: what the directory itself tells."""
    job = saved(cluster, "alone")
    vault = cluster.home / "copy"
    shutil.copytree(cluster.dir / f"vault/job-{job}", vault / f"job-{job}")
    assert cluster.ctl("fsck", "--vault", vault, "--deep").stdout.endswith(": clean\n")
    (vault / f"job-{job}/step-10.1/w-0/model").write_bytes(b"Weights")
    (vault / f"job-{job}/step-20.1/w-0/model").unlink()
    (vault / f"job-{job}/step-5.1").mkdir()
    (vault / f"job-{job}/step-5.1/deleted").touch()
    shallow = json.loads(cluster.ctl("fsck", "--vault", vault, "-o", "json", check=False).stdout)
    assert sorted(each[0] for each in told(shallow)) == ["PART_MISSING", "TOMBSTONE_LEFT"]
    done = cluster.ctl("fsck", "--vault", vault, "--deep", "--repair", "-o", "json", check=False)
    assert done.returncode == 1
    assert sorted((each[0], each[2]) for each in told(json.loads(done.stdout))) == [
        ("PART_DAMAGED", "LEFT"), ("PART_MISSING", "LEFT"), ("TOMBSTONE_LEFT", "REPAIRED")]
    assert not (vault / f"job-{job}/step-5.1").exists()
