"""Our gRPC server against grpcio: another implementation of the wire, of TLS and of protobuf."""

import os
import pathlib
import subprocess
import sys
import threading
import types

import pytest

from rondo_cluster import beside_the_sdk

grpc = pytest.importorskip("grpc")

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("RONDO_BUILD", ROOT / "build"))
SERVER = (BUILD if BUILD.is_absolute() else ROOT / BUILD) / "tests/rpc_interop_server"
LIMIT_S = 60


@pytest.fixture(scope="module")
def stubs(tmp_path_factory):
    """The Python side of our .proto files, made afresh."""
    out = tmp_path_factory.mktemp("stubs")
    protos = sorted((ROOT / "proto/rondo/v1").glob("*.proto"))
    subprocess.run(
        ["protoc", f"-I{ROOT / 'proto'}", "-I/usr/include", f"--python_out={out}",
         f"--grpc_out={out}", "--plugin=protoc-gen-grpc=/usr/bin/grpc_python_plugin",
         "/usr/include/protobuf-c/protobuf-c.proto", *map(str, protos)],
        check=True, timeout=LIMIT_S)
    # protoc writes protobuf-c/protobuf-c.proto to protobuf_c/ and imports it from there.
    sys.path.insert(0, str(out))
    beside_the_sdk(out)
    try:
        import rondo.v1.agent_pb2 as agent
        import rondo.v1.agent_pb2_grpc as agent_grpc
        import rondo.v1.control_pb2 as control
        import rondo.v1.control_pb2_grpc as control_grpc
    finally:
        sys.path.remove(str(out))
    return types.SimpleNamespace(agent=agent, agent_grpc=agent_grpc, control=control,
                                 control_grpc=control_grpc)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    if not SERVER.exists():
        pytest.skip(f"{SERVER} is not built")
    home = tmp_path_factory.mktemp("rpc")
    process = subprocess.Popen([str(SERVER), str(home)], stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, text=True)
    word, port = process.stdout.readline().split()
    assert word == "port"
    yield home, int(port)
    process.stdin.close()
    assert process.wait(timeout=LIMIT_S) == 0


def channel_of(server, who, **options):
    home, port = server
    credentials = grpc.ssl_channel_credentials(
        (home / "ca.pem").read_bytes(), (home / f"{who}.key").read_bytes(),
        (home / f"{who}.pem").read_bytes())
    return grpc.secure_channel(f"localhost:{port}", credentials, options=list(options.items()))


@pytest.fixture
def control(server, stubs):
    with channel_of(server, "ada") as channel:
        yield stubs.control_grpc.ControlStub(channel)


def code_of(call):
    with pytest.raises(grpc.RpcError) as info:
        call()
    return info.value.code(), info.value.details()


def test_unary_and_64_bit_numbers(control, stubs):
    reply = control.Submit(stubs.control.SubmitRequest(request_id="grüße"), timeout=LIMIT_S)
    assert (reply.note, reply.job) == ("grüße", 2**63 - 1)


def test_empty_message(control, stubs):
    assert control.Submit(stubs.control.SubmitRequest(), timeout=LIMIT_S).note == ""


def test_status_text_is_utf8(control, stubs):
    code, text = code_of(lambda: control.Cancel(stubs.control.CancelRequest(), timeout=LIMIT_S))
    assert code is grpc.StatusCode.FAILED_PRECONDITION
    assert text == "schon vorüber — ended"


def test_server_stream(control, stubs):
    replies = list(control.Watch(stubs.control.WatchRequest(after_seq=1000), timeout=LIMIT_S))
    assert len(replies) == 1000
    assert replies[-1].caught_up and not replies[-2].caught_up


def test_client_stream(control, stubs):
    pieces = (stubs.control.PutCodeRequest(data=b"x" * 100_000) for _ in range(30))
    assert control.PutCode(pieces, timeout=LIMIT_S).bytes == 3_000_000


def test_large_reply(control, stubs):
    reply = control.ListJobs(stubs.control.ListJobsRequest(before=50_000), timeout=LIMIT_S)
    assert len(reply.jobs) == 50_000


