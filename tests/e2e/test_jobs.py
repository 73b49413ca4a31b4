"""Life of a job: gangs, environment, exits, restarts, deadlines, stops."""

import json
import os
import pathlib
import socket
import time

import pytest

import rondo_cluster
from rondo_cluster import PYTHON, alive, spec, until

TRUE = ["/bin/true"]


@pytest.fixture(scope="module")
def cluster():
    with rondo_cluster.running(agents=2, slots=4) as it:
        yield it


# --- starts

def test_gang_of_eight_on_two_agents(cluster):
    shown = cluster.run(spec("gang", "echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE "
                             "$GROUP_RANK $MASTER_ADDR:$MASTER_PORT $RONDO_NODE", workers=8))
    places = shown["attempts"][0]["places"]
    assert sorted(place["node"] for place in places) == ["n1"] * 4 + ["n2"] * 4
    job = int(shown["job"]["id"])
    master = f"{shown['attempts'][0]['master_addr']}:{shown['attempts'][0]['master_port']}"
    for place in places:
        rank, node = place.get("rank", 0), place["node"]
        words = cluster.output(job, "--rank", rank).decode().split()
        assert words == [f"{rank}/8", f"{place.get('local_rank', 0)}/4",
                         str(int(node != places[0]["node"])), master, node]
    assert sorted((p["node"], p.get("local_rank", 0)) for p in places) == [
        (node, local) for node in ("n1", "n2") for local in range(4)]


def test_a_gang_too_large_waits_whole_and_says_why(cluster):
    job = cluster.submit(spec("too-large", TRUE, workers=9))
    until(lambda: cluster.show(job)["job"]["reason"]["code"] == "UNSATISFIABLE",
          lambda: cluster.tell(job))
    shown = cluster.show(job)
    assert shown["job"]["state"] == "QUEUED" and not shown.get("attempts")
    assert cluster.cancel(job)["job"]["state"] == "CANCELLED"


def test_a_gang_waits_for_room_and_then_starts(cluster):
    first = cluster.submit(spec("first", "sleep 60", workers=5))
    cluster.running(first, 5)
    second = cluster.submit(spec("second", TRUE, workers=4))
    until(lambda: cluster.show(second)["job"]["reason"]["code"] == "NO_ROOM",
          lambda: cluster.tell(second))
    assert not cluster.show(second).get("attempts")  # M27: it holds nothing meanwhile
    cluster.cancel(first, "--now")
    assert cluster.wait(second)["job"]["state"] == "SUCCEEDED"


def test_several_roles(cluster):
    table = "cat $RONDO_RANK_TABLE; echo $RONDO_GLOBAL_RANK $RONDO_GLOBAL_WORLD $MASTER_PORT"
    job = spec("roles", table)
    job["roles"] = [
        {"name": "trainer", "command": ["/bin/sh", "-c", table], "workers": 2},
        {"name": "reward", "command": ["/bin/sh", "-c", table], "workers": 1,
         "env": [{"name": "ONLY", "value": "here"}]},
    ]
    shown = cluster.run(job)
    number = int(shown["job"]["id"])
    ports = shown["attempts"][0]["ports"]
    assert len(set(ports)) == 2
    for role, rank, place, port in (("trainer", 0, 0, 0), ("trainer", 1, 1, 0),
                                    ("reward", 0, 2, 1)):
        out = cluster.output(number, "--role", role, "--rank", rank).decode()
        ranks, _, rest = out.rpartition("]")
        assert [(each["role"], each["rank"]) for each in json.loads(ranks + "]")] == [
            ("trainer", 0), ("trainer", 1), ("reward", 0)]
        assert rest.split() == [str(place), "3", str(ports[port])]


DUMP = ("import os,sys;"
        "sys.stdout.buffer.write(b'\\0'.join(k+b'='+v for k,v in os.environb.items()))")


def environment(out):
    return dict(line.split(b"=", 1) for line in out.split(b"\0"))


def test_m46_environment_is_exact(cluster):
    given = {"EMPTY": "", "EQUALS": "a=b==c", "LINES": "one\ntwo\n", "QUOTE": "'\"$HOME`x`\\",
             "UTF": "grüße 日本", "SPACES": "  x  ", "LONG": "x" * 100_000}
    shown = cluster.run(spec("env", [PYTHON, "-c", DUMP], env=given))
    found = environment(cluster.output(int(shown["job"]["id"])))
    for name, value in given.items():
        assert found[name.encode()] == value.encode(), name
    assert found[b"PYTHONUNBUFFERED"] == b"1" and found[b"OMP_NUM_THREADS"] == b"1"
    assert b"RONDO_CONTEXT" not in found and b"LISTEN_FDS" not in found
    assert not pathlib.Path(os.fsdecode(found[b"TMPDIR"])).exists()


