#!/usr/bin/python3
"""The part of demo.sh after the build: a cluster, a job, a crash, the checks, all of it removed.

Every wait has a limit. Whatever happens, what was started is ended and the directory goes: our
processes are known by the directory's name, which no other has in command line or environment.
"""
import argparse
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

READY_S, NODES_S, TRAIN_S, RESUME_S, ASK_S = 180, 120, 600, 240, 30
AGENTS, STEPS, BATCH = 3, 300, 24  # steps and batch as in examples/charlm/job.yaml
KILL_STEP = 130  # or a little later


class Failure(Exception):
    """The demonstration does not hold; the text says what."""


class Stopped(BaseException):
    """A signal asked us to end."""


def say(text, flush_line=True):
    """One line of ours between those of rondoctl, which may have left an unfinished one."""
    clear = "\r\x1b[K" if flush_line and sys.stdout.isatty() else ""
    print(clear + text, flush=True)


def wait_for(what, seconds, ask, alive=lambda: True):
    """The first true answer; Failure when there is none in time, or nothing left to wait for."""
    end = time.monotonic() + seconds
    while True:
        answer = ask()
        if answer:
            return answer
        if not alive():
            raise Failure(f"{what}: it ended instead")
        if time.monotonic() > end:
            raise Failure(f"{what}: not within {seconds} s")
        time.sleep(0.25)


def read_text(path):
    """All of it; "" when it cannot be read."""
    try:
        with open(path, "rb") as file:
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""


def ports_first():
    """A stretch of 32 ports, some of them tried, where no other program listens."""
    for _ in range(100):
        first = random.randrange(20000, 32000, 32)
        try:
            for port in range(first, first + 6):
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", port))
            return first
        except OSError:
            continue
    raise Failure("no free ports between 20000 and 32000")


