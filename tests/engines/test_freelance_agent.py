"""Model three (agent): choice of servers, liveness, and retries of calls."""

from __future__ import annotations

import pytest
from tests.support.freelance_engines import ClientBench

from requite.chronicle import Chronicle, Kind
from requite.core.liveness import HeartbeatPolicy
from requite.engine import PeerBlocked, PeerLost, PeerWritable
from requite.errors import CallTimeout, Cancelled, LocalViolation, Overloaded, TransportError
from requite.protocols.freelance.agent import AgentClient


def bench(**policy: object) -> ClientBench:
    return ClientBench(AgentClient, servers=2, **policy)


def test_a_call_waits_for_the_first_server() -> None:
    b = bench()
    b.submit(1, b"hi", b"there")
    assert b.sent == []
    b.join("a")
    assert b.to("a") == [[b"PING"], [b"1", b"hi", b"there"]]
    b.answer("a", b"ho", b"again")
    assert b.replies[1].frames == [b"ho", b"again"]
    assert b.replies[1].attempts == 1
    b.assert_empty()


def test_all_calls_go_to_the_first_server_while_it_is_alive() -> None:
    b = bench()
    b.join("a")
    b.join("b")
    for token in range(5):
        b.submit(token)
        b.answer("a")
    assert len(b.requests_to("a")) == 5
    assert b.requests_to("b") == []


def test_calls_of_a_lost_server_are_resent_to_the_next_with_the_same_control_frame() -> None:
    b = bench()
    b.join("a")
    b.join("b")
    b.submit(1, b"hi")
    b.lose("a")
    assert b.requests_to("b") == b.requests_to("a") == [[b"1", b"hi"]]
    b.answer("b")
    assert b.replies[1].attempts == 2
    b.assert_empty()


def test_a_server_that_reconnects_is_used_last() -> None:
    b = bench()
    b.join("a")
    b.join("b")
    b.lose("a")
    b.join("a")
    b.submit(1)
    assert len(b.requests_to("b")) == 1
    assert b.requests_to("a") == []


def test_calls_of_a_silent_server_move_on_after_three_intervals() -> None:
    b = bench()
    b.join("a")
    b.submit(1)
    b.advance(1.0)
    b.join("b")
    b.advance(4.9)
    b.say("b", [b"PONG"])
    assert b.requests_to("b") == []
    b.advance(0.2)
    assert len(b.requests_to("b")) == 1
    assert b.client.snapshot().live == 1


def test_a_server_is_pinged_only_after_a_silent_interval() -> None:
    b = bench()
    b.join("a")
    assert b.to("a") == [[b"PING"]]
    for _ in range(10):  # any message replaces a ping
        b.advance(1.5)
        b.say("a", [b"PONG"])
    assert b.to("a") == [[b"PING"]]
    b.advance(2.0)
    assert b.to("a") == [[b"PING"]] * 2


def test_without_connections_and_calls_there_is_no_deadline() -> None:
    b = bench()
    assert b.client.deadline() is None
    b.join("a")
    assert b.client.deadline() == b.now + 2.0
    b.lose("a")
    assert b.client.deadline() is None


def test_a_dead_server_is_pinged_and_revived_by_any_message() -> None:
    b = bench()
    b.join("a")
    b.advance(10.0)
    assert b.client.snapshot().live == 0
    pings = len(b.to("a"))
    b.advance(10.0)
    assert len(b.to("a")) > pings
    b.submit(1)
    assert b.requests_to("a") == []
    b.say("a", [b"PONG"])
    assert len(b.requests_to("a")) == 1


def test_part_of_a_message_is_a_sign_of_life() -> None:
    b = bench()
    b.join("a")
    b.advance(5.0)
    b.say("a")
    b.advance(5.0)
    assert b.client.snapshot().live == 1


def test_a_pause_of_the_client_does_not_count_as_silence_of_servers() -> None:
    b = bench()
    b.join("a")
    b.submit(1)
    b.freeze(60.0)
    assert b.client.snapshot().live == 1
    b.answer("a")
    assert b.replies[1].attempts == 1
    b.advance(10.0)
    assert b.client.snapshot().live == 0


def test_a_late_reply_to_an_earlier_attempt_is_accepted() -> None:
    b = bench()
    b.join("a")
    b.submit(1)
    b.advance(3.0)
    b.join("b")
    b.advance(3.5)
    assert len(b.requests_to("b")) == 1
    b.answer("a", b"late")
    assert b.replies[1].body == b"late"
    b.answer("b")
    assert b.client.snapshot().stray == 1


def test_a_request_that_is_not_idempotent_is_sent_once() -> None:
    b = bench()
    b.join("a")
    b.join("b")
    b.submit(1, idempotent=False)
    b.lose("a")
    assert isinstance(b.errors[1], TransportError)
    assert b.errors[1].may_have_executed
    assert b.requests_to("b") == []


def test_an_unsent_request_may_wait_although_it_is_not_idempotent() -> None:
    b = bench()
    b.submit(1, idempotent=False)
    b.join("a")
    b.answer("a")
    assert 1 in b.replies