def test_m46_half_a_mebibyte_of_environment(cluster):
    given = {f"PART_{i}": str(i % 10) * 100_000 for i in range(5)}
    shown = cluster.run(spec("large-env", [PYTHON, "-c", DUMP], env=given))
    found = environment(cluster.output(int(shown["job"]["id"])))
    assert {k: found[k.encode()].decode() for k in given} == given


def test_m46_invalid_utf8_is_refused_with_a_place(cluster):
    path = cluster.home / "bad.yaml"
    path.write_bytes(b'name: bad\nroles:\n- name: w\n  command: [/bin/true]\n'
                     b'  env:\n  - {name: A, value: "\xc3\x28"}\n')
    done = cluster.ctl("submit", path, check=False)
    assert done.returncode == 2 and "bad.yaml:" in done.stderr


def test_code_directory_is_packed_and_fetched(cluster):
    code = cluster.home / "code"
    (code / "deep").mkdir(parents=True)
    (code / "main.py").write_text("import deep.part\n")
    (code / "deep/part.py").write_text("print('from the code', __file__)\n")
    job = spec("code", [PYTHON, "main.py"], workers=8, code={"path": str(code)})
    shown = cluster.run(job)
    for rank in range(8):
        assert b"from the code" in cluster.output(int(shown["job"]["id"]), "--rank", rank)
    digest = shown["job"]["spec"]["code"]["digest"]
    assert cluster.sql("select count(*) from code where digest = %s", digest) == [(1,)]
    (code / "deep/part.py").write_text("print('changed')\n")
    changed = cluster.run(job)
    assert cluster.output(int(changed["job"]["id"])) == b"changed\n"


def test_a_file_with_mistakes_submits_nothing(cluster):
    before = cluster.sql("select count(*) from job")
    path = cluster.home / "wrong.yaml"
    path.write_text("name: x\nrols: []\nroles:\n- name: w\n  command: [/bin/true]\n"
                    "  workers: many\n")
    good = cluster.write(spec("good", TRUE))
    done = cluster.ctl("submit", good, path, check=False)
    assert done.returncode == 2
    assert "wrong.yaml:2:1" in done.stderr and "roles" in done.stderr
    assert "wrong.yaml:6:" in done.stderr
    assert cluster.sql("select count(*) from job") == before


def test_dry_run_stores_nothing(cluster):
    before = cluster.sql("select count(*) from job")
    cluster.ctl("submit", "--dry-run", cluster.write(spec("dry", TRUE)))
    assert cluster.sql("select count(*) from job") == before


# --- ends

def test_exit_classes(cluster):
    cases = {
        "code": ("exit 7", "USER_ERROR", 7, 0),
        "signal": ("kill -SEGV $$", "WORKER_SIGNALLED", 0, 11),
        "memory": ("echo 'MemoryError' >&2; exit 1", "OUT_OF_MEMORY", 1, 0),
        "absent": (["/no/such/program"], "LAUNCH_FAILED", 0, 0),
    }
    jobs = {name: cluster.submit(spec(name, case[0])) for name, case in cases.items()
            if name != "absent"}
    for name, job in jobs.items():
        shown = cluster.wait(job)
        _, reason, code, signum = cases[name]
        assert shown["job"]["state"] == "FAILED", name
        assert shown["attempts"][0]["end"]["code"] == reason, cluster.tell(job)
        failure = shown["job"]["first_failure"]
        assert (failure["exit_code"], failure.get("signal", 0)) == (code, signum), name


def test_a_program_that_is_absent_is_named(cluster):
    job = cluster.submit(spec("absent", ["/no/such/program"], restart={"backoff_ms": 100_000,
                                                                       "backoff_ms_max": 100_000}))
    until(lambda: len(cluster.show(job).get("attempts", [])) == 1 and
          "end" in cluster.show(job)["attempts"][0], lambda: cluster.tell(job))
    end = cluster.show(job)["attempts"][0]["end"]
    assert end["code"] == "LAUNCH_FAILED" and "/no/such/program" in end["text"]
    cluster.cancel(job)


