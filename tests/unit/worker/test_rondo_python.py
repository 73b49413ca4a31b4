"""The Python package against a model of the agent: what is written, what is answered, what
survives."""

import json
import math
import os
import signal

from agent_model import (ARM, DROP, FINISHED, JOINED, PREPARE, REPORTS, SAVE, SAVE_ANSWERED, SAVING,
                         STOP)


def test_join_says_who_we_are(script, agent):
    more = agent.environment(1, 4, RONDO_RESUME_DIR="/v/c", RONDO_RESUME_STEP="120",
                             RONDO_RESUME_SAMPLES=str(1 << 53))
    rc, out, err = script(
        """
        import rondo
        job = rondo.join()
        assert (job.rank, job.world, job.id, job.attempt) == (1, 4, 7, 2)
        assert job.role == "trainer" and job.managed is True
        assert job.resume and job.resume.step == 120 and job.resume.samples == 1 << 53
        assert job.resume.part() == "/v/c/trainer-0"
        assert rondo.join().rank == 1
        """,
        **more,
    )
    assert (rc, err) == (0, "")
    assert agent.read(JOINED, "<I") == 1
    assert agent.records() == [(4, 1)]


def test_reports_keep_kinds_and_values_exactly(script, agent):
    rc, _, err = script(
        """
        import rondo, math
        job = rondo.join()
        job.report(1, samples=8, loss=0.1, tokens=2**63 - 1, low=-2**63, bad=math.nan,
                   inf=-math.inf, flag=True)
        job.report(2**53 + 1, samples=2**31 + 5)
        job.report(3, huge=2**70, **{"name with spaces é": 1})
        for step in range(4, 7):
            job.report(step, loss=float(step), n=step)
        job.report(7, loss=1, n=2**63)
        """,
        **agent.environment(),
    )
    assert (rc, err) == (0, "")
    first, second, third, *rest = agent.reports()
    assert first["step"] == 1 and first["samples"] == 8
    values = first["values"]
    assert values["loss"] == 0.1 and values["tokens"] == 2**63 - 1 and values["low"] == -(2**63)
    assert type(values["tokens"]) is int and type(values["loss"]) is float
    assert math.isnan(values["bad"]) and values["inf"] == -math.inf and values["flag"] == 1
    assert second["step"] == 2**53 + 1 and second["samples"] == 2**31 + 5 and second["values"] == {}
    assert "samples" not in third and third["values"] == {"huge": 2.0**70, "name with spaces é": 1}
    assert [report["values"]["n"] for report in rest] == [4, 5, 6, 2.0**63]
    assert agent.read(REPORTS, "<Q") == len(agent.records())


def test_scalars_of_other_libraries_are_taken(script, agent):
    rc, _, err = script(
        """
        import rondo
        class Scalar:
            def __init__(self, value): self.value = value
            def item(self): return self.value
        job = rondo.join()
        class Float(float): pass
        job.report(1, a=Scalar(1.5), b=Scalar(7))
        for value in (Float(2.5), Float(3.5)):
            job.report(1, a=value, b=True)
        try:
            job.report(2, a="text")
        except ValueError:
            job.report(3, a=1)
        """,
        **agent.environment(),
    )
    assert (rc, err) == (0, "")
    assert [report["values"] for report in agent.reports()] == [
        {"a": 1.5, "b": 7}, {"a": 2.5, "b": 1}, {"a": 3.5, "b": 1}, {"a": 1}
    ]


def test_limits_are_errors_and_harm_nothing(script, agent):
    rc, out, err = script(
        """
        import rondo
        job = rondo.join()
        for call in (lambda: job.report(-1, x=1), lambda: job.report(1, **{"x" * 256: 1}),
                     lambda: job.report(1, **{f"n{i}": i for i in range(257)}),
                     lambda: job.report(1, **{"": 1}),
                     lambda: job.should_save(-5), lambda: job.save_dir(-1)):
            try:
                call()
                print("no error")
            except rondo.Error as problem:
                assert problem.status == 3 and str(problem)
        job.report(5, x=1)
        """,
        **agent.environment(),
    )
    assert (rc, out, err) == (0, "", "")
    assert [report["step"] for report in agent.reports()] == [5]