def test_a_call_fails_after_its_attempts() -> None:
    b = bench(attempts=3)
    b.submit(1)
    for _ in range(3):
        b.join("a")
        b.lose("a", "it died")
    error = b.errors[1]
    assert isinstance(error, TransportError)
    assert error.attempts == 3
    assert "it died" in str(error)


def test_an_attempt_that_times_out_moves_to_another_server() -> None:
    b = bench(attempt_timeout=0.5, attempts=2)
    b.join("a")
    b.join("b")
    b.submit(1)
    b.advance(0.6)
    assert len(b.requests_to("b")) == 1
    b.advance(0.5)
    assert isinstance(b.errors[1], CallTimeout)
    assert b.errors[1].attempts == 2
    assert b.client.snapshot().live == 2


def test_retries_after_timeouts_share_a_budget() -> None:
    b = bench(attempt_timeout=0.5, attempts=100, budget=0.0, budget_burst=3)
    b.join("a")
    b.join("b")
    b.submit(1, timeout=4.0)
    b.advance(3.9)
    assert b.client.snapshot().resent == 3
    b.advance(0.2)
    assert isinstance(b.errors[1], CallTimeout)


def test_a_server_that_pushes_back_is_skipped() -> None:
    b = bench()
    b.join("a")
    b.join("b")
    b.block("a")
    b.submit(1)
    assert len(b.requests_to("b")) == 1
    b.block("b")
    b.submit(2)
    assert b.client.snapshot().held == 1
    b.unblock("a")
    assert len(b.requests_to("a")) == 1


def test_a_server_that_pushes_back_has_a_longer_timeout() -> None:
    b = bench()
    b.join("a")
    b.submit(1, b"large")
    b.block("a")
    b.advance(20.0)
    assert b.client.snapshot().live == 1
    b.advance(20.0)
    assert b.client.snapshot().live == 0


def test_deadlines_cancels_and_slots() -> None:
    b = bench(slots=2)
    b.submit(1, timeout=1.0)
    b.submit(2)
    b.submit(3)
    assert isinstance(b.errors[3], Overloaded)
    assert not b.errors[3].may_have_executed
    b.advance(1.1)
    assert isinstance(b.errors[1], CallTimeout)
    assert not b.errors[1].may_have_executed
    b.cancel(2)
    assert isinstance(b.errors[2], Cancelled)
    b.submit(4, timeout=-1.0)
    assert isinstance(b.errors[4], CallTimeout)
    b.assert_empty()


def test_a_drained_client_fails_all_calls_and_sends_nothing() -> None:
    b = bench()
    b.join("a")
    b.submit(1)
    b.drain()
    assert b.stopped
    assert isinstance(b.errors[1], Cancelled)
    said = len(b.sent)
    b.submit(2)
    assert isinstance(b.errors[2], Cancelled)
    b.advance(100.0)
    assert len(b.sent) == said
    b.join("b")
    assert "closed" in b.disconnected["b"]


@pytest.mark.parametrize("message", [[b""], [b"PANG"], [b"PING"], [b"pong"]])
def test_malformed_and_stray_replies_are_counted_and_ignored(message: list[bytes]) -> None:
    b = bench()
    b.join("a")
    b.submit(1)
    b.say("a", message, [b"17", b"for nobody"])
    assert b.client.snapshot().malformed == 1
    assert b.client.snapshot().stray == 1
    assert b.warnings
    b.answer("a")
    assert 1 in b.replies


def test_inputs_of_a_lost_connection_are_ignored() -> None:
    b = bench()
    b.join("a")
    b.submit(1)
    b.lose("a")
    b.say("a", [b"1", b"y"])
    assert b.replies == {}
    for event in (PeerLost("a"), PeerBlocked("a"), PeerWritable("a")):
        b.feed(event)
    assert b.client.snapshot().connections == 0


def test_duplicate_tokens_and_foreign_inputs_are_refused() -> None:
    b = bench()
    b.submit(1)
    with pytest.raises(LocalViolation):
        b.submit(1)
    with pytest.raises(LocalViolation):
        b.feed(object())


def test_the_ping_interval_can_be_set() -> None:
    b = bench(ping=HeartbeatPolicy(0.1, 2))
    b.join("a")
    b.advance(0.19)
    assert b.client.snapshot().live == 1
    b.advance(0.02)
    assert b.client.snapshot().live == 0


def test_the_journal_has_spans_and_events_of_failed_calls() -> None:
    chronicle = Chronicle()
    b = ClientBench(AgentClient, servers=2, chronicle=chronicle)
    b.join("a")
    b.submit(1, b"12345")
    b.answer("a", b"123")
    [span] = chronicle.spans
    assert span[-2:] == (5, 3)
    b.submit(2)
    b.join("b")
    b.lose("a")
    b.answer("b")
    b.submit(3, timeout=1.0)
    b.advance(2.0)
    kinds = [event_row.kind for event_row in chronicle.event_rows]
    assert kinds == [
        Kind.ACCEPTED,
        Kind.SENT,
        Kind.REDELIVERED,
        Kind.SENT,
        Kind.ANSWERED,
        Kind.ACCEPTED,
        Kind.SENT,
        Kind.EXPIRED,
    ]
