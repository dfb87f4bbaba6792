"""The server of all three Freelance models."""

from __future__ import annotations

import pytest
from tests.support.freelance_engines import ServerBench

from requite.chronicle import Chronicle, Kind
from requite.engine import Finished, PeerBlocked, PeerWritable, Produced, Progressed, Started
from requite.errors import ConfigurationError, LocalViolation
from requite.protocols.freelance.policy import ClientPolicy, ServerPolicy
from requite.protocols.freelance.wire import Model
from requite.request import Status


def test_pings_are_answered_at_once_when_all_handlers_are_busy() -> None:
    b = ServerBench(capacity=1)
    b.join("c")
    b.request("c", b"1", b"x")
    b.say("c", [b"2", b"y"], [b"PING"])
    assert b.to("c") == [[b"PONG"]]
    assert b.server.snapshot().pings == 1
    assert b.server.snapshot().waiting == 1


def test_clients_are_served_in_turn() -> None:
    b = ServerBench(capacity=1)
    b.join("c")
    b.join("d")
    b.say("c", *([b"%d" % i, b"c%d" % i] for i in range(4)))
    b.say("d", *([b"%d" % i, b"d%d" % i] for i in range(2)))
    while b.running:
        b.finish(b.running[0])
    assert b.bodies() == [b"c0", b"c1", b"d0", b"c2", b"d1", b"c3"]
    b.assert_empty()


def test_a_client_over_the_queue_limit_is_paused() -> None:
    b = ServerBench(capacity=1, queue_max=4)
    b.join("c")
    b.say("c", *([b"%d" % i, b"x"] for i in range(6)))
    assert b.unread == {"c"}
    b.finish(b.running[0])
    b.finish(b.running[0])
    assert b.unread == {"c"}
    b.finish(b.running[0])
    assert b.unread == set()


def test_a_lost_clients_requests_are_dropped_and_its_handlers_cancelled() -> None:
    b = ServerBench(capacity=1)
    b.join("c")
    job = b.request("c", b"1", b"x")
    b.say("c", [b"2", b"y"])
    b.lose("c")
    assert "reset" in b.abandoned[job]
    assert b.server.snapshot().dropped == {"lost": 1}
    b.finish(job, status=Status.CANCELLED)
    assert b.bodies() == [b"x"]
    assert b.sent == []
    b.assert_empty()


def test_partial_replies_are_joined() -> None:
    b = ServerBench()
    b.join("c")
    job = b.request("c", b"7", b"x")
    b.feed(Produced(job, (b"a",)))
    b.feed(Produced(job, (b"b", b"c")))
    b.finish(job, b"d")
    assert b.to("c") == [[b"7", b"a", b"b", b"c", b"d"]]


def test_a_reply_over_the_size_limit_is_abandoned() -> None:
    b = ServerBench(reply_size_max=10)
    b.join("c")
    job = b.request("c", b"7", b"x")
    b.feed(Produced(job, (b"12345678901",)))
    assert "more than 10 bytes" in b.abandoned[job]
    b.feed(Produced(job, (b"more",)))
    b.finish(job, b"end")
    assert b.sent == []


@pytest.mark.parametrize("status", [Status.FAILED, Status.CANCELLED])
def test_a_failed_request_gets_no_reply(status: Status) -> None:
    b = ServerBench()
    b.join("c")
    b.finish(b.request("c", b"7", b"x"), b"why", status=status)
    assert b.sent == []
    assert len(b.warnings) == (status is Status.FAILED)


@pytest.mark.parametrize("message", [[b""], [b"PONG"], [b"ping"]])
def test_a_malformed_request_is_dropped_and_its_client_stays_connected(
    message: list[bytes],
) -> None:
    b = ServerBench()
    b.join("c")
    b.say("c", message, [b"1", b"good"])
    assert b.bodies() == [b"good"]
    assert b.server.snapshot().dropped == {"malformed": 1}
    assert "c" in b.peers


def test_a_control_frame_may_be_anything() -> None:
    b = ServerBench()
    b.join("c")
    for control in (b"", b"PING", b"\0\xff" * 100):
        b.finish(b.request("c", control, b"x"), b"y")
        assert b.sent[-1] == ("c", [control, b"y"])