def test_bidi_stream(server, stubs):
    with channel_of(server, "node-7") as channel:
        ups = (stubs.agent.AgentUp(seq=seq) for seq in range(1, 501))
        downs = list(stubs.agent_grpc.AgentsStub(channel).Control(ups, timeout=LIMIT_S))
    assert [down.ack_seq for down in downs] == list(range(1, 501))


def test_deadline(control, stubs):
    code, _ = code_of(lambda: control.Hold(stubs.control.HoldRequest(), timeout=0.5))
    assert code is grpc.StatusCode.DEADLINE_EXCEEDED


def test_cancel_in_the_middle_of_a_stream(server, stubs):
    stop = threading.Event()

    def ups():
        yield stubs.agent.AgentUp(seq=1)
        stop.wait(LIMIT_S)

    with channel_of(server, "node-7") as channel:
        call = stubs.agent_grpc.AgentsStub(channel).Control(ups(), timeout=LIMIT_S)
        assert next(call).ack_seq == 1
        call.cancel()
        stop.set()
        assert call.code() is grpc.StatusCode.CANCELLED


def test_garbage_bytes(server):
    with channel_of(server, "ada") as channel:
        submit = channel.unary_unary("/rondo.v1.Control/Submit")
        code, _ = code_of(lambda: submit(b"\xff\xff\xff", timeout=LIMIT_S))
        assert code is grpc.StatusCode.INVALID_ARGUMENT
        code, text = code_of(lambda: submit(b"\x0a\x02\xc3\x28", timeout=LIMIT_S))
        assert code is grpc.StatusCode.INVALID_ARGUMENT and "UTF-8" in text


def test_unknown_method_does_not_hang(server):
    with channel_of(server, "ada") as channel:
        nope = channel.unary_unary("/rondo.v1.Control/Nope")
        assert code_of(lambda: nope(b"", timeout=LIMIT_S))[0] is grpc.StatusCode.UNIMPLEMENTED


def test_no_message_at_all(server):
    with channel_of(server, "ada") as channel:
        submit = channel.stream_unary("/rondo.v1.Control/Submit")
        code, _ = code_of(lambda: submit(iter(()), timeout=LIMIT_S))
        assert code is grpc.StatusCode.INVALID_ARGUMENT


def test_oversize_request(server):
    with channel_of(server, "ada") as channel:
        submit = channel.unary_unary("/rondo.v1.Control/Submit")
        code, _ = code_of(lambda: submit(b"\x0a" + b"x" * (9 << 20), timeout=LIMIT_S))
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED


def test_compressed_request(server, stubs):
    with channel_of(server, "ada") as channel:
        control = stubs.control_grpc.ControlStub(channel)
        request = stubs.control.SubmitRequest(request_id="z" * 10_000)
        reply = control.Submit(request, timeout=LIMIT_S, compression=grpc.Compression.Gzip)
    assert reply.note == request.request_id


def test_roles(server, stubs):
    with channel_of(server, "vera") as channel:
        control = stubs.control_grpc.ControlStub(channel)
        code, _ = code_of(lambda: control.ShowJob(stubs.control.ShowJobRequest(), timeout=LIMIT_S))
        assert code is grpc.StatusCode.PERMISSION_DENIED
        agents = stubs.agent_grpc.AgentsStub(channel)
        code, _ = code_of(lambda: list(agents.Control(iter(()), timeout=LIMIT_S)))
        assert code is grpc.StatusCode.PERMISSION_DENIED


def test_no_certificate(server, stubs):
    home, port = server
    credentials = grpc.ssl_channel_credentials((home / "ca.pem").read_bytes())
    with grpc.secure_channel(f"localhost:{port}", credentials) as channel:
        control = stubs.control_grpc.ControlStub(channel)
        code, _ = code_of(lambda: control.Submit(stubs.control.SubmitRequest(), timeout=LIMIT_S))
        assert code is grpc.StatusCode.UNAVAILABLE


def test_plaintext(server, stubs):
    with grpc.insecure_channel(f"localhost:{server[1]}") as channel:
        control = stubs.control_grpc.ControlStub(channel)
        code, _ = code_of(lambda: control.Submit(stubs.control.SubmitRequest(), timeout=LIMIT_S))
        assert code is grpc.StatusCode.UNAVAILABLE
