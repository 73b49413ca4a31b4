"""One private Rondo for a test file: `rondod dev` in a fresh directory, and proof that it left.

    @pytest.fixture(scope="module")
    def cluster():
        with rondo_cluster.running(agents=2) as it:
            yield it

The directory is short (socket paths) and passable for other users (workers of root's agents are
nobody). What workers need of the build is copied into it. Everything is waited for by condition.
"""

import contextlib
import hashlib
import functools
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import types
import urllib.error
import urllib.request

import psycopg2
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / os.environ.get("RONDO_BUILD", "build")
BIN = BUILD / "bin"
LIMIT_S = 60 * float(os.environ.get("PATIENCE", 1))
ENDED = ("SUCCEEDED", "FAILED", "CANCELLED")
PYTHON = "/usr/bin/python3"


def until(condition, what, limit=LIMIT_S, pause=0.1):
    """The first true value of condition(); fails with what: a text, or a function giving one."""
    end = time.monotonic() + limit
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            pytest.fail(f"not within {limit} s: {what() if callable(what) else what}")
        time.sleep(pause)


def spec(name, command, **more):
    """A job of one role `w`: workers, env (a dict), workdir and resources go to it, the rest to the
    job. command: a list, or a text for /bin/sh."""
    role = {"name": "w", "command": ["/bin/sh", "-c", command] if isinstance(command, str)
            else [str(word) for word in command]}
    for key in ("workers", "workdir", "resources"):
        if key in more:
            role[key] = more.pop(key)
    if "env" in more:
        role["env"] = [{"name": k, "value": v} for k, v in more.pop("env").items()]
    return {"name": name, "roles": [role], "grace_ms": 5000,
            "restart": {"budget": 0, "backoff_ms": 50}, **more}


def alive(pid):
    """A zombie that its parent has not reaped yet is dead."""
    try:
        text = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return text.rpartition(")")[2].split()[0] not in "ZX"


def processes_of(home):
    """Every live process that has to do with the directory: by command line, cwd or environment."""
    found = {}
    needle = os.fsencode(str(home))
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            command = (entry / "cmdline").read_bytes()
            told = needle in command
            with contextlib.suppress(OSError):
                told = told or needle in os.fsencode(os.readlink(entry / "cwd"))
            with contextlib.suppress(OSError):
                told = told or needle in (entry / "environ").read_bytes()
            if told and alive(int(entry.name)):
                found[int(entry.name)] = command.replace(b"\0", b" ").decode(errors="replace")
    return found


def cgroups_of(pid):
    """Directories of the groups made for this process by an agent."""
    mounts = [line.split() for line in pathlib.Path("/proc/mounts").read_text().splitlines()]
    found = set()
    for line in pathlib.Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        number, controllers, path = line.split(":", 2)
        if "/rondo/" not in path:
            continue
        for _, point, kind, options, *_ in mounts:
            if (kind == "cgroup2" if number == "0" else
                    kind == "cgroup" and controllers in options.split(",")):
                found.add(point + path)
    return found


def beside_the_sdk(out):
    """Where a test of the SDK has loaded its `rondo`, the stubs below out are found in it too."""
    package = sys.modules.get("rondo")
    if package is not None:
        package.__path__.append(os.path.join(out, "rondo"))


@functools.lru_cache(maxsize=None)
def stubs():
    """The Python side of our .proto files, made afresh; needs grpcio."""
    pytest.importorskip("grpc")
    out = tempfile.mkdtemp(prefix="rondo-stubs-")
    try:
        subprocess.run(
            ["protoc", f"-I{ROOT / 'proto'}", "-I/usr/include", f"--python_out={out}",
             f"--grpc_out={out}", "--plugin=protoc-gen-grpc=/usr/bin/grpc_python_plugin",
             "/usr/include/protobuf-c/protobuf-c.proto",
             *map(str, sorted((ROOT / "proto/rondo/v1").glob("*.proto")))],
            check=True, timeout=LIMIT_S)
        sys.path.insert(0, out)
        beside_the_sdk(out)
        try:
            import rondo.v1.agent_pb2 as agent
            import rondo.v1.agent_pb2_grpc as agent_grpc
            import rondo.v1.control_pb2 as control
            import rondo.v1.control_pb2_grpc as control_grpc
            import rondo.v1.node_pb2 as node
        finally:
            sys.path.remove(out)
    finally:
        shutil.rmtree(out)
    return types.SimpleNamespace(agent=agent, agent_grpc=agent_grpc, control=control,
                                 control_grpc=control_grpc, node=node)


