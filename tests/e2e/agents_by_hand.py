"""Agents that a test starts, stops and freezes itself, each with a vault of its own."""

import contextlib
import pathlib
import signal
import subprocess

import rondo_cluster
from rondo_cluster import BIN, LIMIT_S, until


class Agents:
    """Started by hand: each has its own vault, and can be stopped for a while."""

    def __init__(self, cluster, names):
        self.cluster, self.running = cluster, {}
        self.log = cluster.home / "agents.log"
        self.certs = {name: cluster.issue("--kind", "agent", "--name", name, out=f"cert-{name}")
                      for name in names}

    def vault(self, name):
        return self.cluster.home / f"vault-{name}"

    def start(self, name, *flags, wrap=()):
        own, home = self.certs[name], self.cluster.home
        with open(self.log, "ab") as log:
            self.running[name] = subprocess.Popen(
                [*wrap, BIN / "rondo-agent", f"--node={name}", f"--daemon={self.cluster.listen}",
                 f"--state-dir={home}/state-{name}", f"--cert={own}/agent.pem",
                 f"--key={own}/agent.key", f"--ca={own}/ca.pem", "--address=127.0.0.1",
                 f"--vault=default={self.vault(name)}:node", "--cpu-slots=1",
                 f"--slot-dir={home}/slots-{name}", f"--python-path={self.cluster.python_path}",
                 *flags],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=home)

    def kill(self, name):
        process = self.running.pop(name)
        process.kill()
        process.wait(LIMIT_S)

    def freeze(self, name):
        self.running[name].send_signal(signal.SIGSTOP)

    def thaw(self, name):
        self.running[name].send_signal(signal.SIGCONT)

    def ready(self, count):
        until(lambda: self.cluster.json("status").get("nodes_healthy") == count,
              lambda: self.log.read_text()[-3000:] + self.cluster.log())

    def stop(self):
        for process in self.running.values():
            process.send_signal(signal.SIGTERM)
        for process in self.running.values():
            assert process.wait(LIMIT_S) == 0


@contextlib.contextmanager
def two_agents(program=None, flags=()):
    """A cluster of the agents a and b; its home has a directory `flags`, and the program."""
    with rondo_cluster.running(agents=0, flags=list(flags)) as it:
        (it.home / "flags").mkdir()
        (it.home / "flags").chmod(0o777)
        if program:
            (it.home / "program.py").write_text(program)
            (it.home / "program.py").chmod(0o644)
        it.agents_by_hand = Agents(it, ("a", "b"))
        try:
            for name in ("a", "b"):
                it.agents_by_hand.start(name)
            it.agents_by_hand.ready(2)
            yield it
        finally:
            for job in it.json("jobs", "--active").get("jobs", []):
                it.ctl("cancel", "--now", "--wait", job["id"], check=False)
            it.agents_by_hand.stop()


@contextlib.contextmanager
def open_again(cluster):
    """Whatever the test did to them, both agents are there and take work afterwards."""
    agents = cluster.agents_by_hand
    try:
        yield agents
    finally:
        for name in ("a", "b"):
            if name in agents.running:
                agents.thaw(name)
            else:
                agents.start(name)
            cluster.ctl("uncordon", name, check=False)
        agents.ready(2)


def events(cluster, job):
    return [(row[0], row[1]) for row in cluster.sql(
        "select kind, text from event where job = %s order by seq", job)]


def files_of(vault, path):
    root = pathlib.Path(vault) / path
    return {str(file.relative_to(root)): file.read_bytes()
            for file in root.rglob("*") if file.is_file()}
