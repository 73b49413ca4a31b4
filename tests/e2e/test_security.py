"""Who may do what; modes of files; secrets; limits. Against the real daemon."""

import os
import pathlib
import signal
import socket
import stat
import subprocess
import uuid

import pytest

import rondo_cluster
from rondo_cluster import BIN, PYTHON, alive, spec, until

grpc = pytest.importorskip("grpc")
DENIED = grpc.StatusCode.PERMISSION_DENIED
SECRET = "hunter2-" + "s3cr3t"


@pytest.fixture(scope="module")
def cluster():
    with rondo_cluster.running(agents=2, slots=2) as it:
        yield it


@pytest.fixture(scope="module")
def messages():
    return rondo_cluster.stubs().control


@pytest.fixture(scope="module")
def people(cluster):
    """Directories of certificates by name."""
    return {
        "viewer": cluster.issue("--kind", "user", "--name", "vera", "--role", "viewer",
                                out="vera"),
        "submitter": cluster.issue("--kind", "user", "--name", "sam", "--role", "submitter",
                                   "--projects", "nlp", out="sam"),
        "admin": cluster.dir / "ctl",
    }


def submit_request(messages, project="nlp", **env):
    request = messages.SubmitRequest(request_id=uuid.uuid4().hex)
    request.spec.name = "secured"
    request.spec.project = project
    role = request.spec.roles.add(name="w")
    role.command.extend(["/bin/sleep", "60"])
    for name, value in env.items():
        role.env.add(name=name, value=value)
    return request


def code_of(call):
    with pytest.raises(grpc.RpcError) as info:
        call()
    return info.value.code()


# --- roles

def test_roles_on_a_few_methods(cluster, people, messages):
    with cluster.control(people["submitter"]) as sam, cluster.control(people["viewer"]) as vera, \
            cluster.control(people["admin"]) as admin:
        job = sam.Submit(submit_request(messages), timeout=30).job
        other = admin.Submit(submit_request(messages, project="vision"), timeout=30).job
        cancel = messages.CancelRequest(request_id=uuid.uuid4().hex, job=job, now=True)
        assert code_of(lambda: vera.Submit(submit_request(messages), timeout=30)) is DENIED
        assert code_of(lambda: vera.Cancel(cancel, timeout=30)) is DENIED
        assert code_of(lambda: sam.Submit(submit_request(messages, project="vision"),
                                          timeout=30)) is DENIED
        assert code_of(lambda: sam.Cancel(messages.CancelRequest(
            request_id=uuid.uuid4().hex, job=other), timeout=30)) is DENIED
        for user in (sam, vera):
            assert code_of(lambda u=user: u.SetNode(messages.SetNodeRequest(
                request_id=uuid.uuid4().hex, node="n1", admin=2), timeout=30)) is DENIED
        assert vera.ShowJob(messages.ShowJobRequest(job=job), timeout=30).job.id == job
        assert sam.Cancel(cancel, timeout=30).job.id == job
        admin.Cancel(messages.CancelRequest(request_id=uuid.uuid4().hex, job=other, now=True),
                     timeout=30)
    for each in (job, other):
        cluster.wait(each, "CANCELLED")
    actors = dict(cluster.sql("select job, actor from event where job = any(%s) and "
                              "to_state = 'QUEUED' and actor is not null", [job, other]))
    assert actors[job] == "user/sam"


def test_a_user_is_no_agent_and_an_agent_no_user(cluster, people, messages):
    agents = rondo_cluster.stubs()
    with cluster.channel(people["admin"]) as channel:
        stub = agents.agent_grpc.AgentsStub(channel)
        assert code_of(lambda: list(stub.Control(iter(()), timeout=30))) is DENIED
    with cluster.channel(cluster.dir / "agents/n1", file="agent") as channel:
        stub = agents.control_grpc.ControlStub(channel)
        assert code_of(lambda: stub.Submit(submit_request(messages), timeout=30)) is DENIED
        assert code_of(lambda: stub.ListJobs(messages.ListJobsRequest(), timeout=30)) is DENIED


