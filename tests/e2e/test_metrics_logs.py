"""Metrics and output of workers: exact, whole, in order."""

import json
import math
import os
import struct
import threading
import time

import pytest

import rondo_cluster
from rondo_cluster import PYTHON, spec, until

grpc = pytest.importorskip("grpc")

REPORTS = """
import math, rondo
job = rondo.join()
doubles = [math.nan, math.inf, -math.inf, -0.0, 5e-324, 1.7976931348623157e308, 0.1, 1e16]
integers = [0, -1, 2**53 + 1, 2**63 - 1, -2**63, 2**31, -2**31 - 1, 42]
for step, (double, integer) in enumerate(zip(doubles, integers), 1):
    job.report(step, samples=step * 8, double=double, integer=integer)
job.finish()
"""
DOUBLES = [math.nan, math.inf, -math.inf, -0.0, 5e-324, 1.7976931348623157e308, 0.1, 1e16]
INTEGERS = [0, -1, 2**53 + 1, 2**63 - 1, -2**63, 2**31, -2**31 - 1, 42]


@pytest.fixture(scope="module")
def cluster():
    with rondo_cluster.running(agents=1, slots=4) as it:
        yield it


def same(found, wanted):
    """Bit for bit, but any NaN is a NaN."""
    return len(found) == len(wanted) and all(
        math.isnan(a) and math.isnan(b) or struct.pack("d", a) == struct.pack("d", b)
        for a, b in zip(found, wanted))


# --- metrics

@pytest.fixture(scope="module")
def reported(cluster):
    job = int(cluster.run(spec("values", [PYTHON, "-c", REPORTS]))["job"]["id"])
    until(lambda: cluster.sql("select count(*) from metric_points(%s, 'double')", job) == [(8,)],
          cluster.log)
    return job


def test_values_are_exact_in_the_database(cluster, reported):
    rows = cluster.sql("select step, value from metric_points(%s, 'double') order by step",
                       reported)
    assert [row[0] for row in rows] == list(range(1, 9))
    assert same([row[1] for row in rows], DOUBLES)
    rows = cluster.sql("select number from metric_points(%s, 'integer') order by step", reported)
    assert [row[0] for row in rows] == INTEGERS


def test_values_are_exact_in_json(cluster, reported):
    series = {each["name"]: each for each in cluster.json("metrics", reported)["series"]}
    assert same([float(value) for value in series["double"]["values"]], DOUBLES)
    assert series["double"]["values"][:3] == ["NaN", "Infinity", "-Infinity"]
    assert series["integer"]["integers"] == [str(value) for value in INTEGERS]


def test_values_are_exact_over_grpc(cluster, reported):
    messages = rondo_cluster.stubs().control
    with cluster.control() as control:
        reply = control.Metrics(messages.MetricsRequest(job=reported), timeout=30)
    series = {each.name: each for each in reply.series}
    assert same(list(series["double"].values), DOUBLES)
    assert list(series["integer"].integers) == INTEGERS


def test_points_and_plot_bear_what_is_no_number(cluster, reported):
    out = cluster.ctl("metrics", reported, "--points").stdout
    assert "9223372036854775807" in out and "-9223372036854775808" in out
    assert cluster.ctl("metrics", reported, "double", "--plot").stdout


def test_nothing_reported_before_a_kill_is_lost(cluster):
    text = ("import os, rondo\njob = rondo.join()\n"
            "for step in range(1, 20001): job.report(step, loss=step / 7)\n"
            "os.kill(os.getpid(), 9)\n")
    job = int(cluster.run(spec("killed", [PYTHON, "-c", text]), state="FAILED")["job"]["id"])
    until(lambda: cluster.sql("select count(*), count(distinct step), max(step) from "
                              "metric_points(%s, 'loss')", job) == [(20000, 20000, 20000)],
          cluster.log)
    rows = cluster.sql("select step, value from metric_points(%s, 'loss') order by step", job)
    assert all(value == step / 7 for step, value in rows)


def test_following_metrics_ends_with_the_job(cluster):
    text = ("import rondo, time\njob = rondo.join()\n"
            "for step in range(1, 31):\n    job.report(step, loss=1 / step); time.sleep(0.05)\n"
            "job.finish()\n")
    job = cluster.submit(spec("followed", [PYTHON, "-c", text]))
    out = cluster.ctl("metrics", job, "loss", "-f").stdout
    found = [line.split() for line in out.splitlines()]
    steps = [int(next(word for word in words[1:] if word.isdigit() and word != "0"))
             for words in found if words and words[0] == "loss"]
    assert len(steps) == len(set(steps)) == 30


# --- logs

def test_m7_a_mebibyte_then_abort(cluster):
    text = ("import os, sys\n"
            "data = bytes(range(256)) * 4096\n"
            "at = 0\n"
            "while at < len(data): at += os.write(1, data[at:])\n"
            "os.write(2, b'last words\\n')\n"
            "os.abort()\n")
    shown = cluster.run(spec("m7", [PYTHON, "-c", text]), state="FAILED")
    job = shown["job"]["id"]
    assert shown["job"]["first_failure"]["signal"] == 6
    assert cluster.output(job) == bytes(range(256)) * 4096
    assert cluster.output(job, "--stderr") == b"last words\n"