def test_first_failing_rank_and_its_traceback(cluster):
    """The others fail later, of the first one's death."""
    script = cluster.home / "fails.py"
    script.write_text(
        "import rondo, time\n"
        "job = rondo.join()\n"
        "def inner():\n"
        "    raise ValueError('rank one is to blame')\n"
        "if job.rank == 1:\n"
        "    inner()\n"
        "time.sleep(60)\n")
    script.chmod(0o644)
    shown = cluster.run(spec("fails", [PYTHON, script], workers=3), state="FAILED")
    failure = shown["job"]["first_failure"]
    assert failure["rank"] == 1 and "rank one is to blame" in failure["message"]
    assert "inner()" in failure["traceback"] and "ValueError" in failure["traceback"]
    text = cluster.ctl("show", shown["job"]["id"]).stdout
    assert "rank one is to blame" in text and "in inner" in text


def test_torchelastic_error_file(cluster):
    told = {"message": {"message": "RuntimeError: from the file",
                        "extraInfo": {"py_callstack": "Traceback: line 1\nRuntimeError: x",
                                      "timestamp": "1"}}}
    shown = cluster.run(spec("error-file", 'printf %s "$TOLD" > $TORCHELASTIC_ERROR_FILE; exit 1',
                             env={"TOLD": json.dumps(told)}), state="FAILED")
    assert "from the file" in shown["job"]["first_failure"]["message"], shown["job"]


# --- restarts

def test_m17_m18_budget_is_one_durable_counter(cluster):
    """Three ranks fail at once, three times: each failure of the gang costs one of the budget."""
    shown = cluster.run(spec("budget", "exit 3", workers=3,
                             restart={"budget": 2, "backoff_ms": 10}), state="FAILED")
    job = int(shown["job"]["id"])
    assert [a["number"] for a in shown["attempts"]] == [1, 2, 3]
    assert shown["job"]["restarts_used"] == 2
    assert cluster.sql("select restarts_used, state from job where id = %s", job) == [(2, "FAILED")]


def test_m32_back_off_doubles(cluster):
    shown = cluster.run(spec("back-off", "exit 1", restart={"budget": 3, "backoff_ms": 200}),
                        state="FAILED")
    attempts = shown["attempts"]
    gaps = [(int(b["placed_us"]) - int(a["ended_us"])) / 1e6
            for a, b in zip(attempts, attempts[1:])]
    for gap, least in zip(gaps, (0.2, 0.4, 0.8)):
        assert gap >= least * 0.95, gaps


def test_restart_count_and_attempt_are_in_the_environment(cluster):
    shown = cluster.run(spec(
        "restart-env", "echo $RONDO_ATTEMPT $TORCHELASTIC_RESTART_COUNT $TORCHELASTIC_RUN_ID; "
        "test $RONDO_ATTEMPT = 2", restart={"budget": 1, "backoff_ms": 10}))
    job = int(shown["job"]["id"])
    first = cluster.output(job, "--attempt", 1).decode().split()
    second = cluster.output(job, "--attempt", 2).decode().split()
    assert first[:2] == ["1", "0"] and second[:2] == ["2", "1"]
    assert first[2] != second[2]  # M16: the attempt is in every key


LISTENS = """
import os, socket, sys
s = socket.socket()
try:
    s.bind(("127.0.0.1", int(os.environ["MASTER_PORT"])))
except OSError as error:
    sys.exit(f"OSError: {error}")
print("bound", os.environ["MASTER_PORT"])
"""


def test_m11_port_clash_costs_no_budget(cluster):
    """Somebody else sits on the ports that come next: other ones are tried, nothing is charged."""
    first = int(cluster.run(spec("port", TRUE))["attempts"][0]["master_port"])
    taken = []
    try:
        for port in range(first, first + 3):
            taken.append(socket.socket())
            try:
                taken[-1].bind(("127.0.0.1", port))
                taken[-1].listen()
            except OSError:
                pass  # taken already: just as good
        shown = cluster.run(spec("clash", [PYTHON, "-c", LISTENS]))
    finally:
        for each in taken:
            each.close()
    ends = [attempt["end"]["code"] for attempt in shown["attempts"]]
    assert ends[-1] == "ALL_ZERO" and set(ends[:-1]) <= {"PORT_CLASH"}
    assert shown["job"].get("restarts_used", 0) == 0
    ports = [attempt["master_port"] for attempt in shown["attempts"]]
    assert len(set(ports)) == len(ports)


# --- deadlines