def test_no_certificate_another_authority_plaintext(cluster, messages, tmp_path):
    request = messages.StatusRequest()
    ca = (cluster.dir / "ctl/ca.pem").read_bytes()

    def status_over(channel):
        with channel:
            stub = rondo_cluster.stubs().control_grpc.ControlStub(channel)
            return code_of(lambda: stub.Status(request, timeout=10))

    unavailable = grpc.StatusCode.UNAVAILABLE
    options = [("grpc.enable_http_proxy", 0)]
    assert status_over(grpc.insecure_channel(cluster.listen, options=options)) is unavailable
    assert status_over(grpc.secure_channel(
        cluster.listen, grpc.ssl_channel_credentials(ca), options=options)) is unavailable
    subprocess.run([BIN / "rondod", "ca", "init", "--ca", tmp_path / "ca"], check=True, timeout=30,
                   stdout=subprocess.DEVNULL)
    subprocess.run([BIN / "rondod", "ca", "issue", "--ca", tmp_path / "ca", "--name", "eve",
                    "--role", "admin", "--out", tmp_path / "eve"], check=True, timeout=30,
                   stdout=subprocess.DEVNULL)
    stranger = grpc.ssl_channel_credentials(ca, (tmp_path / "eve/ctl.key").read_bytes(),
                                            (tmp_path / "eve/ctl.pem").read_bytes())
    assert status_over(grpc.secure_channel(cluster.listen, stranger,
                                           options=options)) is unavailable
    assert cluster.ctl("status").returncode == 0


# --- agents

def hello(node, **more):
    up = rondo_cluster.stubs().agent.AgentUp(seq=1)
    up.hello.protocol = 1
    up.hello.node = node
    up.hello.boot_id = up.hello.spool_id = up.hello.instance = uuid.uuid4().hex
    up.hello.inventory.hostname = node
    for name, value in more.items():
        setattr(up.hello, name, value)
    return up


def refused(cluster, directory, up, file="agent"):
    """What the daemon says to this hello before it closes the stream, or the status."""
    with cluster.channel(directory, file=file) as channel:
        stub = rondo_cluster.stubs().agent_grpc.AgentsStub(channel)
        text = ""
        try:
            for down in stub.Control(iter([up]), timeout=20):
                text += down.refused
        except grpc.RpcError as error:
            text += f"{error.code().name} {error.details()}"
        return text


def test_an_agent_speaks_for_its_own_node_only(cluster):
    node = cluster.issue("--kind", "agent", "--name", "n9", out="n9")
    text = refused(cluster, node, hello("n1"))
    assert "another node than the certificate" in text, text
    assert cluster.sql("select seen from node where name = 'n1'") == [("HEALTHY",)]
    assert cluster.sql("select 1 from node where name = 'n9'") == []


def test_another_protocol_is_told_so(cluster):
    node = cluster.issue("--kind", "agent", "--name", "n8", out="n8")
    assert "protocol" in refused(cluster, node, hello("n8", protocol=999)).lower()


def test_m9_the_second_claimant_is_refused_and_the_first_untouched(cluster):
    """A copy of n1's certificate on another machine, as a real agent."""
    job = cluster.submit(spec("claimed", "sleep 600", workers=2))
    workers = cluster.running(job, 2)
    own = cluster.dir / "agents/n1"
    state = cluster.home / "copy"
    log = open(cluster.home / "copy.log", "wb")
    copy = subprocess.Popen(
        [BIN / "rondo-agent", "--node=n1", f"--daemon={cluster.listen}", f"--state-dir={state}",
         f"--cert={own}/agent.pem", f"--key={own}/agent.key", f"--ca={own}/ca.pem",
         "--cpu-slots=2", "--port-first=30000", "--port-last=30100"],
        stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=cluster.home)
    try:
        until(lambda: b"another agent of that name" in (
            cluster.home / "copy.log").read_bytes() or copy.poll() is not None,
            lambda: (cluster.home / "copy.log").read_text())
        assert cluster.running(job, 2) == workers
        assert cluster.sql("select seen from node where name = 'n1'") == [("HEALTHY",)]
    finally:
        if copy.poll() is None:
            copy.send_signal(signal.SIGTERM)
        copy.wait(30)
        log.close()
    assert all(alive(pid) for pid in workers.values())
    cluster.cancel(job, "--now")


