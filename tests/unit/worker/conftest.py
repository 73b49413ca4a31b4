import os
import subprocess
import sys
import textwrap
import threading

import pytest

from agent_model import AgentModel

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
BUILD = os.environ.get("RONDO_BUILD", os.path.join(SOURCE, "build"))


@pytest.fixture
def agent():
    model = AgentModel()
    yield model
    model.close()


def environment(more):
    keep = {name: value for name, value in os.environ.items()
            if not name.startswith(("RONDO_", "TORCHELASTIC"))}
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
        keep.pop(name, None)
    keep["PYTHONPATH"] = os.path.join(SOURCE, "worker", "python")
    keep["RONDO_LIBRARY"] = os.path.join(BUILD, "lib", "librondo.so")
    keep.update(more)
    return keep


@pytest.fixture
def script(tmp_path):
    """script(text, **environment) starts Python on it; .wait() gives (rc, stdout, stderr)."""
    children = []

    def start(text, cwd=None, **more):
        child = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(text)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=cwd or tmp_path,
            env=environment(more),
        )
        children.append(child)
        return child

    def run(text, cwd=None, **more):
        out, err = start(text, cwd, **more).communicate(timeout=120)
        return children[-1].returncode, out, err

    run.start = start
    yield run
    for child in children:
        if child.poll() is None:
            child.kill()
        child.communicate()


@pytest.fixture
def until():
    """until(condition): waits, generously, for what must come true."""

    def wait(condition):
        event = threading.Event()
        for _ in range(6000):
            if condition():
                return
            event.wait(0.01)
        raise AssertionError("it never came true")

    return wait
