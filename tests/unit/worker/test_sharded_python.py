"""rondo.save with a stand-in for the agent: slots, and what is done where there are none."""

import json
import os
import struct

import pytest

pytest.importorskip("numpy")

HEAD = struct.Struct("<QIIqqQII40s")
FILLED = 2
SAVE = """
    import numpy, rondo
    job = rondo.join()
    state = {"w": numpy.arange(100000.0), "lr": 0.5}
    """


def slots(agent, tmp_path, **refusal):
    """Gives out two slots in turn, and a directory; refusal: the answer to STAGE instead."""
    given = {}

    def answer(kind, step, samples):
        if kind == "save_dir":
            (tmp_path / f"part-{step}").mkdir(exist_ok=True)
            return {"dir": str(tmp_path / f"part-{step}")}
        if kind != "stage":
            return {}
        if refusal:
            return refusal
        path = tmp_path / f"slot-{len(given) % 2}"
        if step not in given:
            given[step] = path
            if not path.exists():
                with open(path, "wb") as file:
                    file.truncate(agent.sizes[-1])
        return {"dir": str(given[step])}

    agent.answer = answer
    return given


def read_slot(path):
    """(state, step, samples, digest, {name: bytes})"""
    data = path.read_bytes()
    magic, version, state, step, samples, size, count, _, digest = HEAD.unpack_from(data)
    assert data[:8] == b"RNDSLOT1" and version == 1 and size == len(data)
    files = {}
    for at in range(count):
        name, offset, length, _ = struct.unpack_from("<96sQQQ", data, 512 + 120 * at)
        assert offset % 4096 == 0
        files[name.rstrip(b"\0").decode()] = data[offset : offset + length]
    return state, step, samples, digest.rstrip(b"\0").decode(), files


def test_a_save_is_one_copy_into_a_slot(script, agent, tmp_path):
    slots(agent, tmp_path)
    agent.start()
    rc, out, err = script(SAVE + """
    print(rondo.save(10, state, samples=80))
    state["w"][:] = 0
    """, **agent.environment())
    assert (rc, out, err) == (0, "memory\n", "")
    assert agent.asks == [("stage", 10, None), ("staged", 10, 80)]
    state, step, samples, digest, files = read_slot(tmp_path / "slot-0")
    assert (state, step, samples, len(digest)) == (FILLED, 10, 80, 32)
    assert list(files)[1:] == ["blocks.crc32c", "state.json", "layout.json"]
    shard = files["shard-00001-model-00001-of-00001.safetensors"]
    head = 8 + struct.unpack_from("<Q", shard)[0]
    assert shard[head:] == struct.pack("<100000d", *range(100000))
    assert json.loads(files["state.json"])["common"]["lr"] == 0.5
    assert json.loads(files["layout.json"])["tensors"] == [["w", "F64", [100000], 0]]


def test_slots_of_one_size_are_used_again_and_again(script, agent, tmp_path):
    slots(agent, tmp_path)
    agent.start()
    rc, _, err = script(SAVE + """
    for step in range(1, 8):
        state["text"] = "x" * 1000 * step
        rondo.save(step, state, samples=step)
    """, **agent.environment())
    assert (rc, err) == (0, "")
    assert len(set(agent.sizes)) == 1 and len(agent.sizes) == 7
    assert read_slot(tmp_path / "slot-0")[1] == 7 and read_slot(tmp_path / "slot-1")[1] == 6


@pytest.mark.parametrize("status", [3, 8, 9, 12, 13])
def test_without_slots_it_is_written_into_files(script, agent, tmp_path, status):
    """3 and 13: an agent that knows no slots; 8: no room; 9, 12: none here."""
    slots(agent, tmp_path, status=status, error="no")
    agent.start()
    rc, out, err = script(SAVE + "print(rondo.save(10, state, samples=80))", **agent.environment())
    assert (rc, out, err) == (0, "file\n", "")
    assert agent.asks == [("stage", 10, None), ("save_dir", 10, None), ("commit", 10, 80)]
    assert sorted(os.listdir(tmp_path / "part-10")) == [
        "blocks.crc32c", "layout.json", "shard-00001-model-00001-of-00001.safetensors",
        "state.json"]


def test_a_slot_that_is_none_costs_nothing_but_the_copy(script, agent, tmp_path):
    given = slots(agent, tmp_path)
    (tmp_path / "other").write_bytes(b"x")
    given[10] = tmp_path / "other"
    agent.start()
    rc, out, _ = script(SAVE + "print(rondo.save(10, state, samples=80))", **agent.environment())
    assert (rc, out) == (0, "file\n")


