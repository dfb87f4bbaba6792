"""The client of the scalability protocols, beyond the draft (see tests/spec for the draft)."""

from __future__ import annotations

from collections import Counter
from math import inf
from typing import Any

import pytest
from tests.support.sp_engines import ReqBench, Sent, tag

from requite.engine import Cancel, Finished, Submit
from requite.errors import (
    CallTimeout,
    Cancelled,
    ConfigurationError,
    LocalViolation,
    Overloaded,
)
from requite.protocols.scalability.channels import PORTION_SIZE
from requite.protocols.scalability.policy import ReqPolicy


# --- waiting for a channel ------------------------------------------------------------------------
def test_calls_wait_for_the_first_channel_and_are_sent_in_order() -> None:
    bench = ReqBench()
    for token in range(3):
        bench.submit(token, b"%d" % token)
    assert bench.client.snapshot().held == 3
    bench.join()
    assert [sent.payload for sent in bench.sent] == [tag(5 + n) + b"%d" % n for n in range(3)]
    assert bench.client.snapshot().held == 0


def test_a_new_call_does_not_overtake_waiting_calls() -> None:
    bench = ReqBench()
    big = bytes(PORTION_SIZE)
    bench.submit(1, big)
    bench.submit(2, b"second")
    bench.join()
    bench.submit(3, b"third")
    assert bench.sent == [Sent("a", tag(5) + big)]
    bench.advance(0)
    assert [sent.body for sent in bench.sent[1:]] == [b"second", b"third"]


