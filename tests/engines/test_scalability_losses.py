"""The SP client engine after lost connections: it resends, unless a call is the cause."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from tests.support.sp_engines import ReqBench, Sent, tag

from requite.errors import (
    CallTimeout,
    TransportError,
)


# --- lost channels --------------------------------------------------------------------------------
def test_requests_of_a_lost_channel_are_resent_at_once_with_the_same_id() -> None:
    bench = ReqBench()
    bench.join("a")
    bench.join("b")
    for token in range(4):
        bench.submit(token, b"%d" % token)
    bench.lose("a")
    assert bench.sent[4:] == [Sent("b", tag(5) + b"0"), Sent("b", tag(7) + b"2")]
    assert bench.client.snapshot().resent == 2
    bench.say("b", tag(5) + b"re 0")
    assert bench.replies[0].body == b"re 0"
    assert bench.replies[0].attempts == 2


def test_requests_of_the_last_channel_wait_for_the_next() -> None:
    bench = ReqBench()
    bench.join("a")
    bench.submit(1)
    bench.lose("a")
    assert bench.client.snapshot().held == 1
    bench.advance(300)  # no resend timer runs while the call waits
    bench.join("b")
    assert bench.to("b") == [tag(5) + b"x"]
    bench.advance(61)
    assert len(bench.sent) == 3


def test_a_reply_to_an_attempt_over_a_lost_channel_is_accepted() -> None:
    """A reply to an earlier attempt may arrive by another channel, for example through a device."""
    bench = ReqBench(attempt_timeout=1)
    bench.join("a")
    bench.submit(1)
    bench.join("b")
    bench.advance(1.1)
    bench.lose("a")
    bench.block("b")
    bench.lose("b")
    bench.join("c")
    bench.block("c")
    assert [sent.peer for sent in bench.sent] == ["a", "b", "c"]
    bench.lose("c")
    assert bench.client.snapshot().held == 1
    bench.join("d")
    bench.block("d")
    bench.say("d", tag(5) + b"y")
    assert bench.replies[1].body == b"y"
    bench.assert_empty()


def test_a_reply_to_a_call_that_waits_to_be_resent_is_accepted() -> None:
    bench = ReqBench(attempt_timeout=1)
    bench.join("a")
    bench.submit(1)
    bench.block("a")
    bench.advance(1.5)
    assert bench.client.snapshot().held == 1
    bench.answer(bench.sent[0])
    assert bench.replies[1].body == b"y"
    bench.assert_empty()
    bench.unblock("a")
    assert len(bench.sent) == 1


@pytest.mark.parametrize(
    ("policy", "idempotent", "why"),
    [({}, False, "not idempotent"), ({"attempts": 1}, True, "sent once, the limit")],
)
def test_a_request_that_must_not_be_resent_fails_with_its_channel(
    policy: dict[str, Any], idempotent: bool, why: str
) -> None:
    bench = ReqBench(**policy)
    bench.join("a")
    bench.join("b")
    bench.submit(1, idempotent=idempotent)
    bench.lose("a", "reset by peer")
    error = bench.errors[1]
    assert isinstance(error, TransportError)
    assert error.may_have_executed
    assert error.attempts == 1
    assert "reset by peer" in str(error)
    assert why in str(error)
    assert len(bench.sent) == 1


def test_an_unsent_request_is_sent_although_it_is_not_idempotent() -> None:
    bench = ReqBench()
    bench.join("a")
    bench.block("a")
    bench.submit(1, idempotent=False)
    bench.lose("a")
    bench.join("b")
    assert bench.to("b") == [tag(5) + b"x"]


# --- a call that closes its connection ------------------------------------------------------------
def test_a_call_that_closes_every_connection_does_not_block_others() -> None:
    """For example a request over the size limit: its receiver disconnects."""
    bench = ReqBench(attempt_timeout=60)
    channels = iter("abcdefghijklmnop")
    channel = bench.join(next(channels))
    for token in range(20):
        bench.submit(token, b"poison" if token == 7 else b"%d" % token, timeout=10)
    seen = lives = 0
    while bench.now < 115:
        fresh, seen = bench.sent[seen:], len(bench.sent)
        if any(sent.body == b"poison" for sent in fresh):  # before any reply
            bench.lose(channel, "a message of 5004 bytes; 2024 are allowed")
            lives += 1
            channel = bench.join(next(channels))
        else:
            for sent in fresh:
                bench.answer(sent)
            bench.advance(0.001)
    assert len(bench.replies) == 19
    assert 5 < lives < 12
    assert str(bench.errors[7]).endswith(
        f"its connection was lost {lives} times, last: a message of 5004 bytes; 2024 are allowed"
    )
    bench.assert_empty()


def replace_channels(bench: ReqBench, names: Iterable[str]) -> None:
    """Lose the only channel and connect another one, once for each name."""
    for name in names:
        (lost,) = bench.peers
        bench.lose(lost)
        bench.join(name)


@pytest.mark.parametrize("how", ["reply", "cancel", "drain", "deadline"])
def test_a_call_in_back_off_can_end(how: str) -> None:
    bench = ReqBench()
    bench.join("a")
    bench.submit(1, timeout=0.05)
    replace_channels(bench, ("b", "c", "d"))
    assert len(bench.sent) == 3  # the call backs off, although it could be sent
    assert bench.client.snapshot().held == 0
    if how == "reply":
        bench.say("d", bench.sent[0].tag + b"late")
        assert bench.replies[1].attempts == 3
    elif how == "cancel":
        bench.cancel(1)
    elif how == "drain":
        bench.drain()
    else:
        bench.advance(0.06)
        assert "lost 3 times, last: reset" in str(bench.errors[1])
    bench.assert_empty()


def test_a_call_in_back_off_does_not_delay_or_overtake_others() -> None:
    bench = ReqBench()
    bench.join("a")
    bench.submit(1, b"rests")
    replace_channels(bench, ("b", "c", "d"))
    bench.submit(2, b"new")
    assert bench.sent[-1].body == b"new"
    bench.block("d")
    bench.submit(3, b"waits")
    bench.advance(0.3)
    assert bench.client.snapshot().held == 2
    bench.unblock("d")
    assert [sent.body for sent in bench.sent[-2:]] == [b"waits", b"rests"]


def test_the_engines_deadline_is_the_earliest_of_all_timers() -> None:
    bench = ReqBench()
    bench.join()
    assert bench.client.deadline() is None
    bench.submit(1, timeout=30)
    assert bench.client.deadline() == bench.now + 30
    bench.submit(2)
    assert bench.client.deadline() == bench.now + 30
    bench.submit(3, timeout=3)
    assert bench.client.deadline() == bench.now + 3


def test_a_call_whose_deadline_has_passed_is_not_sent() -> None:
    bench = ReqBench()
    bench.join()
    bench.submit(1, timeout=0)
    assert isinstance(bench.errors[1], CallTimeout)
    assert not bench.errors[1].may_have_executed
    assert bench.sent == []