def test_nothing_reported_is_lost_by_kill_9(script, agent, until):
    child = script.start(
        """
        import rondo
        job = rondo.join()
        for step in range(1, 1 << 40):
            job.report(step, x=step)
            if step == 2000:
                print("said", flush=True)
        """,
        **agent.environment(),
    )
    assert child.stdout.readline() == "said\n"
    child.kill()
    child.wait()
    steps = [report["step"] for report in agent.reports()]
    assert len(steps) >= 2000 and steps == list(range(1, len(steps) + 1))


def test_children_and_second_processes_write_nothing(script, agent):
    rc, out, err = script(
        """
        import os, subprocess, sys, rondo
        job = rondo.join()
        job.report(1, x=1)
        if os.fork() == 0:
            job.report(2, x=2)
            print(job.should_save(3), rondo.join().rank, flush=True)
            try:
                job.save_dir(4)
            except rondo.Error as problem:
                print(problem, flush=True)
            os._exit(0)
        os.wait()
        code = "import rondo; j = rondo.join(); j.report(9, x=9); print(j.should_save(50))"
        subprocess.run([sys.executable, "-c", code], check=True)
        job.report(3, x=3)
        """,
        **agent.environment(),
    )
    assert (rc, err) == (0, "")
    assert out == "False 0\nthis process was forked from the member\nFalse\n"
    assert [report["step"] for report in agent.reports()] == [1, 3]
    assert agent.read(SAVE_ANSWERED, "<q") == -1


def test_saves_at_multiples_but_not_at_the_resumed_step(script, agent):
    rc, out, _ = script(
        "import rondo; job = rondo.join(); print([s for s in range(41) if job.should_save(s)])",
        **agent.environment(RONDO_EVERY_STEPS="10", RONDO_RESUME_STEP="20", RONDO_RESUME_DIR="/c"),
    )
    assert out == "[30, 40]\n"


def test_an_armed_gate_opens_once(script, agent):
    agent.gate(SAVE, 1, 5, ARM)
    rc, out, err = script(
        """
        import rondo
        job = rondo.join()
        print([step for step in range(12) if job.should_save(step)])
        print(job.should_save(11), job.should_save(5))
        print([job.should_stop(step) for step in (3, 6, 7)])
        """,
        **agent.environment(),
    )
    assert (rc, out, err) == (0, "[5]\nFalse False\n[False, False, False]\n", "")


def test_a_bound_rank_waits_for_the_word(script, agent, until):
    agent.gate(SAVE, 1, 3, PREPARE)
    agent.gate(STOP, 2, 3, PREPARE)
    child = script.start(
        """
        import rondo
        job = rondo.join()
        print([job.should_save(step) for step in range(1, 6)])
        print([job.should_stop(step) for step in range(1, 6)])
        """,
        **agent.environment(),
    )
    until(lambda: agent.read(SAVE_ANSWERED, "<q") == 3)
    assert child.poll() is None
    agent.write(SAVE + 16, "<I", DROP)
    agent.write(STOP + 16, "<I", ARM)
    out, _ = child.communicate(timeout=60)
    assert out == "[False, False, False, False, False]\n[False, False, True, True, True]\n"


def saver(agent, tmp_path):
    parts = tmp_path / "part"
    parts.mkdir()
    agent.answer = lambda kind, step, samples: {"dir": str(parts)} if kind == "save_dir" else {}
    return parts


def test_save_makes_writes_and_commits(script, agent, tmp_path):
    parts = saver(agent, tmp_path)
    agent.start()
    rc, _, err = script(
        """
        import rondo
        job = rondo.join()
        with job.save(120, samples=960) as directory:
            open(directory + "/model", "w").write("weights")
        job.finish()
        """,
        **agent.environment(),
    )
    assert (rc, err) == (0, "")
    assert agent.asks == [("save_dir", 120, None), ("commit", 120, 960)]
    assert (parts / "model").read_text() == "weights"
    assert agent.read(SAVING, "<I") == 0 and agent.read(FINISHED, "<I") == 1
    assert agent.records()[-1] == (3, 1)


