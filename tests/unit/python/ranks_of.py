"""Scripts as all ranks of a world, outside Rondo."""

import os
import socket
import subprocess
import sys
import textwrap

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
BUILD = os.environ.get("RONDO_BUILD", os.path.join(SOURCE, "build"))
os.environ.setdefault("RONDO_LIBRARY", os.path.join(BUILD, "lib", "librondo.so"))
sys.path.insert(0, os.path.join(SOURCE, "worker", "python"))

class Ranks:
    """Runs one script as all ranks of a world, outside Rondo, in one directory."""

    def __init__(self, directory):
        self.directory, self.children = directory, []

    @staticmethod
    def port():
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            return probe.getsockname()[1]

    def start(self, world, text, **more):
        keep = {name: value for name, value in os.environ.items()
                if not name.startswith(("RONDO_", "TORCHELASTIC"))}
        keep.update(PYTHONPATH=os.path.join(SOURCE, "worker", "python"), OMP_NUM_THREADS="1",
                    RONDO_LIBRARY=os.environ["RONDO_LIBRARY"], WORLD_SIZE=str(world), **more)
        started = [
            subprocess.Popen([sys.executable, "-c", textwrap.dedent(text)], cwd=self.directory,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                             env={**keep, "RANK": str(rank)})
            for rank in range(world)
        ]
        self.children += started
        return started

    def run(self, world, text, code=0, **more):
        """Output of each rank."""
        started = self.start(world, text, **more)
        out = [child.communicate(timeout=240)[0] for child in started]
        for child, said in zip(started, out):
            assert code is None or child.returncode == code, said
        return out


def has_torch():
    try:
        import torch  # noqa: F401
    except ImportError:
        return False
    return True


needs_torch = pytest.mark.skipif(not has_torch(), reason="torch is not installed")