class Cluster:
    """rondod dev with its agents, in a directory of its own."""

    def __init__(self, build, width):
        self.bin, self.width = os.path.join(build, "bin"), width
        self.path = tempfile.mkdtemp(prefix="rondo-demo-", dir="/tmp")
        os.chmod(self.path, 0o711)  # as root, workers run as nobody and pass through it
        self.log = os.path.join(self.path, "rondod.log")
        self.dir = os.path.join(self.path, "cluster")
        self.daemon, self.job = None, None
        self.children = []
        library = os.path.join(self.path, "lib")  # the checkout may be closed to nobody
        shutil.copytree(os.path.join(build, "lib"), library)
        for place, _, names in os.walk(library):
            for path in [place] + [os.path.join(place, name) for name in names]:
                os.chmod(path, 0o755)

    def environment(self):
        """Of all that we start. No HOME: nothing depends on one."""
        kept = {name: os.environ[name] for name in ("TERM", "NO_COLOR", "TZ") if name in os.environ}
        kept.update(PATH="/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", LANG="C.UTF-8")
        if self.width:
            kept["COLUMNS"] = str(self.width)
        return kept

    def start(self):
        """Until all agents are there."""
        first = ports_first()
        flags = [f"--python-path={self.path}/lib/python", "--worker-env=GLOO_SOCKET_IFNAME=lo",
                 f"--port-first={first}", f"--port-last={first + 31}"]
        command = [os.path.join(self.bin, "rondod"), "dev", "--dir", self.dir,
                   "--agents", str(AGENTS), "--agent-slots", "1",
                   "--listen", "127.0.0.1:0", "--status-listen", "127.0.0.1:0"]
        command += [f"--agent-flags={flag}" for flag in flags]
        with open(self.log, "wb") as log:
            self.daemon = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log,
                                           stderr=log, cwd=self.path, env=self.environment(),
                                           start_new_session=True)
        wait_for("rondod dev becomes ready", READY_S, self.is_ready, self.is_alive)
        wait_for("all agents connect", NODES_S, self.all_healthy, self.is_alive)

    def is_alive(self):
        """Does rondod run?"""
        return self.daemon.poll() is None

    def is_ready(self):
        """Has it said so?"""
        return re.search(r"^ready$", read_text(self.log), re.M)

    def all_healthy(self):
        """Are all agents there?"""
        nodes = self.ask("nodes").get("nodes", [])
        return sum(use["node"].get("seen") == "HEALTHY" for use in nodes) == AGENTS

    def command(self, *words):
        """A command line of rondoctl."""
        return [os.path.join(self.bin, "rondoctl"), words[0], "--context",
                os.path.join(self.dir, "ctl"), *map(str, words[1:])]

    def text(self, *words):
        """What rondoctl prints."""
        try:
            done = subprocess.run(self.command(*words), stdin=subprocess.DEVNULL, timeout=ASK_S,
                                  capture_output=True, env=self.environment(), check=False)
        except subprocess.TimeoutExpired:
            what = " ".join(map(str, words))
            raise Failure(f"rondoctl {what}: no answer in {ASK_S} s") from None
        if not self.is_alive():
            raise Failure(f"rondod ended with {self.daemon.returncode}")
        if done.returncode != 0:
            raise Failure(f"rondoctl {' '.join(map(str, words))}: exit {done.returncode}: "
                          f"{done.stderr.decode('utf-8', 'replace').strip()}")
        return done.stdout.decode("utf-8", "replace")

    def ask(self, *words):
        """The reply of the daemon."""
        return json.loads(self.text(*words, "-o", "json"))

    def show(self, title, *words):
        """A command and what it prints, for people."""
        say(f"\n$ rondoctl {' '.join(map(str, words))}    # {title}")
        print(self.text(*words).rstrip("\n"), flush=True)

    def follow(self, job_file):
        """rondoctl submit --follow, in our terminal."""
        child = subprocess.Popen(self.command("submit", "--follow", job_file),
                                 stdin=subprocess.DEVNULL, env=self.environment(), cwd=self.path)
        self.children.append(child)
        return child

    # --- the end of everything

    def ours(self):
        """Processes that have the directory's name in their command line or environment."""
        mark, found = self.path.encode(), []
        for name in os.listdir("/proc"):
            if not name.isdigit() or int(name) == os.getpid():
                continue
            for part in ("cmdline", "environ"):
                try:
                    with open(f"/proc/{name}/{part}", "rb") as file:
                        if mark in file.read():
                            found.append(int(name))
                            break
                except OSError:
                    continue
        return found

    def end_job(self):
        """Workers outlive agents by design: the job has to end first."""
        if not self.job or not self.is_alive():
            return
        state = self.ask("show", self.job)["job"]["state"]
        if state not in ("SUCCEEDED", "FAILED", "CANCELLED"):
            self.text("cancel", self.job)
            wait_for("the job is cancelled", 40, lambda: self.ask("show", self.job)["job"]["state"]
                     in ("SUCCEEDED", "FAILED", "CANCELLED"), self.is_alive)

    def end_daemon(self):
        """It stops its agents and its database."""
        if self.daemon and self.is_alive():
            self.daemon.terminate()
            try:
                self.daemon.wait(40)
            except subprocess.TimeoutExpired:
                self.daemon.kill()
                self.daemon.wait()

    def end(self):
        """Ends what was started and removes the directory. True when nothing had to be forced."""
        for child in self.children:
            if child.poll() is None:
                child.kill()
            child.wait()
        try:
            self.end_job()
        except Failure:
            pass  # said already, or about to be forced
        self.end_daemon()
        end, forced = time.monotonic() + 10, []
        while True:
            left = self.ours()
            if not left:
                break
            if time.monotonic() > end - 7:
                forced += left
                for pid in left:
                    try:
                        os.kill(pid, signal.SIGKILL)
                    except ProcessLookupError:
                        pass
            if time.monotonic() > end:
                break
            time.sleep(0.1)
        shutil.rmtree(self.path, ignore_errors=True)
        return not forced and not self.ours() and not os.path.exists(self.path)