def test_an_exception_in_a_save_drops_it(script, agent, tmp_path):
    saver(agent, tmp_path)
    agent.start()
    rc, _, err = script(
        """
        import rondo
        job = rondo.join()
        with job.save(1, samples=1):
            raise OSError(28, "disk full")
        """,
        **agent.environment(),
    )
    assert rc == 1 and "disk full" in err
    assert [ask[0] for ask in agent.asks] == ["save_dir", "abort"]
    assert agent.read(SAVING, "<I") == 0


def test_a_save_outlives_the_agent(script, agent, tmp_path, until):
    """The agent is killed after it has read the request, comes back, says that it is busy, and then
    answers."""
    saver(agent, tmp_path)
    answer = agent.answer
    agent.answer = lambda kind, step, samples: None  # says nothing
    agent.start()
    child = script.start(
        """
        import rondo
        job = rondo.join()
        with job.save(8, samples=64):
            pass
        """,
        **agent.environment(),
    )
    until(lambda: len(agent.asks) == 1)
    assert agent.read(SAVING, "<I") == 1
    agent.stop()
    busy = [True, True]
    refusal = {"status": 14, "error": "busy"}
    agent.answer = lambda *ask: refusal if busy and busy.pop() else answer(*ask)
    agent.start()
    _, err = child.communicate(timeout=60)
    assert (child.returncode, err) == (0, "")
    assert agent.asks[-1] == ("commit", 8, 64)


def test_a_refused_save_is_an_error_with_its_text(script, agent):
    agent.answer = lambda *ask: {"status": 10, "error": "attempt 3 runs"}
    agent.start()
    rc, out, _ = script(
        """
        import rondo
        job = rondo.join()
        try:
            with job.save(8, samples=64): print("never")
        except rondo.Error as problem:
            print(problem.status, problem)
        """,
        **agent.environment(),
    )
    assert (rc, out) == (0, "10 attempt 3 runs\n")


def test_a_sealed_step_is_saved_once(script, agent):
    agent.answer = lambda *ask: {"status": 6, "error": "sealed"}
    agent.start()
    rc, _, err = script(
        """
        import os, rondo
        job = rondo.join()
        with job.save(8, samples=64) as directory:
            open(directory + "/x", "w").close()
        assert not os.path.exists(directory)
        """,
        **agent.environment(),
    )
    assert (rc, err) == (0, "")
    assert [ask[0] for ask in agent.asks] == ["save_dir"]


def test_no_agent_ends_in_a_deadline(script, agent):
    rc, out, _ = script(
        """
        import rondo
        job = rondo.join()
        try:
            job.commit(8, 64, timeout=0.3)
        except rondo.Error as problem:
            print(problem.status)
        """,
        **agent.environment(),
    )
    assert (rc, out) == (0, "4\n")


def test_garbage_from_the_agent_does_no_harm(script, agent, tmp_path):
    saver(agent, tmp_path)
    good = agent.encode
    bad = [b"\xff\xff\xff\xff", b"\x05\0\0\0\xff\xff\xff\xff\xff", b"\x02\0\0\0\x0a\x7f",
           b"\0\0\0\0" * 3]
    agent.encode = lambda number, said: bad.pop() if bad else good(number, said)
    agent.start()
    rc, _, err = script(
        "import rondo\njob = rondo.join()\nwith job.save(8, samples=64): pass",
        **agent.environment(),
    )
    assert (rc, err) == (0, "")


def test_uncaught_exception_is_recorded_twice(script, agent, tmp_path):
    path = tmp_path / "sub" / "error.json"
    rc, _, err = script(
        """
        import rondo
        rondo.join()
        def inner(): raise ValueError("näh\\0!")
        inner()
        """,
        **agent.environment(TORCHELASTIC_ERROR_FILE=str(path)),
    )
    assert rc == 1 and "ValueError" in err
    (failure,) = agent.failures()
    assert failure[1].decode() == "ValueError: näh\\0!"
    assert b"in inner" in failure[2]
    content = json.loads(path.read_text())["message"]
    assert content["message"].startswith("ValueError: n")
    assert "in inner" in content["extraInfo"]["py_callstack"]
    assert int(content["extraInfo"]["timestamp"]) > 0