@pytest.mark.parametrize(
    ("model", "message", "body", "reply"),
    [
        (Model.FAILOVER, [b"", b"x", b"y"], [b"x", b"y"], [b"", b"r"]),
        (Model.FAILOVER, [b"hop", b"", b"x"], [b"x"], [b"hop", b"", b"r"]),
        (Model.SHOTGUN, [b"", b"9", b"x"], [b"x"], [b"", b"9", b"r"]),
        (Model.SHOTGUN, [b"hop", b"", b"9", b"x", b""], [b"x", b""], [b"hop", b"", b"9", b"r"]),
        (Model.AGENT, [b"", b"x"], [b"x"], [b"", b"r"]),
    ],
)
def test_a_reply_has_the_envelope_of_its_request(
    model: Model, message: list[bytes], body: list[bytes], reply: list[bytes]
) -> None:
    b = ServerBench(model=model)
    b.join("c")
    job = b.request("c", *message)
    assert list(b.requests[job].frames) == body
    b.finish(job, b"r")
    assert b.to("c") == [reply]


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (Model.FAILOVER, [b"PING"]),
        (Model.FAILOVER, [b"", b""][:1]),
        (Model.SHOTGUN, [b"", b"9"]),
        (Model.SHOTGUN, [b"9", b"x"]),
    ],
)
def test_envelopes_without_a_body_are_malformed(model: Model, message: list[bytes]) -> None:
    b = ServerBench(model=model)
    b.join("c")
    b.say("c", message)
    assert b.server.snapshot().dropped == {"malformed": 1}


def test_a_draining_server_finishes_accepted_requests() -> None:
    b = ServerBench(capacity=1)
    b.join("c")
    job = b.request("c", b"1", b"x")
    b.say("c", [b"2", b"y"])
    b.join("idle")
    b.drain()
    b.drain()
    assert b.unread == {"c"}
    assert "shutting down" in b.disconnected["idle"]
    b.join("d")
    assert "shutting down" in b.disconnected["d"]
    b.finish(job)
    assert not b.stopped
    assert "c" not in b.disconnected
    b.finish(b.running[0])
    assert b.stopped
    assert "shutting down" in b.disconnected["c"]
    assert [message[0] for message in b.to("c")] == [b"1", b"2"]


def test_an_empty_reply_is_one_empty_frame() -> None:
    b = ServerBench()
    b.join("c")
    job = b.request("c", b"1", b"x")
    b.running.remove(job)
    b.feed(Finished(job, ()))
    assert b.to("c") == [[b"1", b""]]


def test_irrelevant_inputs_are_ignored_and_foreign_ones_refused() -> None:
    b = ServerBench()
    b.join("c")
    job = b.request("c", b"1", b"x")
    for event in (PeerBlocked("c"), PeerWritable("c"), Progressed(job), Started(job)):
        b.feed(event)
    assert b.sent == []
    assert b.server.deadline() is None
    with pytest.raises(LocalViolation):
        b.feed(Finished(job, (b"x",), Status.OVERLOADED))
    with pytest.raises(LocalViolation):
        b.feed(object())
    b.lose("c")
    b.say("c", [b"2", b"y"])
    assert len(b.requests) == 1


def test_the_journal_has_spans_and_events_of_failed_requests() -> None:
    chronicle = Chronicle()
    b = ServerBench(chronicle=chronicle)
    b.join("c")
    job = b.request("c", b"1", b"12345")
    b.feed(Started(job))
    b.finish(job, b"123")
    [span] = chronicle.spans
    assert span[-2:] == (5, 3)
    b.say("c", [b"garbage"])
    failing = b.request("c", b"2", b"x")
    b.feed(Started(failing))
    b.finish(failing, b"why", status=Status.FAILED)
    b.advance(1.0)
    kinds = [event_row.kind for event_row in chronicle.event_rows]
    assert kinds == [Kind.DELIVERED, Kind.STARTED, Kind.FINISHED, Kind.REFUSED]
    assert b.server.deadline() is None


@pytest.mark.parametrize("name", ["capacity", "queue_max", "queue_size_max", "reply_size_max"])
def test_a_policy_with_a_limit_of_zero_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match=name):
        ServerPolicy(**{name: 0})


@pytest.mark.parametrize("setting", [{"slots": 0}, {"servers": 0}])
def test_an_invalid_client_policy_is_refused(setting: dict[str, float]) -> None:
    with pytest.raises(ConfigurationError):
        ClientPolicy(**setting)  # type: ignore[arg-type]