def test_waiting_calls_are_sent_in_portions() -> None:
    """Requests stay with their channel, even if another one becomes free."""
    bench = ReqBench()
    for token in range(6):
        bench.submit(token, bytes(PORTION_SIZE // 2))
    bench.join("a")
    assert len(bench.sent) == 2
    bench.block("a")
    bench.join("b")
    assert [sent.peer for sent in bench.sent] == ["a", "a", "b", "b"]
    assert bench.client.deadline() == bench.now
    bench.advance(0)
    assert len(bench.sent) == 6
    assert bench.client.snapshot().held == 0


def test_an_expired_call_is_not_sent() -> None:
    bench = ReqBench()
    bench.submit(1, timeout=1)
    bench.submit(2, timeout=5)
    bench.now += 2  # the timer is late
    bench.join()
    assert [sent.payload for sent in bench.sent] == [tag(5) + b"x"]
    assert isinstance(bench.errors[1], CallTimeout)
    assert bench.errors[1].request_id == ""  # SP has none
    assert not bench.errors[1].may_have_executed
    bench.answer(bench.sent[0])
    assert 2 in bench.replies


def test_a_call_without_hold_fails_instead_of_waiting() -> None:
    bench = ReqBench()
    bench.ask(1, hold=False)
    assert isinstance(bench.errors[1], Overloaded)
    bench.submit(2)  # this call waits
    bench.join()
    bench.block("a")
    bench.ask(3, hold=False)
    assert isinstance(bench.errors[3], Overloaded)
    bench.unblock("a")
    bench.ask(4, b"now", hold=False)
    assert bench.sent[-1].body == b"now"


# --- slots ----------------------------------------------------------------------------------------
def test_a_call_beyond_the_slots_is_refused() -> None:
    bench = ReqBench(slots=2)
    bench.join()
    for token in range(3):
        bench.submit(token)
    assert isinstance(bench.errors[2], Overloaded)
    assert "2 slots" in str(bench.errors[2])
    bench.answer(bench.sent[0])
    bench.submit(3)
    assert 3 not in bench.errors


def test_slots_of_expired_calls_are_reclaimed_when_all_are_taken() -> None:
    bench = ReqBench(slots=1)
    bench.join()
    bench.submit(1, timeout=1)
    bench.now += 2  # the timer is late
    bench.submit(2)
    assert isinstance(bench.errors[1], CallTimeout)
    assert len(bench.sent) == 2


# --- resending ------------------------------------------------------------------------------------
def test_a_request_that_is_not_idempotent_is_not_resent() -> None:
    bench = ReqBench(attempt_timeout=1)
    bench.join()
    bench.submit(1, idempotent=False)
    bench.ask(2, idempotent=False, resend_s=1.0)
    bench.advance(100)
    assert len(bench.sent) == 2
    assert bench.errors == {}


def test_the_last_attempt_has_its_full_timeout() -> None:
    bench = ReqBench(attempt_timeout=2, attempts=3)
    bench.join()
    bench.submit(1)
    bench.advance(5.9)
    assert len(bench.sent) == 3
    assert bench.errors == {}
    bench.advance(0.2)
    assert isinstance(bench.errors[1], CallTimeout)
    assert "3 times with 2 s each" in str(bench.errors[1])
    assert bench.errors[1].attempts == 3
    bench.assert_empty()


def test_each_attempt_uses_another_channel() -> None:
    bench = ReqBench(attempt_timeout=1)
    for peer in "ab":
        bench.join(peer)
    bench.submit(1, b"one")
    bench.submit(2, b"two")
    bench.say("b", tag(6) + b"y")
    bench.submit(3, b"three")  # to "a"; the next turn is "b"'s
    bench.say("a", tag(7) + b"y")
    bench.advance(1.1)
    assert [sent.peer for sent in bench.sent if sent.body == b"one"] == ["a", "b"]


def test_resends_after_timeouts_are_limited_by_a_budget() -> None:
    bench = ReqBench(attempt_timeout=1, budget=0.0, budget_burst=3)
    bench.join()
    for token in range(10):
        bench.submit(token)
    bench.advance(1.5)
    assert len(bench.sent) == 20  # the first resend does not use the budget
    bench.advance(1)
    assert len(bench.sent) == 23
    bench.advance(100)
    assert len(bench.sent) == 23
    assert bench.client.snapshot().sent == 10
    bench.lose("a")
    bench.join("b")
    assert len(bench.sent) == 33  # resends after a loss do not use the budget


def test_new_calls_add_to_the_budget() -> None:
    bench = ReqBench(attempt_timeout=1, budget=0.5, budget_burst=1)
    bench.join()
    bench.submit("silent")
    bench.advance(1.1)
    for token in range(3):
        bench.submit(token)
        bench.answer(bench.sent[-1])
    bench.advance(1)
    assert bench.to("a").count(tag(5) + b"x") == 3


def test_calls_without_a_deadline_are_resent_without_new_calls() -> None:
    bench = ReqBench(attempt_timeout=1, budget=0.02, budget_burst=2)  # then one retry a second
    bench.join()
    for token in range(10):
        bench.submit(token, b"%d" % token)
    bench.advance(100)
    tries = Counter(sent.body for sent in bench.sent)
    assert 100 < tries.total() < 125
    assert max(tries.values()) - min(tries.values()) <= 1


def test_many_lost_calls_all_succeed_with_their_second_attempt() -> None:
    bench = ReqBench(attempt_timeout=1)
    bench.join()
    for token in range(1024):
        bench.submit(token, b"%d" % token, timeout=2)
    bench.advance(1.5)
    assert len(bench.sent) == 2048
    for sent in bench.sent[1024:]:
        bench.answer(sent)
    assert len(bench.replies) == 1024


def test_calls_without_budget_are_resent_oldest_first_when_it_refills() -> None:
    bench = ReqBench(attempt_timeout=1, budget_burst=2)  # then ten retries a second
    bench.join()
    for token in range(20):
        bench.submit(token, b"%d" % token)
    bench.advance(1.01)
    del bench.sent[:], bench.sent_at[:]
    started_at = bench.now
    bench.advance(3.2)
    assert [int(sent.body) for sent in bench.sent[:20]] == list(range(20))
    assert bench.sent_at[19] < started_at + 3.2


# --- cancelling and draining ----------------------------------------------------------------------
@pytest.mark.parametrize("where", ["held", "sent", "held again", "answered", "unknown"])
def test_a_call_can_be_cancelled_in_any_state(where: str) -> None:
    bench = ReqBench()
    if where != "held":
        bench.join()
    bench.submit(1)
    if where == "held again":
        bench.lose("a")
    if where == "answered":
        bench.answer(bench.sent[0])
    bench.cancel(2 if where == "unknown" else 1)
    if where in ("answered", "unknown"):
        assert bench.errors == {}
    else:
        assert isinstance(bench.errors[1], Cancelled)
        assert bench.errors[1].may_have_executed == (where != "held")
        bench.assert_empty()


def test_a_drain_cancels_all_calls() -> None:
    bench = ReqBench()
    bench.submit(1)
    bench.join()
    bench.submit(2)
    bench.block("a")
    bench.submit(3)
    bench.drain()
    assert bench.stopped
    assert {token: error.may_have_executed for token, error in bench.errors.items()} == {
        1: True,
        2: True,
        3: False,
    }
    bench.assert_empty()
    bench.submit(4)
    assert isinstance(bench.errors[4], Cancelled)
    bench.unblock("a")
    bench.say("a", tag(5) + b"late")
    assert bench.replies == {}
    bench.join("b")
    assert "b" in bench.disconnected
    bench.drain()
    assert bench.client.deadline() is None


def test_invalid_inputs_raise_a_local_violation() -> None:
    bench = ReqBench()
    bench.submit(1)
    for event in (
        Submit(1, "", [b"again"], inf),
        Submit(2, "", [b"two", b"frames"], inf),
        Submit(2, "", [], inf),
        Submit(2, "", [b"x"], inf, idempotency_key=b"key"),
        Finished(1, [b""]),
    ):
        with pytest.raises(LocalViolation):
            bench.feed(event)
    bench.feed(Cancel(1))
    assert bench.client.snapshot().held == 0


@pytest.mark.parametrize(
    "policy",
    [
        {"slots": 0},
        {"slots": 1 << 25},
    ],
)
def test_invalid_settings_are_refused(policy: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        ReqPolicy(**policy)


def test_notes_are_emitted_for_each_step_of_a_call() -> None:
    bench = ReqBench(attempt_timeout=1)
    bench.join()
    bench.submit(1)
    bench.advance(1.1)
    bench.answer(bench.sent[0])
    bench.submit(2, timeout=0.5)
    bench.advance(1)
    kinds = [(note.kind, note.facts["token"]) for note in bench.notes]
    assert kinds == [("sent", 1), ("resent", 1), ("replied", 1), ("sent", 2), ("failed", 2)]