def newest(checkpoints, attempt):
    """The newest checkpoint that this attempt committed, or None."""
    done = [c for c in checkpoints if c["attempt"] == attempt
            and c["state"] in ("COMMITTED", "VERIFIED", "EXPIRED", "DELETED")]
    return max(done, key=lambda c: int(c["step"]), default=None)


class Demo:
    """The story."""

    def __init__(self, cluster, root):
        self.cluster, self.root = cluster, root
        self.follower = None

    def following(self):
        """Does rondoctl still follow the job?"""
        return self.follower.poll() is None and self.cluster.is_alive()

    def checkpoints(self):
        """Of the job, as the daemon lists them."""
        return self.cluster.ask("checkpoints", self.cluster.job).get("checkpoints", [])

    def find_victim(self):
        """(worker, step, checkpoint) once the job is in the middle of its work."""
        reply = self.cluster.ask("show", self.cluster.job)
        step, saved = int(reply["job"].get("step", 0)), newest(self.checkpoints(), 1)
        workers = [w for w in reply.get("workers", []) if w["rank"] == 1 and w.get("pid", 0) > 0]
        if step < KILL_STEP or not saved or step < int(saved["step"]) + 3 or not workers:
            return None
        return workers[0], step, saved

    def kill_one(self):
        """SIGKILL to rank 1: to exactly the process that `rondoctl show` names."""
        victim, step, saved = wait_for("training reaches its middle", TRAIN_S, self.find_victim,
                                       self.following)
        pid = victim["pid"]
        if b"train.py" not in read_text(f"/proc/{pid}/cmdline").encode():
            raise Failure(f"pid {pid} of rank 1 is no train.py")
        os.kill(pid, signal.SIGKILL)
        say(f"-- kill -9 {pid}: rank 1 on {victim['node']}, at step {step}; committed so far: "
            f"checkpoint {saved['id']}, step {saved['step']}, sample {saved['samples']}")
        return saved

    def resumed(self):
        """Attempt 2, once it has made a step."""
        reply = self.cluster.ask("show", self.cluster.job)
        attempts = [a for a in reply.get("attempts", []) if a["number"] == 2]
        if not attempts or not self.points("loss", "--attempt", 2)[0]:
            return None
        return attempts[0]

    def points(self, name, *words):
        """(steps, values) of rank 0, over all attempts as they count."""
        series = self.cluster.ask("metrics", self.cluster.job, name, *words).get("series", [])
        series.sort(key=lambda one: one["attempt"])
        return ([int(step) for one in series for step in one["steps"]],
                [value for one in series for value in one["values"]])

    def check_resume(self, before):
        """The daemon, the worker and the points agree where the next attempt began."""
        attempt = wait_for("the next attempt makes a step", RESUME_S, self.resumed,
                           self.following)
        last = newest(self.checkpoints(), 1)
        if int(last["step"]) < int(before["step"]):
            raise Failure(f"checkpoint {before['id']} was committed and is gone")
        if attempt["resume_checkpoint"] != last["id"]:
            raise Failure(f"attempt 2 resumed from checkpoint {attempt['resume_checkpoint']}, "
                          f"not from the last committed one, {last['id']}")
        step, sample = int(last["step"]), int(last["samples"])
        if sample != step * BATCH:
            raise Failure(f"step {step} of {BATCH} samples each is not sample {sample}")
        told = f"rank 0 resumed at step {step}, sample {sample}"
        if told not in self.cluster.text("logs", self.cluster.job, "--attempt", 2):
            raise Failure(f"the worker did not say: {told}")
        first = self.points("loss", "--attempt", 2)[0][0]
        if first != step + 1:
            raise Failure(f"the first point of attempt 2 is of step {first}, not {step + 1}")
        say(f"-- attempt 2 resumed from checkpoint {last['id']}: step {step}, sample {sample}; "
            f"its first step was {first}")

    def check_end(self):
        """SUCCEEDED, each step counted once, and the loss fell."""
        try:
            code = self.follower.wait(TRAIN_S)
        except subprocess.TimeoutExpired:
            raise Failure(f"the job has not ended within {TRAIN_S} s") from None
        job = self.cluster.ask("show", self.cluster.job)["job"]
        if code != 0 or job["state"] != "SUCCEEDED":
            raise Failure(f"the job ended {job['state']}, rondoctl with {code}")
        steps, values = self.points("loss")
        if steps != list(range(1, STEPS + 1)):
            raise Failure(f"{len(steps)} points of {len(set(steps))} steps, not {STEPS} in order")
        begin, end = sum(values[:10]) / 10, sum(values[-10:]) / 10
        if not end < 0.75 * begin:
            raise Failure(f"the loss did not fall: {begin:.3f} at first, {end:.3f} at last")
        return f"loss {begin:.3f} -> {end:.3f}, {len(steps)} points for {STEPS} steps"

    def run(self):
        """All of it."""
        cluster, began = self.cluster, time.monotonic()
        say(f"\n== cluster\n$ rondod dev --agents {AGENTS}")
        cluster.start()
        say(f"ready after {time.monotonic() - began:.1f} s")
        cluster.show("three agents on this machine, a slot each", "nodes")
        say("\n== job\n$ rondoctl submit --follow examples/charlm/job.yaml")
        self.follower = cluster.follow(os.path.join(self.root, "examples/charlm/job.yaml"))
        jobs = wait_for("the job is there", 60, lambda: cluster.ask("jobs").get("jobs"),
                        self.following)
        cluster.job = jobs[0]["id"]
        self.check_resume(self.kill_one())
        result = self.check_end()
        cluster.show("points and extremes", "metrics", cluster.job)
        cluster.show("attempts, checkpoints, events", "show", cluster.job)
        say(f"\n-- {result}; {time.monotonic() - began:.0f} s in all")