def test_busy_slots_are_waited_for_and_only_so_long(script, agent, tmp_path):
    slots(agent, tmp_path, status=14, error="both slots are busy")
    agent.start()
    rc, out, err = script(SAVE + "print(rondo.save(10, state, samples=80, timeout=0.5))",
                          **agent.environment())
    assert (rc, out) == (0, "failed\n") and "training goes on" in err
    assert agent.asks[-1] == ("abort", 10, None) and not any(agent.no_wait)


def test_busy_slots_are_passed_over_where_that_is_asked_for(script, agent, tmp_path):
    given = slots(agent, tmp_path)
    answer = agent.answer

    def busy(kind, step, samples):
        if kind == "stage" and step == 20:  # as an agent does that knows no_wait
            assert agent.no_wait[-1]
            return {"status": 1, "error": "skipped: both slots"}
        return answer(kind, step, samples)

    agent.answer = busy
    agent.start()
    rc, out, err = script(SAVE + """
    for step in (10, 20, 30):
        print(rondo.save(step, state, samples=step, busy="skip"))
    try:
        rondo.save(40, state, samples=40, busy="no")
    except ValueError as problem:
        print(problem)
    """, **agent.environment())
    assert (rc, err) == (0, "")
    assert out == "memory\nskipped\nmemory\nbusy is 'wait' or 'skip', not 'no'\n"
    assert agent.asks == [("stage", 10, None), ("staged", 10, 10), ("stage", 20, None),
                          ("stage", 30, None), ("staged", 30, 30)]
    assert list(given) == [10, 30] and read_slot(tmp_path / "slot-1")[1] == 30


def test_where_there_are_no_slots_none_are_busy(script, agent, tmp_path):
    slots(agent, tmp_path, status=8, error="no")
    agent.start()
    rc, out, err = script(SAVE + "print(rondo.save(10, state, samples=80, busy='skip'))",
                          **agent.environment())
    assert (rc, out, err) == (0, "file\n", "")


def test_k38_an_agent_that_dies_holds_up_nothing(script, agent, tmp_path):
    slots(agent, tmp_path)
    answer = agent.answer
    agent.answer = lambda kind, *ask: None if kind == "staged" else answer(kind, *ask)
    agent.start()
    rc, out, err = script(SAVE + """
    import time
    began = time.monotonic()
    print(rondo.save(10, state, samples=80), time.monotonic() - began < 60)
    """, **agent.environment())
    assert (rc, out, err) == (0, "memory True\n", "")
    assert read_slot(tmp_path / "slot-0")[0] == FILLED


def test_a_sealed_step_is_no_error(script, agent, tmp_path):
    slots(agent, tmp_path, status=6, error="sealed")
    agent.start()
    rc, out, _ = script(SAVE + "print(rondo.save(10, state, samples=80))", **agent.environment())
    assert (rc, out) == (0, "sealed\n")


def test_a_full_disk_is_an_error_that_says_so_and_the_part_is_given_up(script, agent, tmp_path):
    slots(agent, tmp_path)
    agent.start()
    rc, out, _ = script(SAVE + """
    import resource, signal
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100000, 100000))
    try:
        rondo.save(10, state, samples=80, sync=True)
    except rondo.Error as problem:
        print(problem.status > 0, bool(str(problem)))
    print("trains on")
    """, **agent.environment())
    assert (rc, out) == (0, "True True\ntrains on\n")
    assert [ask[0] for ask in agent.asks] == ["save_dir", "abort"]


def test_a_forked_child_saves_nothing(script, agent, tmp_path):
    slots(agent, tmp_path)
    agent.start()
    rc, out, _ = script(SAVE + """
    import os
    child = os.fork()
    if child == 0:
        try:
            rondo.save(10, state, samples=80)
        except rondo.Error as problem:
            os._exit(problem.status)
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """, **agent.environment())
    assert (rc, out) == (0, "9\n") and agent.asks == []


def test_k39_room_is_made_behind_before_the_first_save(script, agent, tmp_path, until):
    slots(agent, tmp_path)
    agent.start()
    child = script.start(SAVE + """
    rondo.prepare(state)
    import time
    time.sleep(600)
    """, **agent.environment())
    until(lambda: all((tmp_path / f"slot-{at}").exists() and
                      (tmp_path / f"slot-{at}").stat().st_blocks * 512 >= agent.sizes[0]
                      for at in range(2)))
    assert agent.asks == [("stage", 0, None), ("stage", 1, None)]
    child.kill()
