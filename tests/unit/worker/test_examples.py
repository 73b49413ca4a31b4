"""The examples outside Rondo: they run, resume, and charlm's resume is bit-exact."""

import os
import re
import signal
import socket
import subprocess
import sys

import pytest

from conftest import BUILD, SOURCE, environment

EXAMPLES = os.path.join(SOURCE, "examples")
COUNTER = os.path.join(BUILD, "bin", "rondo-counter")


def has_torch():
    command = [sys.executable, "-c", "import torch"]
    return subprocess.run(command, capture_output=True).returncode == 0


needs_torch = pytest.mark.skipif(not has_torch(), reason="torch is not installed")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Ranks:
    """The ranks of one run, as torchrun would start them."""

    def __init__(self, world, command, cwd, **more):
        port = str(free_port())
        self.children = [
            subprocess.Popen(
                command,
                cwd=cwd,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                env=environment(
                    {
                        "RANK": str(rank),
                        "WORLD_SIZE": str(world),
                        "MASTER_ADDR": "127.0.0.1",
                        "MASTER_PORT": port,
                        "OMP_NUM_THREADS": "1",
                        "GLOO_SOCKET_IFNAME": "lo",
                        **more,
                    }
                ),
            )
            for rank in range(world)
        ]

    def end(self, code=0):
        """Output of each rank."""
        out = [child.communicate(timeout=240)[0] for child in self.children]
        for child, text in zip(self.children, out):
            assert code is None or child.returncode == code, text
        return out

    def kill(self):
        for child in self.children:
            child.kill()
        self.end(None)


def charlm(world, cwd, steps=16):
    command = [sys.executable, os.path.join(EXAMPLES, "charlm", "train.py"), "--steps", str(steps)]
    return Ranks(world, command + ["--every", "4", "--print-every", "1"], cwd)


def is_saved(directory, step, world):
    place = directory / "checkpoints" / f"step-{step}"
    return all((place / f"trainer-{rank}.done").exists() for rank in range(world))


def line_with(word, text):
    return next(line for line in text.splitlines() if word in line)


@needs_torch
@pytest.mark.parametrize("world", [1, 2])
def test_charlm_resumes_bit_exact_after_kill_9(tmp_path, until, world):
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    whole.mkdir()
    cut.mkdir()
    want = line_with("done at step", charlm(world, whole).end()[0])
    run = charlm(world, cut)
    until(lambda: is_saved(cut, 4, world))
    run.kill()
    out = charlm(world, cut).end()[0]
    assert re.search(r"resumed at step (4|8|12),", out), out
    assert line_with("done at step", out) == want


@needs_torch
def test_charlm_goes_on_with_other_numbers_of_workers_and_another_tensor_split(tmp_path):
    """4 -> 3 -> 2 -> 1 -> 4: each begins with the very weights that the one before ended with, and
    trains the samples that come next."""
    steps, digest = 0, None
    for world in (4, 3, 2, 1, 4):
        steps += 2
        for text in charlm(world, tmp_path, steps).end():
            if digest:
                begins = line_with("resumed at step", text)
                assert f"step {steps - 2}, sample {12 * (steps - 2)}: {digest}" in begins
            else:
                assert "resumed" not in text
            if "done at step" in text:
                done = line_with("done at step", text)
        assert f"step {steps}, sample {12 * steps}: " in done
        digest = done.split()[-1]
    split = Ranks(3, [sys.executable, "-c", TENSOR_SPLIT], tmp_path)
    assert all("equal" in text for text in split.end())


TENSOR_SPLIT = """
import torch, rondo
job = rondo.join()
with rondo.Stored(job.resume.dir) as stored:
    shapes = {name: shape for name, (dtype, shape) in stored.tensors.items()
              if name.startswith("model.") and len(shape) == 2}
whole = {"model": {name[6:]: torch.zeros(shape) for name, shape in shapes.items()}}
rondo.load(whole, partial=True)
for dim in (0, 1):
    cuts = {name: rondo.placement.balanced_cuts(shape[dim], 3) for name, shape in shapes.items()}
    parts = {"model": {name[6:]: torch.zeros(
        [cut[job.rank + 1] - cut[job.rank] if at == dim else size
         for at, size in enumerate(shapes[name])]) for name, cut in cuts.items()}}
    layout = lambda path, value: rondo.Shard(dim, cuts=cuts[path])
    rondo.load(parts, layout, partial=True)
    for name, cut in cuts.items():
        begin, end = cut[job.rank], cut[job.rank + 1]
        want = whole["model"][name[6:]].narrow(dim, begin, end - begin)
        assert torch.equal(parts["model"][name[6:]], want), name
print("equal", len(shapes))
"""