def tails(cluster):
    """The ends of the logs, on stderr."""
    logs = {"rondod": cluster.log}
    for index in range(1, AGENTS + 1):
        logs[f"agent n{index}"] = os.path.join(cluster.dir, f"agents/n{index}/agent.log")
    texts = {name: read_text(path) for name, path in logs.items()}
    for rank in (0, 1) if cluster.job and cluster.is_alive() else ():
        try:
            texts[f"worker {rank}"] = cluster.text("logs", cluster.job, "--rank", rank, "--stderr",
                                                   "--tail", 4000)
        except Failure as problem:
            texts[f"worker {rank}"] = str(problem)
    for name, text in texts.items():
        lines = text.strip().split("\n")[-15:]
        print(f"--- end of the log of {name}", *lines, sep="\n  ", file=sys.stderr, flush=True)


def stop(number, _frame):
    """Of a signal: the way out is through the end of the cluster."""
    raise Stopped(number)


def play(cluster, root):
    """Exit status of the demonstration itself."""
    try:
        Demo(cluster, root).run()
        return 0
    except BrokenPipeError:
        return 1
    except Stopped as signal_:
        print(f"demo: stopped by signal {signal_.args[0]}", file=sys.stderr)
        return 128 + signal_.args[0]
    except (Failure, OSError, ValueError, KeyError) as problem:
        say(f"demo: failed: {problem!r}" if not isinstance(problem, Failure)
            else f"demo: failed: {problem}")
        tails(cluster)
        return 1


def main():
    """Plays, cleans up, and says how it went."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--root", required=True)
    parser.add_argument("--build", required=True)
    parser.add_argument("--width", type=int)
    options = parser.parse_args()
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    for number in numbers:
        signal.signal(number, stop)
    cluster = Cluster(options.build, options.width)
    try:
        status = play(cluster, options.root)
    finally:
        for number in numbers:
            signal.signal(number, signal.SIG_IGN)
        clean = cluster.end()
    if status == 0 and not clean:
        print("demo: failed: something had to be killed to end it", file=sys.stderr)
        status = 1
    if status == 0:
        print("demo: ok", flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