def test_m21_start_timeout_releases_the_gang(cluster):
    """Code that one node cannot have: a rank never starts, the rest must not wait for it."""
    agent = cluster.agent_pid("n2")
    os.kill(agent, 19)  # SIGSTOP: shorter than the lease, so the node still counts
    try:
        job = cluster.submit(spec("start", "sleep 60", workers=8, phases={"start_ms": 1500},
                                  restart={"budget": 0, "backoff_ms": 60_000,
                                           "backoff_ms_max": 60_000}))
        until(lambda: any(a.get("end", {}).get("code") == "START_TIMEOUT" or
                          cluster.show(job)["job"]["reason"]["code"] == "START_TIMEOUT"
                          for a in cluster.show(job).get("attempts", [])),
              lambda: cluster.tell(job), limit=30)
    finally:
        os.kill(agent, 18)
    until(lambda: cluster.state(job) == "QUEUED", lambda: cluster.tell(job))
    shown = cluster.show(job)
    assert shown["job"].get("restarts_used", 0) == 0 and "n2" in shown["attempts"][0]["end"]["text"]
    cluster.cancel(job)
    assert cluster.run(spec("after", TRUE, workers=8))  # every slot is free again


HANGS = """
import rondo, time
job = rondo.join()
for step in range(1, 4):
    job.report(step, loss=1.0)
    time.sleep(0.05)
if job.attempt == 1 and job.rank == 1:
    time.sleep(600)
job.finish()
"""


def test_m25_hang_is_found_by_step_progress(cluster):
    shown = cluster.run(spec("hang", [PYTHON, "-c", HANGS], workers=2,
                             phases={"first_step_ms": 60_000, "step_ms": 1500},
                             restart={"budget": 1, "backoff_ms": 10}))
    assert shown["attempts"][0]["end"]["code"] == "HANG"
    assert len(shown["attempts"]) == 2


def test_m25_warm_up_is_not_a_hang(cluster):
    warm = "import rondo,time; j=rondo.join(); time.sleep(2.5); j.report(1, loss=0.0); j.finish()"
    shown = cluster.run(spec("warm-up", [PYTHON, "-c", warm],
                             phases={"first_step_ms": 60_000, "step_ms": 1000}))
    assert len(shown["attempts"]) == 1


def test_time_limit(cluster):
    shown = cluster.run(spec("limit", "sleep 60", time_limit_s=1), state="FAILED")
    assert shown["attempts"][0]["end"]["code"] == "TIME_LIMIT"


# --- stops

def test_m12_grace_then_kill(cluster):
    job = cluster.submit(spec("deaf", "trap '' TERM; echo up; while :; do sleep 0.2; done",
                              grace_ms=1500))
    cluster.said(job, "up")
    began = time.monotonic()
    shown = cluster.cancel(job)
    assert shown["job"]["state"] == "CANCELLED" and time.monotonic() - began >= 1.4
    assert shown["attempts"][0]["places"][0]["signal"] == 9


SAVES = """
import rondo, signal, time
job = rondo.join(catch_sigterm=False)
told = []
signal.signal(signal.SIGTERM, lambda *_: told.append(1))
print("up", flush=True)
while not told:
    time.sleep(0.02)
job.saving(True)
time.sleep(3)
job.saving(False)
print("saved", flush=True)
"""


def test_m12_grace_lasts_while_it_saves(cluster):
    job = cluster.submit(spec("saves", [PYTHON, "-c", SAVES], grace_ms=1000, grace_ms_max=60_000))
    cluster.said(job, "up")
    shown = cluster.cancel(job)
    assert shown["attempts"][0]["places"][0].get("exit_code") == 0, cluster.tell(job)
    assert b"saved" in cluster.output(job)


LOADERS = r"""
import os, signal, sys, time
kids = []
for i in range(4):
    kid = os.fork()
    if kid == 0:
        if i == 3:  # leaves its session and its parent
            os.setsid()
            if os.fork():
                os._exit(0)
            os.chdir("/")
        os.write(1, b"child %d\n" % os.getpid())
        signal.signal(signal.SIGTERM, lambda *_: os.write(1, b"child told\n"))
        while True:
            time.sleep(0.1)
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
os.write(1, b"up\n")
while True:
    time.sleep(0.1)
"""


def children_said(out):
    return [int(line.split()[1]) for line in out.decode().splitlines()
            if line.startswith("child ") and line.split()[1].isdigit()]


def test_m3_m13_data_loaders_die_last_and_all(cluster):
    job = cluster.submit(spec("loaders", [PYTHON, "-c", LOADERS], workers=2))
    pids = []
    for rank in range(2):
        pids += children_said(cluster.while_it_lives(job, lambda: len(children_said(
            out := cluster.ctl("logs", job, "--rank", rank, text=False, check=False).stdout)) == 4
            and b"up" in out and out))
    assert all(alive(pid) for pid in pids)
    cluster.running(job, 2)
    shown = cluster.cancel(job)
    assert shown["job"]["state"] == "CANCELLED"
    assert not [pid for pid in pids if alive(pid)]  # proven before the job has ended
    assert b"child told" not in cluster.output(job)  # TERM goes to the rank alone