@needs_torch
def test_charlm_stops_at_one_step_when_one_rank_is_told(tmp_path, until):
    run = charlm(2, tmp_path, steps=100000)
    until(lambda: is_saved(tmp_path, 4, 2))
    run.children[1].send_signal(signal.SIGTERM)
    step = re.search(r"stopped at step (\d+)", run.end()[0]).group(1)
    assert is_saved(tmp_path, step, 2)


@needs_torch
def test_torchrun_script_saves_and_resumes(tmp_path):
    command = [sys.executable, os.path.join(EXAMPLES, "torchrun_ddp", "ddp.py")]
    command += ["--steps", "20", "--every", "10"]
    Ranks(2, command + ["--pause", "0", "--out", str(tmp_path)], tmp_path).end()
    assert (tmp_path / "step-20" / "DONE").exists()
    more = ["--out", str(tmp_path / "more"), "--resume", str(tmp_path / "step-10"), "--pause", "0"]
    out = Ranks(2, command + more, tmp_path).end()
    assert "starts at step 10" in out[0]
    assert (tmp_path / "more" / "step-20" / "model.pt").exists()


def test_torchrun_script_knows_nothing_of_rondo():
    with open(os.path.join(EXAMPLES, "torchrun_ddp", "ddp.py"), encoding="utf-8") as file:
        code = file.read().split('"""', 2)[2]
    assert "rondo" not in code.lower()


def counter(agent, *arguments, **more):
    command = [COUNTER, "--step-us", "0", *arguments]
    env = environment(agent.environment(RONDO_ROLE="counter", **more))
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=env,
                          cwd=agent.dir)


def test_counter_of_several_ranks_leaves_on_sigterm_without_a_torn_save(agent):
    agent.start()
    env = environment(agent.environment(RONDO_ROLE="counter", WORLD_SIZE="2"))
    run = subprocess.Popen([COUNTER, "--step-us", "2000", "--steps", "1000000"], env=env, text=True,
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=agent.dir)
    try:
        assert "rank 0 of 2" in run.stdout.readline()
        run.send_signal(signal.SIGTERM)
        out, err = run.communicate(timeout=60)
    finally:
        run.kill()
    assert run.returncode == 128 + signal.SIGTERM, err
    assert "terminated at step" in out
    assert not agent.asks


def test_counter_saves_resumes_and_gets_the_same_sum(agent, tmp_path):
    part = tmp_path / "c" / "counter-0"
    part.mkdir(parents=True)
    agent.answer = lambda kind, step, samples: {"dir": str(part)} if kind == "save_dir" else {}
    agent.start()
    whole = counter(agent, "--steps", "300", RONDO_EVERY_STEPS="100")
    assert whole.returncode == 0 and "done at step 300, sample 2400" in whole.stdout
    crashed = counter(agent, "--steps", "300", "--fail-at", "250", RONDO_EVERY_STEPS="100",
                      RONDO_ATTEMPT="1")
    assert crashed.returncode == -signal.SIGABRT
    saved = [ask for ask in agent.asks if ask[0] == "commit"]
    want = [(100, 800), (200, 1600), (300, 2400), (100, 800), (200, 1600)]
    assert [(ask[1], ask[2]) for ask in saved] == want
    resume = {"RONDO_RESUME_DIR": str(part.parent), "RONDO_RESUME_STEP": "200",
              "RONDO_RESUME_SAMPLES": "1600"}
    again = counter(agent, "--steps", "300", RONDO_ATTEMPT="2", RONDO_EVERY_STEPS="100", **resume)
    assert again.returncode == 0 and "resumed at step 200, sample 1600" in again.stdout
    assert line_with(" sum ", again.stdout) == line_with(" sum ", whole.stdout)