# --- what others on the machine can see

def test_keys_and_sockets_are_ours_alone(cluster):
    seen = 0
    for path in cluster.dir.rglob("*"):
        mode = path.lstat().st_mode
        if path.suffix == ".key":
            assert stat.S_IMODE(mode) == 0o600, path
            seen += 1
        assert not mode & stat.S_IWOTH or stat.S_ISLNK(mode), path
        if stat.S_ISSOCK(mode):
            closed = [parent for parent in (path, *path.parents) if cluster.dir in parent.parents
                      and not parent.stat().st_mode & stat.S_IRWXO]
            assert closed, f"{path} can be reached by others"
            seen += 1
    assert seen >= 6
    for name in ("ca", "daemon", "ctl"):
        assert stat.S_IMODE((cluster.dir / name).stat().st_mode) == 0o700
    tcp = pathlib.Path("/proc/net/tcp").read_text()
    inodes = {os.readlink(fd)[8:-1] for fd in pathlib.Path(
        f"/proc/{cluster.postmaster()}/fd").iterdir() if os.readlink(fd).startswith("socket:")}
    assert not [line for line in tcp.splitlines()[1:] if line.split()[9] in inodes]


def test_workers_cannot_read_what_is_ours(cluster):
    """As root's agents run workers as nobody; without root they are the same user."""
    if os.geteuid() != 0:
        pytest.skip("needs root: only then are workers somebody else")
    names = ["ctl/ctl.key", "ca/ca.key", "daemon/daemon.key", "agents/n1/agent.key",
             "postgres/data/PG_VERSION", "agents/n1/spool/id"]
    files = " ".join(str(cluster.dir / name) for name in names)
    job = cluster.run(spec("curious", f"id -u; for f in {files}; do cat $f && echo READ; done; "
                           f"ls {cluster.dir}/agents/n2/work; true"))["job"]["id"]
    out = cluster.output(job).decode()
    assert "READ" not in out and out.split()[0] != "0"
    for name in names[:5]:
        assert (cluster.dir / name).exists(), name


def test_secrets_show_nowhere(cluster, people, messages):
    with cluster.control(people["submitter"]) as sam, cluster.control(people["viewer"]) as vera:
        job = sam.Submit(submit_request(messages, TOKEN=SECRET), timeout=30).job
        workers = cluster.running(job, 1)
        commands = b"".join(
            (entry / "cmdline").read_bytes() for entry in pathlib.Path("/proc").iterdir()
            if entry.name.isdigit() and (entry / "cmdline").exists())
        assert SECRET.encode() not in commands
        assert SECRET.encode() in pathlib.Path(f"/proc/{workers['w', 0]}/environ").read_bytes()
        shown = vera.ShowJob(messages.ShowJobRequest(job=job), timeout=30)
        listed = vera.ListJobs(messages.ListJobsRequest(), timeout=30)
        assert SECRET not in str(shown) + str(listed)
        watched = vera.Watch(messages.WatchRequest(after_seq=-1, job=job, jobs=True), timeout=30)
        assert SECRET not in str(next(watched))
        watched.cancel()
        assert SECRET in str(sam.ShowJob(messages.ShowJobRequest(job=job), timeout=30))
    for path in ("/api/v1/jobs", f"/api/v1/jobs/{job}", "/metrics", "/", "/readyz"):
        assert SECRET not in cluster.http(path)[1]
    assert SECRET not in cluster.log(10_000)
    for log in cluster.dir.glob("agents/*/agent.log"):
        assert SECRET not in log.read_text()
    cluster.cancel(job, "--now")


# --- limits

