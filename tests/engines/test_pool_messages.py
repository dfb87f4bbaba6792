"""Orphans wait for their queues and are forwarded; dead letters are answered."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.spec.requirement import requirement
from tests.support.pool_engines import PoolBench, dead_letter

from requite.engine import Warn
from requite.errors import LocalViolation
from requite.pool.deadletters import reason_of
from requite.pool.effects import (
    Ack,
    Answer,
    BindQueue,
    DeclareQueue,
    Destination,
    Forward,
    StartGroup,
    StopGroup,
)
from requite.pool.inputs import (
    ActivityArrived,
    Disconnected,
    GroupDone,
    OrphanArrived,
    Published,
    PublishFailed,
    QueueDone,
    QueueFailed,
    ReleaseGroup,
    RunningGroup,
)
from requite.pool.manager.messages import answer_header
from requite.protocols.amqp.properties import decode_properties

UP = RunningGroup("1", 1)


@pytest.fixture
def bench() -> PoolBench:
    bench = PoolBench()
    bench.connect()
    bench.out.clear()
    return bench


# --- orphans --------------------------------------------------------------------------------------
@requirement("pool:startup-path", "pool:orphans:wait", "pool:confirms")
def test_an_orphan_waits_for_its_queue_and_is_acknowledged_after_its_confirm(
    bench: PoolBench,
) -> None:
    bench.feed(OrphanArrived("o", "42"))
    assert not bench.take(Forward)
    assert bench.asked(DeclareQueue).key == "42"
    bench.feed(QueueDone("42"))
    assert not bench.take(Forward), "it is there, but not bound"
    assert bench.asked(BindQueue)
    bench.feed(QueueDone("42"))
    forward = bench.asked(Forward)
    assert (forward.tag, forward.to) == ("o", Destination.REQUESTS)
    assert not bench.take(Ack)
    bench.feed(Published(forward.ticket))
    assert bench.asked(Ack).tag == "o"
    bench.list_groups()
    assert bench.asked(StartGroup).key == "42"


def test_an_orphan_waits_for_its_own_generation(bench: PoolBench) -> None:
    bench.begin()
    bench.feed(ReleaseGroup("42"))
    bench.feed(OrphanArrived("o", "42"))
    assert not bench.take(Forward), "the binding that is there is about to go"
    bench.feed(QueueDone("42"))
    assert not bench.take(Forward)
    assert bench.asked(BindQueue)
    bench.feed(QueueDone("42"))
    assert bench.asked(Forward).tag == "o"


def test_a_slow_key_does_not_delay_others(bench: PoolBench) -> None:
    bench.feed(OrphanArrived("slow", "a"))
    bench.feed(OrphanArrived("quick", "b"))
    keys = [effect.key for effect in bench.take(DeclareQueue)]
    assert keys == ["a", "b"]
    bench.feed(QueueFailed("a", "refused"))
    bench.feed(QueueDone("b"))
    bench.feed(QueueDone("b"))
    assert bench.asked(Forward).tag == "quick"


def test_orphans_that_fill_the_window_are_requeued(bench: PoolBench) -> None:
    for i in range(4):
        bench.feed(OrphanArrived(i, "a", 30.0))
    bench.feed(QueueFailed("a", "refused"))
    bench.pass_time(0.9)
    assert not bench.take(Forward)
    bench.pass_time(0.2)
    forwards = bench.take(Forward)
    assert [f.to for f in forwards] == [Destination.ORPHANS] * 4
    assert {f.expires_s for f in forwards} == {29.0}
    for forward in forwards:
        bench.feed(Published(forward.ticket))
    assert len(bench.take(Ack)) == 4


def test_orphans_below_the_window_limit_are_not_requeued(bench: PoolBench) -> None:
    bench.feed(OrphanArrived("o", "a"))
    bench.feed(QueueFailed("a", "refused"))
    bench.pass_time(3.0)
    assert not bench.take(Forward)


def test_an_expired_orphan_is_dead_lettered(bench: PoolBench) -> None:
    bench.feed(OrphanArrived("o", "a", 1.0))
    bench.feed(QueueFailed("a", "refused"))
    bench.pass_time(1.0)
    forward = bench.asked(Forward)
    assert (forward.to, forward.reason) == (Destination.DEAD_LETTERS, "expired")
    bench.feed(PublishFailed(forward.ticket, "timeout"))
    bench.pass_time(0.5)
    again = bench.asked(Forward)
    assert (again.to, again.reason) == (Destination.DEAD_LETTERS, "expired")
    bench.feed(Published(again.ticket))
    assert bench.asked(Ack).tag == "o"


def test_a_forwarded_orphan_has_its_remaining_time(bench: PoolBench) -> None:
    bench.feed(OrphanArrived("o", "a", 5.0))
    bench.pass_time(2.0)
    bench.bind("a")
    assert bench.asked(Forward).expires_s == pytest.approx(3.0)


def test_an_unconfirmed_orphan_is_forwarded_again(bench: PoolBench) -> None:
    bench.feed(OrphanArrived("o", "a"))
    bench.bind("a")
    first = bench.asked(Forward)
    bench.feed(PublishFailed(first.ticket, "timeout"))
    assert not bench.take(Ack)
    assert "timeout" in bench.take(Warn)[-1].text
    bench.pass_time(0.5)
    second = bench.asked(Forward)
    assert second.tag == "o"
    bench.feed(Published(first.ticket))
    assert not bench.take(Ack), "nobody waits for the first any more"
    bench.feed(Published(second.ticket))
    assert bench.asked(Ack)


def test_orphans_of_a_bound_queue_cause_a_new_binding(bench: PoolBench) -> None:
    bench.begin()
    bench.feed(OrphanArrived("early", "42"))
    assert bench.asked(Forward).tag == "early", "it came shortly before the binding"
    bench.pass_time(1.0)
    bench.feed(OrphanArrived("late", "42"))
    bench.feed(OrphanArrived("later", "42"))
    assert not bench.take(Forward)
    bench.pass_time(1.0)
    bench.bind("42")
    assert [forward.tag for forward in bench.take(Forward)] == ["late", "later"]


def test_a_key_with_waiting_orphans_stays_expected(bench: PoolBench) -> None:
    bench.feed(OrphanArrived("o", "a"))
    for _ in range(10):
        bench.take(DeclareQueue)
        bench.feed(QueueFailed("a", "refused"))
        bench.pass_time(8.0)
    assert bench.engine.tracker.status("a") == "active"
    bench.bind("a")
    assert bench.asked(Forward).tag == "o"


def test_a_lost_connection_drops_all_pending_messages(bench: PoolBench) -> None:
    bench.feed(OrphanArrived("o", "a"))
    bench.feed(dead_letter())
    answer = bench.asked(Answer)
    bench.feed(Disconnected())
    bench.feed(Published(answer.ticket))
    assert not bench.take(Ack)
    assert len(bench.engine.orphans) == len(bench.engine.dead_letters) == 0


@requirement("pool:key:any-text", "pool:failure:key")
@given(key=st.text(st.characters(codec="utf-8"), max_size=60))
def test_any_key_gets_a_queue_or_its_caller_an_answer(key: str) -> None:
    bench = PoolBench()
    bench.connect()
    bench.feed(OrphanArrived("o", key))
    declared = bench.take(DeclareQueue)
    if declared:
        assert declared[0].key == key
    else:
        forward = bench.asked(Forward)
        assert (forward.to, forward.reason) == (Destination.DEAD_LETTERS, "rejected")
        assert "key" in bench.asked(Warn).text


@pytest.mark.parametrize("key", ["", "a/b", "%", "\x01\x1f", "ü" * 20, "infra=42,timetable=24"])
def test_unusual_keys_get_queues(bench: PoolBench, key: str) -> None:
    bench.feed(OrphanArrived("o", key))
    bench.bind(key)
    assert bench.asked(Forward).tag == "o"


@pytest.mark.parametrize("key", ["/" * 100, "a\0"], ids=["too long for a name", "NUL"])
def test_an_invalid_key_is_rejected(bench: PoolBench, key: str) -> None:
    bench.feed(OrphanArrived("o", key))
    assert bench.asked(Forward).reason == "rejected"
    assert not bench.take(DeclareQueue)


# --- dead letters ---------------------------------------------------------------------------------
@requirement("pool:dead-letters:answered", "pool:response:correlation-id", "pool:response:status")
@pytest.mark.parametrize("reason", ["expired", "rejected", "maxlen"])
def test_a_dead_letter_is_answered_with_its_reason_and_acknowledged(
    bench: PoolBench, reason: str
) -> None:
    bench.feed(dead_letter(reason, headers={"x-delivery-count": 2}))
    answer = bench.asked(Answer)
    assert answer[1:] == ("replies", "c1", reason, 2, "")
    assert not bench.take(Ack)
    bench.feed(Published(answer.ticket))
    assert bench.asked(Ack).tag == "tag"
    assert not bench.take(Forward)


@requirement("pool:dead-letters:poison", "pool:failure:crash")
def test_a_poisonous_request_is_stored_and_answered(bench: PoolBench) -> None:
    bench.feed(dead_letter("delivery_limit", headers={"x-delivery-count": 4}))
    copy = bench.asked(Forward)
    assert copy.to is Destination.POISON
    bench.feed(Published(copy.ticket))
    answer = bench.asked(Answer)
    assert (answer.status, answer.attempt) == ("delivery_limit", 4)
    bench.feed(Published(answer.ticket))
    assert bench.asked(Ack)
    assert bench.engine.snapshot().dead_letters.poison == 1


def test_a_dead_letter_without_reply_to_is_acknowledged_only(bench: PoolBench) -> None:
    bench.feed(dead_letter("expired", reply_to=None))
    assert not bench.take(Answer)
    assert bench.asked(Ack)


@pytest.mark.parametrize("trace", ["00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", ""])
def test_an_answer_carries_the_traceparent_of_its_request(bench: PoolBench, trace: str) -> None:
    bench.feed(dead_letter(headers={"traceparent": trace} if trace else {}))
    answer = bench.asked(Answer)
    assert answer.traceparent == trace
    headers = decode_properties(answer_header(answer)).headers
    assert headers.get("traceparent", "") == trace


def test_a_dead_letter_of_a_lost_caller_is_acknowledged(bench: PoolBench) -> None:
    bench.feed(dead_letter())
    bench.feed(Published(bench.asked(Answer).ticket, routed=False))
    assert bench.asked(Ack)


def test_an_unconfirmed_answer_is_published_again(bench: PoolBench) -> None:
    bench.feed(dead_letter("delivery_limit"))
    bench.feed(Published(bench.asked(Forward).ticket))
    bench.feed(PublishFailed(bench.asked(Answer).ticket, "timeout"))
    bench.pass_time(0.5)
    assert not bench.take(Forward), "one copy is kept"
    bench.feed(Published(bench.asked(Answer).ticket))
    assert bench.asked(Ack)


def test_any_number_of_dead_letters_is_answered(bench: PoolBench) -> None:
    for i in range(200):
        bench.feed(dead_letter()._replace(tag=i))
        bench.feed(Published(bench.asked(Answer).ticket))
    assert [ack.tag for ack in bench.take(Ack)] == [*range(200)]
    assert bench.engine.snapshot().dead_letters.by_reason == {"expired": 200}


@pytest.mark.parametrize("value", [None, 7, b"\xff", "no such reason", {}, ["expired"]])
def test_unknown_reasons_count_as_rejected(value: Any) -> None:
    assert reason_of({"x-first-death-reason": value}) == "rejected"


def test_a_reason_may_be_text_or_bytes() -> None:
    assert reason_of({"x-first-death-reason": b"maxlen"}) == "maxlen"
    assert reason_of({"x-first-death-reason": "expired", "x-death": [{"reason": "x"}]}) == "expired"


def test_without_a_count_the_attempts_of_a_poisonous_request_follow_from_the_limit(
    bench: PoolBench,
) -> None:
    bench.feed(dead_letter("delivery_limit"))
    bench.feed(Published(bench.asked(Forward).ticket))
    assert bench.asked(Answer).attempt == 4


@pytest.mark.parametrize("count", ["many", -1, 2.5, None])
def test_invalid_counts_mean_no_attempts(bench: PoolBench, count: Any) -> None:
    bench.feed(dead_letter(headers={"x-delivery-count": count}))
    assert bench.asked(Answer).attempt == 0


# --- reports and status ---------------------------------------------------------------------------
def test_a_started_report_without_a_queue_declares_it(bench: PoolBench) -> None:
    bench.feed(ActivityArrived("42", "started"))
    assert bench.asked(DeclareQueue).key == "42"


@pytest.mark.parametrize("event", ["started", "ready"])
def test_a_start_report_of_a_group_that_is_being_stopped_does_not_keep_it(event: str) -> None:
    bench = PoolBench()
    bench.connect(old=UP)
    assert bench.asked(StopGroup).key == "old"
    bench.report("old", event)
    bench.feed(GroupDone("old"))
    bench.list_groups(old=RunningGroup("1", 1, stopping=True))
    bench.report("old", event)
    assert not bench.take(DeclareQueue)
    bench.pass_time(10.0)
    bench.list_groups()
    bench.report("old", event)
    assert bench.asked(DeclareQueue).key == "old", "the group had ended, so this is another worker"


def test_unknown_reports_are_counted_and_ignored(bench: PoolBench) -> None:
    bench.feed(ActivityArrived("42", "\ufffd"))
    assert bench.engine.snapshot().unknown_reports == 1
    assert not bench.take(DeclareQueue)


def test_a_foreign_input_is_refused() -> None:
    with pytest.raises(LocalViolation, match="a pool does not handle the input"):
        PoolBench().feed("hello")


def test_the_snapshot_shows_queues_groups_and_orphans(bench: PoolBench) -> None:
    bench.begin()
    status = bench.engine.snapshot()
    assert status.connected
    assert status.is_listed
    assert not status.draining
    assert status.queues["42"].actual == "bound"
    assert status.groups.running == {"42": UP}
    assert status.orphans.forwarded == 1