def test_m1_cancel_after_an_agent_restart(cluster):
    job = cluster.submit(spec("m1", [PYTHON, "-c", LOADERS], workers=8))
    workers = cluster.running(job, 8)
    agent = cluster.agent_pid("n1")
    os.kill(agent, 9)
    until(lambda: cluster.agent_pid("n1") not in (None, agent), "a new agent n1")
    until(cluster.is_ready, cluster.log)
    assert cluster.running(job, 8) == workers
    cluster.cancel(job)
    left = [pid for pid, command in cluster.processes().items()
            if "import os, signal" in command or
            ("rondo-shim" in command and "--wait" not in command)]  # those have no worker yet
    assert not left


def test_cancel_in_every_state(cluster):
    held = cluster.submit(spec("held", "sleep 60"), "--hold")
    assert cluster.state(held) == "HELD"
    queued = cluster.submit(spec("queued", TRUE, workers=9))
    back_off = cluster.submit(spec("backing-off", "exit 1", restart={
        "budget": 5, "backoff_ms": 60_000}))
    until(lambda: cluster.show(back_off)["job"]["reason"]["code"] == "BACKOFF" or
          cluster.show(back_off)["job"].get("not_before_us"), lambda: cluster.tell(back_off))
    running = cluster.submit(spec("runs", "sleep 60", workers=2))
    cluster.wait(running, "RUNNING")
    stopping = cluster.submit(spec("stops", "trap '' TERM; echo up; while :; do sleep 0.2; done",
                                   grace_ms=60_000))
    cluster.said(stopping, "up")
    cluster.ctl("cancel", stopping)
    assert cluster.wait(stopping, "STOPPING")
    for job in (held, queued, back_off, running):
        assert cluster.cancel(job)["job"]["state"] == "CANCELLED"
    assert cluster.cancel(stopping, "--now")["job"]["state"] == "CANCELLED"
    assert cluster.ctl("cancel", stopping, check=False).returncode in (0, 4)
    starting = [cluster.submit(spec("starts", "sleep 60", workers=2)) for _ in range(4)]
    cluster.ctl("cancel", *starting, "--wait")
    for job in starting:
        assert cluster.state(job) == "CANCELLED"


def test_hold_and_release(cluster):
    job = cluster.submit(spec("hold", "test $RONDO_ATTEMPT = 2 || sleep 60"))
    cluster.wait(job, "RUNNING")
    cluster.ctl("hold", job)
    cluster.wait(job, "HELD")
    cluster.ctl("release", job)
    shown = cluster.wait(job)
    assert shown["job"]["state"] == "SUCCEEDED" and shown["job"].get("restarts_used", 0) == 0


def test_many_jobs_each_once(cluster):
    jobs = [cluster.write(spec(f"many-{i}", "echo once")) for i in range(40)]
    reply = cluster.json("submit", *jobs)
    ids = [int(result["job"]) for result in reply["results"]]
    assert len(set(ids)) == 40
    until(lambda: cluster.sql("select count(*) from job where state = 'SUCCEEDED' and attempt = 1 "
                              "and id = any(%s)", ids) == [(40,)], cluster.log)


# --- order

def test_m35_priority_then_age(cluster):
    """All slots are taken while they come in; one at a time may then run."""
    order = cluster.home / "order"
    order.touch()
    order.chmod(0o666)
    blocker = cluster.submit(spec("blocker", "sleep 600", workers=8))
    cluster.running(blocker, 8)
    jobs = [cluster.submit(spec(f"p{n}", f"echo {n} >> {order}", workers=8, priority=priority))
            for n, priority in enumerate((0, 5, 0, -5, 5))]
    cluster.cancel(blocker, "--now")
    for job in jobs:
        assert cluster.wait(job)["job"]["state"] == "SUCCEEDED"
    assert [int(line) for line in order.read_text().split()][::8] == [1, 4, 0, 2, 3]


def test_m31_a_bad_job_does_not_hold_up_the_others(cluster):
    bad = [cluster.submit(spec(f"bad-{n}", ["/no/such/program"], workers=8, priority=100,
                               restart={"budget": 1000, "backoff_ms": 100,
                                        "backoff_ms_max": 1000}))
           for n in range(3)]
    for n in range(5):
        cluster.run(spec(f"good-{n}", TRUE, workers=8), limit=40)
    cluster.ctl("cancel", *bad, "--wait")