class Cluster:
    def __init__(self, home, agents, slots, flags, address, wrap, env):
        self.home = pathlib.Path(home)
        self.dir = self.home / "d"
        self.agents, self.slots, self.flags = agents, slots, list(flags)
        self.wrap, self.env = list(wrap), dict(env)
        self.daemon = None
        self.listen, self.status_listen = f"{address}:0", "127.0.0.1:0"
        self.cgroups = set()
        self.files = 0
        self._copy_worker_side()

    def _copy_worker_side(self):
        (self.home / "bin").mkdir()
        (self.home / "lib").mkdir()
        shutil.copy(BIN / "rondo-counter", self.home / "bin")
        shutil.copy(BUILD / "lib/librondo.so", self.home / "lib")
        shutil.copytree(BUILD / "lib/python", self.home / "lib/python")
        for path in self.home.rglob("*"):
            path.chmod(path.stat().st_mode | (0o055 if path.is_dir() else 0o044))
        self.counter = str(self.home / "bin/rondo-counter")
        self.python_path = str(self.home / "lib/python")

    # --- processes

    def start(self):
        """Starts the daemon, again on the same ports; returns once it is ready."""
        with open(self.home / "daemon.log", "ab") as log:
            self.daemon = subprocess.Popen(
                [*self.wrap, BIN / "rondod", "dev", "--dir", self.dir, "--agents", str(self.agents),
                 "--agent-slots", str(self.slots), "--listen", self.listen, "--status-listen",
                 self.status_listen, f"--agent-flags=--python-path={self.python_path}",
                 *self.flags],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                cwd=self.home,
                env={"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "LC_ALL": "C.UTF-8", **self.env})
        until(self.is_ready, lambda: "ready\n" + self.log())
        self.listen, self.status_listen = self.addresses()

    def is_ready(self):
        assert self.daemon.poll() is None, self.log()
        status = self.ctl("status", "--timeout", "2s", "-o", "json", check=False)
        if status.returncode != 0:
            return False
        answer = json.loads(status.stdout)
        return answer.get("nodes_healthy", 0) >= self.agents

    def addresses(self):
        lines = dict(line.split("=", 1) for line in (self.dir / "status").read_text().split())
        return lines["grpc"], lines["http"]

    def kill_daemon(self):
        self.daemon.kill()
        self.daemon.wait(LIMIT_S)

    def slots_in_memory(self):
        """Where the agents keep slots while jobs may come back."""
        return [pathlib.Path("/dev/shm/rondo-" + hashlib.sha256(
            str(self.dir / f"agents/n{number + 1}/work").encode()).hexdigest()[:16])
            for number in range(self.agents)]

    def agent_pid(self, node):
        """From the process table: the agent that is up now."""
        for pid, command in processes_of(self.dir).items():
            if f"--node={node} " in command and "rondo-agent" in command.split()[0]:
                return pid
        return None

    def postmaster(self):
        with contextlib.suppress(FileNotFoundError, ValueError, IndexError):
            pid = int((self.dir / "postgres/data/postmaster.pid").read_text().split()[0])
            return pid if alive(pid) else None
        return None

    def processes(self):
        return processes_of(self.home)

    def log(self, lines=40):
        path = self.home / "daemon.log"
        text = path.read_text(errors="replace") if path.exists() else ""
        return "\n".join(text.splitlines()[-lines:])

    # --- rondoctl

    def ctl(self, *words, check=True, limit=LIMIT_S, text=True, stdin=None):
        """Runs rondoctl. check: it must exit with 0."""
        done = subprocess.run(
            [BIN / "rondoctl", *map(str, words)], input=stdin, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, timeout=limit, cwd=self.home, text=text,
            env={"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8",
                 "RONDO_CONTEXT": str(self.dir / "ctl")})
        if check:
            assert done.returncode == 0, (words, done.stdout[-2000:], done.stderr, self.log(15))
        return done

    def json(self, *words):
        return json.loads(self.ctl(*words, "-o", "json").stdout)

    def write(self, job):
        self.files += 1
        path = self.home / f"job-{self.files}.yaml"
        path.write_text(json.dumps(job, ensure_ascii=False))  # JSON is YAML
        return path

    def submit(self, job, *words):
        reply = self.json("submit", self.write(job), *words)
        result = reply["results"][0]
        assert result.get("status", 0) == 0, result
        return int(result["job"])

    def show(self, job):
        return self.json("show", job)

    def state(self, job):
        return self.show(job)["job"]["state"]

    def wait(self, job, *states, limit=LIMIT_S):
        """Until the job is in one of the states (by default: has ended); gives its show."""
        states, seen = states or ENDED, {}

        def there():
            seen["show"] = self.show(job)
            state = seen["show"]["job"]["state"]
            assert state in states or state not in ENDED, self.tell(job)
            return state in states

        until(there, lambda: self.tell(job), limit, 0.15)
        return seen["show"]

    def run(self, job, state="SUCCEEDED", limit=LIMIT_S):
        """Submits, waits for the end, checks it; gives the show."""
        number = self.submit(job)
        shown = self.wait(number, limit=limit)
        assert shown["job"]["state"] == state, self.tell(number)
        return shown

    def tell(self, job):
        return self.ctl("show", job, check=False).stdout + "\n" + self.log(15)

    def workers(self, job):
        """{(role, rank): pid} of those that run; remembers their cgroups."""
        found = {}
        for worker in self.show(job).get("workers", []):
            if worker.get("state") == "RUNNING" and worker.get("pid"):
                found[worker["role"], worker.get("rank", 0)] = worker["pid"]
                with contextlib.suppress(FileNotFoundError):
                    self.cgroups |= cgroups_of(worker["pid"])
        return found

    def running(self, job, count):
        """Waits until so many workers run; gives their pids by (role, rank)."""
        return self.while_it_lives(job, lambda: len(found := self.workers(job)) == count and found)

    def while_it_lives(self, job, condition):
        """The first true value of condition(); fails at once when the job has ended without it."""
        def there():
            ended = self.state(job) in ENDED
            value = condition()
            assert value or not ended, self.tell(job)
            return value

        return until(there, lambda: self.tell(job))

    def output(self, job, *words):
        """Bytes of a worker's stdout."""
        return self.ctl("logs", job, *words, text=False).stdout

    def said(self, job, text, *words):
        """Waits until a worker has written the text."""
        return self.while_it_lives(job, lambda: text.encode() in (out := self.ctl(
            "logs", job, *words, text=False, check=False).stdout) and out)

    def cancel(self, job, *words):
        self.ctl("cancel", job, "--wait", *words)
        return self.show(job)

    # --- database, HTTP

    def sql(self, query, *values):
        connection = psycopg2.connect(host=str(self.dir / "postgres/run"), port=5432,
                                      dbname="postgres", user="rondo", connect_timeout=10)
        try:
            with connection, connection.cursor() as cursor:
                cursor.execute(query, values)
                return cursor.fetchall()
        finally:
            connection.close()

    def http(self, path):
        """(status, text) of the status endpoint."""
        try:
            with urllib.request.urlopen(f"http://{self.status_listen}{path}", timeout=20) as reply:
                return reply.status, reply.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    # --- gRPC

    def issue(self, *words, out="issued"):
        """A certificate of this cluster's authority; gives the directory."""
        directory = self.home / out
        subprocess.run([BIN / "rondod", "ca", "issue", "--ca", self.dir / "ca", "--out", directory,
                        *words], check=True, timeout=LIMIT_S, stdout=subprocess.DEVNULL)
        return directory

    @contextlib.contextmanager
    def channel(self, directory=None, file="ctl", **options):
        import grpc
        directory = pathlib.Path(directory or self.dir / "ctl")
        credentials = grpc.ssl_channel_credentials(
            (directory / "ca.pem").read_bytes(), (directory / f"{file}.key").read_bytes(),
            (directory / f"{file}.pem").read_bytes())
        with grpc.secure_channel(self.listen, credentials,
                                 options=[("grpc.enable_http_proxy", 0),
                                          ("grpc.max_receive_message_length", 64 << 20),
                                          ("grpc.use_local_subchannel_pool", 1),
                                          *options.items()]) as channel:
            yield channel

    @contextlib.contextmanager
    def control(self, directory=None):
        with self.channel(directory) as channel:
            yield stubs().control_grpc.ControlStub(channel)

    # --- the end

    def stop(self):
        """Ends all, by pid, and gives a list of what was left behind."""
        left = []
        if self.daemon and self.daemon.poll() is None:
            left += self._end_jobs()
            self.daemon.send_signal(signal.SIGTERM)
            try:
                if self.daemon.wait(60) != 0:
                    left.append(f"daemon's exit {self.daemon.returncode}")
            except subprocess.TimeoutExpired:
                left.append("daemon does not end")
                self.daemon.kill()
                self.daemon.wait(LIMIT_S)
        left += self._end_processes()
        left += [f"cgroup {path}" for path in self.cgroups if os.path.exists(path)]
        for address in (self.listen, self.status_listen):
            host, port = address.rsplit(":", 1)
            if port == "0":
                continue
            with contextlib.suppress(OSError), socket.create_connection((host, int(port)), 5):
                left.append(f"port {address}")
        return left

    def _end_jobs(self):
        active = self.json("jobs", "--active", "-n", "1000").get("jobs", [])
        if active:
            self.ctl("cancel", "--now", "--wait", *[job["id"] for job in active], check=False)
        left = [f"job {job['id']} {job['spec']['name']} {job['state']}" for job in active]
        end = time.monotonic() + 30
        while (work := sorted(self.dir.glob("agents/*/work/*"))) and time.monotonic() < end:
            time.sleep(0.1)
        return left + [str(path) for path in work]

    def _end_processes(self):
        end = time.monotonic() + 20
        while (found := self.processes()) and time.monotonic() < end:
            time.sleep(0.1)
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return [f"process {pid} {command}" for pid, command in found.items()]


def interrupted(signum, frame):
    """Told to end: fixtures clean up all the same."""
    raise KeyboardInterrupt


@contextlib.contextmanager
def running(agents=2, slots=4, flags=(), address="127.0.0.1", wrap=(), env=(), prepare=None):
    """A cluster, started; afterwards nothing of it may be left. address: of its gRPC services.
    wrap: a command that runs the daemon (in namespaces of its own, say); env: more variables for
    it; prepare(cluster): called before the first start."""
    for program in ("rondod", "rondo-agent", "rondo-shim", "rondoctl", "rondo-counter"):
        if not (BIN / program).exists():
            pytest.skip(f"{BIN / program} is not built")
    home = tempfile.mkdtemp(prefix="rondo-e2e-", dir="/tmp")
    os.chmod(home, 0o711)
    cluster = Cluster(home, agents, slots, flags, address, wrap, env)
    signal.signal(signal.SIGTERM, interrupted)
    try:
        if prepare:
            prepare(cluster)
        cluster.start()
        yield cluster
    finally:
        left = cluster.stop()
        if left or os.environ.get("RONDO_KEEP"):
            print(cluster.log(200))
        if not os.environ.get("RONDO_KEEP"):
            shutil.rmtree(home, ignore_errors=True)
            for path in cluster.slots_in_memory():
                shutil.rmtree(path, ignore_errors=True)
    assert not left, "left behind:\n" + "\n".join(left)