def test_tail_and_offsets(cluster):
    job = cluster.run(spec("tail", "seq 1 1000"))["job"]["id"]
    whole = "".join(f"{n}\n" for n in range(1, 1001)).encode()
    assert cluster.output(job) == whole
    assert cluster.output(job, "--tail", 10) == whole[-10:]
    messages = rondo_cluster.stubs().control
    with cluster.control() as control:
        for offset in (0, 1, 1000, len(whole) - 1, len(whole), -5):
            got = b"".join(each.data for each in control.Logs(
                messages.LogsRequest(job=int(job), offset=offset), timeout=30))
            assert got == (whole[offset:] if offset != len(whole) else b""), offset


def test_carriage_returns_and_binary_bytes(cluster):
    text = ("import os\n"
            "for n in range(101): os.write(1, b'\\r%d%%' % n)\n"
            "os.write(1, b'\\x00\\xff\\xfe\\x1b[31m\\x80\\n')\n")
    job = cluster.run(spec("binary", [PYTHON, "-c", text]))["job"]["id"]
    assert cluster.output(job) == b"".join(b"\r%d%%" % n for n in range(101)) + \
        b"\x00\xff\xfe\x1b[31m\x80\n"


def test_binary_last_words_do_no_harm(cluster):
    """What stands in a message is text, whatever the worker wrote."""
    text = "import os, sys; os.write(2, b'Error: \\xff\\x00\\x1b[31m grave\\n'); sys.exit(1)"
    shown = cluster.run(spec("grave", [PYTHON, "-c", text]), state="FAILED")
    assert "\x1b" not in cluster.ctl("show", shown["job"]["id"]).stdout
    assert "grave" in json.dumps(shown)


def rss_kib(pid):
    with open(f"/proc/{pid}/status") as file:
        return int(next(line for line in file if line.startswith("VmRSS")).split()[1])


def test_a_line_of_100_mb_is_bounded_everywhere(cluster):
    """No newline at all. Agent and daemon do not grow by it; every byte comes."""
    text = ("import os\ndata = b'x' * (1 << 20)\n"
            "for _ in range(100):\n"
            "    at = 0\n"
            "    while at < len(data): at += os.write(1, data[at:])\n")
    job = cluster.submit(spec("long-line", [PYTHON, "-c", text]))
    agent = cluster.agent_pid("n1")
    assert cluster.wait(job)["job"]["state"] == "SUCCEEDED"
    count, most = 0, 0
    messages = rondo_cluster.stubs().control
    with cluster.control() as control:
        for each in control.Logs(messages.LogsRequest(job=job), timeout=60):
            assert len(each.data) <= 4 << 20 and each.data.strip(b"x") == b""
            count += len(each.data)
            most = max(most, rss_kib(agent), rss_kib(cluster.daemon.pid))
    assert count == 100 << 20
    assert most < 100 << 10, f"{most} KiB"


def test_a_reader_that_stalls_does_not_stop_others(cluster):
    job = cluster.submit(spec("stalled", "head -c 30000000 /dev/zero; sleep 600"))
    cluster.wait(job, "RUNNING")
    messages = rondo_cluster.stubs().control
    with cluster.control() as slow, cluster.control() as other:
        stalled = slow.Logs(messages.LogsRequest(job=job, follow=True), timeout=60)
        next(stalled)
        began = time.monotonic()
        tail = b"".join(each.data for each in other.Logs(
            messages.LogsRequest(job=job, offset=-1000), timeout=30))
        assert tail == bytes(1000) and time.monotonic() - began < 20
        stalled.cancel()
    cluster.cancel(job, "--now")


def test_follow_goes_on_over_agent_and_daemon_restarts(cluster):
    """No line lost, none twice."""
    job = cluster.submit(spec("follow", "for i in $(seq 1 60); do echo line $i; sleep 0.1; done"))
    cluster.said(job, "line 2")
    got = {}
    thread = threading.Thread(target=lambda: got.update(out=cluster.output(job, "-f")))
    thread.start()
    time.sleep(1)
    agent = cluster.agent_pid("n1")
    os.kill(agent, 9)
    until(lambda: cluster.agent_pid("n1") not in (None, agent), "a new agent")
    time.sleep(1)
    cluster.kill_daemon()
    cluster.start()
    thread.join(60)
    assert got.get("out") == "".join(f"line {i}\n" for i in range(1, 61)).encode()


def test_logs_of_the_next_attempt_follow(cluster):
    job = cluster.submit(spec("attempts", "echo attempt $RONDO_ATTEMPT; test $RONDO_ATTEMPT = 2",
                              restart={"budget": 1, "backoff_ms": 500}))
    assert cluster.output(job, "-f").decode().split("\n")[:2] == ["attempt 1", "attempt 2"]
