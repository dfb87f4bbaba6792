"""The Lazy Pirate client beyond the Guide: slots, deadlines, errors, retry budget, journal."""

from __future__ import annotations

import pytest
from tests.spec.requirement import requirement
from tests.support.pirate_engines import ClientBench

from requite.chronicle import Kind
from requite.engine import Started, Submit
from requite.errors import (
    CallTimeout,
    Cancelled,
    ConfigurationError,
    LocalViolation,
    Overloaded,
    TransportError,
)
from requite.protocols.pirate.policy import ClientPolicy
from requite.request import RetryPolicy


def test_a_call_waits_for_a_connection_until_its_deadline() -> None:
    bench = ClientBench()
    bench.submit(1, b"x", timeout=9.0)
    bench.advance(8.9)
    assert not bench.errors
    bench.advance(0.2)
    error = bench.errors[1]
    assert isinstance(error, CallTimeout)
    assert (error.attempts, error.may_have_executed) == (0, False)
    assert "never sent" in str(error)


def test_a_deadline_before_the_reply_closes_the_connection() -> None:
    bench = ClientBench()
    bench.submit(1, b"x", timeout=1.0)
    bench.join("a")
    bench.advance(1.1)
    assert isinstance(bench.errors[1], CallTimeout)
    assert bench.errors[1].may_have_executed
    assert "a" in bench.disconnected
    assert not any(vars(bench.client.snapshot()).values())


@requirement("pirate:lazy:lock-step")
def test_a_second_reply_closes_its_connection() -> None:
    bench = ClientBench()
    bench.submit(1, b"1")
    bench.join("a")
    bench.say("a", [b"one"])
    bench.say("a", [b"one, once more"])
    assert "a" in bench.disconnected
    assert [warning.kind for warning in bench.warnings] == ["stray reply"]
    bench.submit(2, b"2")
    bench.join("b")
    assert (bench.to("a"), bench.to("b")) == ([[b"1"]], [[b"2"]])
    assert 2 not in bench.replies
    bench.say("b", [b"two"], [b"two, once more"])
    assert bench.replies[2].body == b"two"
    assert "b" in bench.disconnected
    assert {k: v for k, v in vars(bench.client.snapshot()).items() if v} == {"stray": 2}


def test_a_cancelled_call_closes_its_connection_and_another_is_dialled() -> None:
    bench = ClientBench(ClientPolicy(connections_max=1))
    bench.submit(1, b"1")
    bench.submit(2, b"2")
    bench.join("a")
    bench.cancel(1)
    assert isinstance(bench.errors[1], Cancelled)
    assert "a" in bench.disconnected
    assert len(bench.dials) == 2
    bench.join("b")
    assert bench.to("b") == [[b"2"]]
    bench.cancel("nobody's")


def test_a_call_beyond_the_slots_is_refused() -> None:
    bench = ClientBench(ClientPolicy(slots=2))
    bench.submit(1, b"x", timeout=1.0)
    bench.submit(2, b"x")
    bench.submit(3, b"x")
    assert isinstance(bench.errors[3], Overloaded)
    assert not bench.errors[3].may_have_executed
    bench.now += 1.1  # the timer is late
    bench.submit(4, b"x")
    assert isinstance(bench.errors[1], CallTimeout)
    assert 4 not in bench.errors


def test_a_call_whose_deadline_has_passed_is_not_sent() -> None:
    bench = ClientBench()
    bench.submit(1, b"x", timeout=0.0)
    assert isinstance(bench.errors[1], CallTimeout)
    assert bench.dials == []


def test_all_calls_share_the_retry_budget() -> None:
    retry = RetryPolicy(attempts=3, attempt_timeout=1.0, budget=0.0, budget_burst=1)
    bench = ClientBench(ClientPolicy(retry=retry))
    for token in (1, 2):
        bench.submit(token, b"x")
        bench.join(f"{token}")
    bench.advance(1.1)
    assert list(bench.errors) == [2]
    assert "too many recent calls of this client were retried" in str(bench.errors[2])


def test_resent_calls_go_before_later_ones() -> None:
    bench = ClientBench(ClientPolicy(connections_max=1))
    for token in (1, 2, 3):
        bench.submit(token, b"%d" % token)
    bench.join("a")
    bench.lose("a")
    bench.join("b")
    assert bench.to("b") == [[b"1"]]


def test_a_connection_established_too_late_is_used_for_the_next_call() -> None:
    bench = ClientBench()
    bench.submit(1, b"1", timeout=1.0)
    bench.advance(1.1)
    bench.join("a")
    bench.submit(2, b"2")
    assert bench.to("a") == [[b"2"]]
    assert len(bench.dials) == 1
    bench.say("a", [b"two"])
    bench.lose("a")
    assert len(bench.dials) == 1  # no call needs a connection


def test_a_drain_cancels_all_calls_and_stops() -> None:
    bench = ClientBench()
    bench.submit(1, b"1")
    bench.submit(2, b"2")
    bench.join("a")
    bench.drain()
    assert [type(bench.errors[n]) for n in (1, 2)] == [Cancelled, Cancelled]
    assert [bench.errors[n].may_have_executed for n in (1, 2)] == [True, False]
    assert bench.stopped
    assert bench.peers == set()
    bench.submit(3, b"3")
    assert isinstance(bench.errors[3], Cancelled)
    bench.join("late")
    assert "late" in bench.disconnected
    bench.drain()
    assert bench.engine.deadline() is None


def test_an_empty_body_is_one_empty_frame() -> None:
    bench = ClientBench()
    bench.submit(1)
    bench.join("a")
    assert bench.to("a") == [[b""]]


def test_invalid_inputs_are_refused() -> None:
    bench = ClientBench()
    bench.submit(1, b"x")
    with pytest.raises(LocalViolation, match="still outstanding"):
        bench.submit(1, b"x")
    with pytest.raises(LocalViolation, match="idempotency key"):
        bench.feed(Submit(2, "", (b"",), 200.0, idempotency_key=b"k"))
    with pytest.raises(LocalViolation, match="does not handle the input"):
        bench.feed(Started(1))


@pytest.mark.parametrize("settings", [{"slots": 0}, {"connections_max": 0}])
def test_invalid_settings_are_refused(settings: dict[str, int]) -> None:
    with pytest.raises(ConfigurationError, match="at least 1"):
        ClientPolicy(**settings)


def test_the_journal_has_spans_and_events_of_retried_calls() -> None:
    bench = ClientBench(journal=True)
    assert bench.chronicle is not None
    bench.submit(1, b"plain")
    bench.join("a")
    bench.say("a", [b"reply"])
    [span] = bench.chronicle.spans
    assert span[-2:] == (5, 5)
    bench.submit(2, b"retried")
    bench.lose("a")
    bench.join("b")
    bench.say("b", [b"reply"])
    kinds = [each.kind for each in bench.chronicle.event_rows]
    assert kinds == [Kind.ACCEPTED, Kind.SENT, Kind.REDELIVERED, Kind.SENT, Kind.ANSWERED]
    bench.submit(3, b"held", timeout=5.0)
    bench.advance(0.2)
    bench.client.calls.abandon_all(TransportError("given up"), bench.now)
    rows = bench.chronicle.event_rows[len(kinds) :]
    assert [each.kind for each in rows] == [Kind.ACCEPTED, Kind.SENT, Kind.ANSWERED]
    assert rows[-1].error == "TransportError"