def test_long_tracebacks_are_cut(script, agent):
    rc, _, _ = script(
        "import rondo\nrondo.join().failure('m' * 10000, 'é' * 20000 + 'end')",
        **agent.environment(),
    )
    (failure,) = agent.failures()
    assert rc == 0 and len(failure[1]) == 4096 and len(failure[2]) <= 16384
    assert failure[2].decode().endswith("éend")


def test_sigterm_is_heard_by_who_asks(script, agent, until):
    text = """
        import rondo, time
        job = rondo.join()
        {ask}
        print("up", flush=True)
        while not {ask}:
            time.sleep(0.01)
        print("stopping")
        """
    for ask, want in (("job.stopping()", "stopping\n"), ("job.should_stop(5)", "stopping\n"),
                      ("False", "")):
        child = script.start(text.format(ask=ask), **agent.environment())
        assert child.stdout.readline() == "up\n"
        child.send_signal(signal.SIGTERM)
        out, _ = child.communicate(timeout=60)
        assert out == want and child.returncode == (0 if want else -signal.SIGTERM)


def test_sigterm_to_one_of_many_is_not_a_common_answer(script, agent):
    child = script.start(
        """
        import rondo, signal, os
        job = rondo.join()
        job.stopping()
        os.kill(os.getpid(), signal.SIGTERM)
        print(job.stopping(), job.should_stop(4))
        """,
        **agent.environment(0, 2),
    )
    out, _ = child.communicate(timeout=60)
    assert out == "True False\n"


def test_alone_saves_and_resumes(script, tmp_path):
    text = """
        import rondo
        job = rondo.join(every_steps=10)
        print(job.managed, job.resume.step, job.resume.samples, job.resume.dir is not None)
        for step in range(job.resume.step + 1, 26):
            job.report(step, samples=step, loss=1.0)
            if job.should_save(step):
                with job.save(step, samples=step * 8) as directory:
                    open(directory + "/model", "w").write(str(step))
            if job.should_stop(step): break
        job.finish()
        """
    assert script(text) == (0, "False 0 0 False\n", "")
    assert script(text) == (0, "False 20 160 True\n", "")
    assert (tmp_path / "checkpoints" / "step-20" / "trainer-0" / "model").read_text() == "20"
    assert script(text, RONDO_RESUME_DIR="") == (0, "False 0 0 False\n", "")


def test_alone_counts_only_what_every_rank_has_saved(script, tmp_path):
    text = """
        import rondo
        job = rondo.join()
        for step in STEPS:
            with job.save(step, samples=step): pass
        """
    assert script(text.replace("STEPS", "[1, 2]"), RANK="0", WORLD_SIZE="2")[0] == 0
    assert script(text.replace("STEPS", "[1]"), RANK="1", WORLD_SIZE="2")[0] == 0
    rc, out, _ = script("import rondo; print(rondo.join().resume.step)")
    assert (rc, out) == (0, "1\n")


def test_bad_environment_is_said(script, tmp_path):
    rc, _, err = script("import rondo; rondo.join()", RANK="3", WORLD_SIZE="2")
    assert rc == 1 and "rank 3 of 2" in err
    rc, _, err = script("import rondo; rondo.join()", RONDO_DIR=str(tmp_path / "none"))
    assert rc == 1 and "RONDO_DIR" in err


def test_torn_tail_is_cut_off_before_more_is_written(script, agent):
    text = "import rondo\njob = rondo.join()\njob.report(1, x=1)"
    script(text, **agent.environment())
    with open(os.path.join(agent.dir, "reports"), "ab") as file:
        file.write(b"\x40\0\0\0half")
    script(text.replace("report(1", "report(2"), **agent.environment())
    assert [report["step"] for report in agent.reports()] == [1, 2]


def test_a_full_disk_costs_reports_ends_nothing_and_leaves_no_half_record(script, agent):
    rc, out, err = script(
        """
        import resource, signal, rondo
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        job = rondo.join()
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1 << 30))
        for step in range(1, 100):
            if step == 60:
                resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 30, 1 << 30))
            job.report(step, x=step)
        print("went on")
        """,
        **agent.environment(),
    )
    assert (rc, out) == (0, "went on\n"), err
    steps = [report["step"] for report in agent.reports()]
    lost = 99 - len(steps)
    assert 0 < lost < 59
    assert steps == [*range(1, 60 - lost), *range(60, 100)]