def test_a_request_that_is_too_large(cluster, messages):
    request = submit_request(messages, BIG="x" * (9 << 20))
    with cluster.control() as control:
        code = code_of(lambda: control.Submit(request, timeout=30))
        assert code in (grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.INVALID_ARGUMENT)
        assert control.Status(messages.StatusRequest(), timeout=30).ready


ENDLESS = """
import os, rondo
job = rondo.join()
at = os.open(os.path.join(job.save_dir(1), "w"), os.O_CREAT | os.O_WRONLY)
os.ftruncate(at, 15 << 40)
job.commit(1, 1)
"""


def test_a_checkpoint_of_fifteen_tebibytes_of_nothing_holds_up_nobody(cluster):
    """Neither the end of its agent nor that of its job. No byte of it is on the disk."""
    job = cluster.submit(spec("endless", [PYTHON, "-c", ENDLESS],
                              checkpoint={"writers": "RANK_ZERO"}))
    node = cluster.while_it_lives(job, lambda: [
        worker["node"] for worker in cluster.show(job).get("workers", [])
        if worker.get("state") == "STOPPING"])[0]
    pid = cluster.agent_pid(node)
    os.kill(pid, signal.SIGTERM)
    until(lambda: not alive(pid), "the agent ends", limit=10)
    until(cluster.is_ready, "another one takes its place")
    cluster.cancel(job, "--now")
    assert cluster.state(job) == "CANCELLED"


def test_bad_requests_name_the_field(cluster, messages):
    request = submit_request(messages)
    request.spec.roles[0].name = "../../etc"
    with cluster.control() as control:
        with pytest.raises(grpc.RpcError) as info:
            control.Submit(request, timeout=30)
        assert info.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert "roles.0.name" in info.value.details()
        request.request_id = "short"
        assert code_of(lambda: control.Submit(request, timeout=30)) is \
            grpc.StatusCode.INVALID_ARGUMENT


def test_one_request_id_for_two_requests(cluster, messages):
    request = submit_request(messages)
    request.spec.hold = True
    with cluster.control() as control:
        job = control.Submit(request, timeout=30).job
        request.spec.name = "something-else"
        assert code_of(lambda: control.Submit(request, timeout=30)) in (
            grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.ALREADY_EXISTS,
            grpc.StatusCode.FAILED_PRECONDITION)
    cluster.cancel(job)


def test_http_refuses_what_it_does_not_know(cluster):
    assert cluster.http("/nothing")[0] == 404
    assert cluster.http("/../../etc/passwd")[0] in (400, 404)
    host, port = cluster.status_listen.rsplit(":", 1)
    with socket.create_connection((host, int(port)), 20) as connection:
        connection.sendall(b"POST /api/v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nhi")
        assert b" 405 " in connection.recv(4096).split(b"\r\n")[0]
    with socket.create_connection((host, int(port)), 20) as connection:
        connection.sendall(b"\x00\xff" * 100_000)
    assert cluster.http("/healthz")[0] == 200


def test_revoked_certificate_is_refused(cluster, messages):
    """The list is read without a restart."""
    leaver = cluster.issue("--kind", "user", "--name", "lee", "--role", "viewer", out="lee")
    with cluster.control(leaver) as lee:
        assert lee.Status(messages.StatusRequest(), timeout=30).ready
        subprocess.run([BIN / "rondod", "ca", "revoke", "--ca", cluster.dir / "ca", "--cert",
                        leaver / "ctl.pem"], check=True, timeout=30, stdout=subprocess.DEVNULL)

        def gone():
            try:
                lee.Status(messages.StatusRequest(), timeout=10)
            except grpc.RpcError as error:
                return error.code()
            return None

        until(gone, "revocation takes hold")
    assert cluster.ctl("status").returncode == 0


def test_arguments_pass_no_shell(cluster):
    text = "$(touch /tmp/rondo-pwned); `id` ' \" \\ \n *"
    job = cluster.run(spec("argv", [PYTHON, "-c", "import sys; sys.stdout.write(sys.argv[1])",
                                    text]))["job"]["id"]
    assert cluster.output(job).decode() == text
    assert not os.path.exists("/tmp/rondo-pwned")
