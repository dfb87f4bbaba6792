"""Requirements of 10/FLP for clients and servers. `tests/interop` tests the wire format with
pyzmq."""

from __future__ import annotations

import pytest
from tests.spec.requirement import requirement
from tests.support.freelance_engines import ClientBench, ServerBench

from requite.errors import RemoteViolation
from requite.framing import SocketType, Zmtp
from requite.protocols.freelance import wire
from requite.protocols.freelance.agent import AgentClient
from requite.speaks.flp import service_plans
from requite.speaks.plans import WorkerSettings
from requite.speaks.registry import read_endpoints
from requite.worker import service


# --- clients --------------------------------------------------------------------------------------
@requirement("flp:ping", "flp:client:pings")
def test_a_client_pings_at_its_intervals() -> None:
    bench = ClientBench(AgentClient)
    bench.join("a")
    bench.advance(6.5)
    assert bench.to("a") == [[b"PING"]] * 4
    assert bench.sent_at == [100.0, 102.0, 104.0, 106.0]


@requirement("flp:server-gone")
@pytest.mark.parametrize(("silent_s", "live"), [(5.9, 1), (6.1, 0)])
def test_a_silent_server_is_dropped_after_three_intervals(silent_s: float, live: int) -> None:
    bench = ClientBench(AgentClient)
    bench.join("a")
    bench.advance(silent_s)
    assert bench.client.snapshot().live == live


@requirement("flp:failover", "flp:replaceable")
def test_a_call_moves_to_another_server_after_each_loss() -> None:
    bench = ClientBench(AgentClient, servers=2, attempts=10)
    bench.join("a")
    bench.join("b")
    bench.submit(1)
    for gone, next_one in (("a", "b"), ("b", "a"), ("a", "b")):
        bench.lose(gone)
        assert len(bench.requests_to(next_one)) >= 1
        bench.join(gone)
    bench.answer("b")
    assert bench.replies[1].attempts == 4


@requirement("flp:addressed", "flp:request")
def test_a_request_goes_to_one_server_with_a_control_frame_in_front() -> None:
    bench = ClientBench(AgentClient, servers=3)
    for peer in "abc":
        bench.join(peer)
    bench.submit(1, b"two", b"frames")
    bench.submit(2, b"")
    assert bench.requests_to("a") == [[b"1", b"two", b"frames"], [b"2", b""]]
    assert bench.requests_to("b") == bench.requests_to("c") == []


# --- servers --------------------------------------------------------------------------------------
@requirement("flp:pong", "flp:server:never-first")
def test_a_server_sends_nothing_but_answers() -> None:
    bench = ServerBench()
    bench.join("c")
    bench.advance(100.0)
    assert bench.sent == []
    bench.say("c", [b"PING"], [b"PING"])
    assert bench.to("c") == [[b"PONG"], [b"PONG"]]


@requirement("flp:reply", "flp:request:control-frame")
@pytest.mark.parametrize("control", [b"1", b"", b"PING", b"\0" * 300])
def test_the_reply_has_the_control_frame_of_its_request(control: bytes) -> None:
    bench = ServerBench()
    bench.join("c")
    job = bench.request("c", control, b"a", b"b")
    assert bench.requests[job].frames == [b"a", b"b"]
    bench.finish(job, b"x", b"y")
    assert bench.to("c") == [[control, b"x", b"y"]]


@requirement("flp:threads")
def test_a_server_runs_several_requests_and_replies_in_any_order() -> None:
    bench = ServerBench(capacity=3)
    bench.join("c")
    jobs = [bench.request("c", b"%d" % i, b"x") for i in range(3)]
    for job in reversed(jobs):
        bench.finish(job)
    assert [message[0] for message in bench.to("c")] == [b"2", b"1", b"0"]


@requirement("flp:server:identity", "flp:server:public-endpoint", "flp:server:router")
@pytest.mark.parametrize(
    ("bind", "identity"),
    [
        ("flp://192.168.55.162:5055", b"tcp://192.168.55.162:5055"),
        ("flp://[::1]:5055", b"tcp://[::1]:5055"),
        ("flp://*:5055?public=tcp://names.example.org:7000", b"tcp://names.example.org:7000"),
        ("flp+ipc:///run/names.sock", b"ipc:///run/names.sock"),
    ],
)
def test_a_server_announces_its_public_endpoint(bind: str, identity: bytes) -> None:
    settings = WorkerSettings(None, None, None, None, None, None, 1000, b"a-server", None)
    echo = service("echo")(lambda request: request.body)
    [part] = service_plans(read_endpoints((), bind), [echo], settings)
    theirs, ours = part.connections.listen[0].make_framing(), Zmtp(SocketType.ROUTER)
    shake_hands(theirs, ours)
    assert ours.peer_identity == identity
    assert ours.peer_socket_type is SocketType.ROUTER
    assert theirs.peer_identity == b""


def shake_hands(one: object, other: Zmtp) -> None:
    """Exchange the handshakes of two framings."""
    assert isinstance(one, Zmtp)
    one.receive(other.opening())
    other.receive(one.opening())
    while not (one.ready and other.ready):
        one.receive(other.output())
        other.receive(one.output())


# --- golden frames --------------------------------------------------------------------------------
@requirement("flp:ping", "flp:pong", "flp:request", "flp:reply")
def test_golden_frames_are_decoded() -> None:
    agent = wire.Model.AGENT
    assert wire.decode_request([b"PING"], agent) == wire.Ping()
    assert wire.decode_request([b"PING", b"body"], agent) == wire.Request([b"PING"], [b"body"])
    assert wire.decode_flp_reply([b"PONG"]) == wire.Pong()
    assert wire.decode_flp_reply([b"PONG", b"body"]) == wire.Reply(b"PONG", [b"body"])
    for alone in (b"PONG", b"", b"17"):
        with pytest.raises(RemoteViolation):
            wire.decode_request([alone], agent)
