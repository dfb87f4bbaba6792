"""Orphans wait for their queues and go on; dead letters are answered; the end is in order."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.spec.requirement import requirement
from tests.support.pool_engines import PoolBench, configured

from requite.engine import Drain, Stopped, Wake, Warn
from requite.errors import LocalViolation
from requite.pool.deadletters import reason_of
from requite.pool.effects import (
    Ack,
    Answer,
    BindQueue,
    DeclareQueue,
    Destination,
    Forward,
    HandOver,
    InspectQueue,
    ListGroups,
    StartGroup,
    StopConsuming,
    StopGroup,
    UnbindQueue,
)
from requite.pool.inputs import (
    ActivityArrived,
    DeadLetterArrived,
    Disconnected,
    DrainPool,
    GroupDone,
    GroupFailed,
    HandedOver,
    OrphanArrived,
    Published,
    PublishFailed,
    QueueDone,
    QueueFailed,
    ReleaseGroup,
    RequireGroup,
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


def letter(reason: Any = "expired", **how: Any) -> DeadLetterArrived:
    """Return a dead letter."""
    told = {"reply_to": "replies", "correlation_id": "c1"} | how
    headers = {"x-first-death-reason": reason} | told.pop("headers", {})
    return DeadLetterArrived("tag", "42", headers, **told)


# --- orphans --------------------------------------------------------------------------------------
@requirement("pool:startup-path", "pool:orphans:wait", "pool:confirms")
def test_an_orphan_waits_for_its_queue_and_is_acknowledged_when_its_copy_is_confirmed(
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


def test_one_slow_key_keeps_no_other_waiting(bench: PoolBench) -> None:
    bench.feed(OrphanArrived("slow", "a"))
    bench.feed(OrphanArrived("quick", "b"))
    keys = [effect.key for effect in bench.take(DeclareQueue)]
    assert keys == ["a", "b"]
    bench.feed(QueueFailed("a", "refused"))
    bench.feed(QueueDone("b"))
    bench.feed(QueueDone("b"))
    assert bench.asked(Forward).tag == "quick"


def test_a_window_full_of_one_key_is_put_back_behind_the_others(bench: PoolBench) -> None:
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


def test_a_window_that_is_not_full_is_left_alone(bench: PoolBench) -> None:
    bench.feed(OrphanArrived("o", "a"))
    bench.feed(QueueFailed("a", "refused"))
    bench.pass_time(3.0)
    assert not bench.take(Forward)


def test_an_orphan_that_expires_is_given_up_in_time(bench: PoolBench) -> None:
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


def test_the_time_that_is_left_is_handed_on(bench: PoolBench) -> None:
    bench.feed(OrphanArrived("o", "a", 5.0))
    bench.pass_time(2.0)
    bench.bind("a")
    assert bench.asked(Forward).expires_s == pytest.approx(3.0)


def test_an_orphan_that_is_not_confirmed_is_handed_on_again(bench: PoolBench) -> None:
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


def test_orphans_of_a_bound_queue_have_its_binding_made_sure_of(bench: PoolBench) -> None:
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


def test_a_key_that_orphans_wait_for_stays_expected(bench: PoolBench) -> None:
    bench.feed(OrphanArrived("o", "a"))
    for _ in range(10):
        bench.take(DeclareQueue)
        bench.feed(QueueFailed("a", "refused"))
        bench.pass_time(8.0)
    assert bench.engine.tracker.status("a") == "active"
    bench.bind("a")
    assert bench.asked(Forward).tag == "o"


def test_a_lost_connection_voids_everything(bench: PoolBench) -> None:
    bench.feed(OrphanArrived("o", "a"))
    bench.feed(letter())
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
def test_odd_keys_get_queues(bench: PoolBench, key: str) -> None:
    bench.feed(OrphanArrived("o", key))
    bench.bind(key)
    assert bench.asked(Forward).tag == "o"


@pytest.mark.parametrize("key", ["/" * 100, "a\0"], ids=["too long for a name", "NUL"])
def test_a_key_that_no_group_can_have_is_rejected(bench: PoolBench, key: str) -> None:
    bench.feed(OrphanArrived("o", key))
    assert bench.asked(Forward).reason == "rejected"
    assert not bench.take(DeclareQueue)


# --- dead letters ---------------------------------------------------------------------------------
@requirement("pool:dead-letters:answered", "pool:response:correlation-id", "pool:response:status")
@pytest.mark.parametrize("reason", ["expired", "rejected", "maxlen"])
def test_a_dead_letter_is_answered_with_its_reason_and_acknowledged(
    bench: PoolBench, reason: str
) -> None:
    bench.feed(letter(reason, headers={"x-delivery-count": 2}))
    answer = bench.asked(Answer)
    assert answer[1:] == ("replies", "c1", reason, 2, "")
    assert not bench.take(Ack)
    bench.feed(Published(answer.ticket))
    assert bench.asked(Ack).tag == "tag"
    assert not bench.take(Forward)


@requirement("pool:dead-letters:poison", "pool:failure:crash")
def test_a_request_that_killed_its_workers_is_kept_and_answered(bench: PoolBench) -> None:
    bench.feed(letter("delivery_limit", headers={"x-delivery-count": 4}))
    copy = bench.asked(Forward)
    assert copy.to is Destination.POISON
    bench.feed(Published(copy.ticket))
    answer = bench.asked(Answer)
    assert (answer.status, answer.attempt) == ("delivery_limit", 4)
    bench.feed(Published(answer.ticket))
    assert bench.asked(Ack)
    assert bench.engine.snapshot().dead_letters.poison == 1


def test_without_a_reply_to_it_is_only_acknowledged(bench: PoolBench) -> None:
    bench.feed(letter("expired", reply_to=None))
    assert not bench.take(Answer)
    assert bench.asked(Ack)


@pytest.mark.parametrize("trace", ["00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", ""])
def test_an_answer_has_the_trace_of_its_request(bench: PoolBench, trace: str) -> None:
    bench.feed(letter(headers={"traceparent": trace} if trace else {}))
    answer = bench.asked(Answer)
    assert answer.traceparent == trace
    headers = decode_properties(answer_header(answer)).headers
    assert headers.get("traceparent", "") == trace


def test_a_caller_that_has_gone_is_done_with(bench: PoolBench) -> None:
    bench.feed(letter())
    bench.feed(Published(bench.asked(Answer).ticket, routed=False))
    assert bench.asked(Ack)


def test_an_answer_that_is_not_confirmed_is_given_again(bench: PoolBench) -> None:
    bench.feed(letter("delivery_limit"))
    bench.feed(Published(bench.asked(Forward).ticket))
    bench.feed(PublishFailed(bench.asked(Answer).ticket, "timeout"))
    bench.pass_time(0.5)
    assert not bench.take(Forward), "one copy is kept"
    bench.feed(Published(bench.asked(Answer).ticket))
    assert bench.asked(Ack)


def test_dead_letters_go_on_beyond_any_number(bench: PoolBench) -> None:
    for i in range(200):
        bench.feed(letter()._replace(tag=i))
        bench.feed(Published(bench.asked(Answer).ticket))
    assert [ack.tag for ack in bench.take(Ack)] == [*range(200)]
    assert bench.engine.snapshot().dead_letters.by_reason == {"expired": 200}


@pytest.mark.parametrize("value", [None, 7, b"\xff", "no such reason", {}, ["expired"]])
def test_reasons_that_nobody_knows_are_rejections(value: Any) -> None:
    assert reason_of({"x-first-death-reason": value}) == "rejected"


def test_a_reason_in_bytes_is_read() -> None:
    assert reason_of({"x-first-death-reason": b"maxlen"}) == "maxlen"
    assert reason_of({"x-first-death-reason": "expired", "x-death": [{"reason": "x"}]}) == "expired"


def test_how_often_a_poison_request_ran_follows_from_the_limit(bench: PoolBench) -> None:
    bench.feed(letter("delivery_limit"))
    bench.feed(Published(bench.asked(Forward).ticket))
    assert bench.asked(Answer).attempt == 4


@pytest.mark.parametrize("count", ["many", -1, 2.5, None])
def test_counts_that_make_no_sense_are_no_attempts(bench: PoolBench, count: Any) -> None:
    bench.feed(letter(headers={"x-delivery-count": count}))
    assert bench.asked(Answer).attempt == 0


# --- the end --------------------------------------------------------------------------------------
def test_a_drain_finishes_what_is_in_hand_stops_groups_and_stops(bench: PoolBench) -> None:
    bench.begin()
    bench.feed(letter())
    answer = bench.asked(Answer)
    bench.feed(OrphanArrived("waits", "b"))
    bench.feed(Drain())
    assert bench.asked(StopConsuming) == ()
    bench.list_groups(**{"42": UP})
    assert bench.asked(StopGroup).key == "42"
    bench.feed(OrphanArrived("late", "c"))
    assert len(bench.engine.orphans) == 0, "they stay in their queue"
    bench.feed(GroupDone("42"))
    bench.list_groups(**{"42": RunningGroup("1", 1, stopping=True)})
    assert not bench.take(Stopped)
    bench.pass_time(5.0)
    bench.list_groups()
    assert not bench.take(Stopped), "an answer is not confirmed"
    bench.feed(Published(answer.ticket))
    assert bench.take(Stopped) == [Stopped()]
    bench.feed(Wake())
    assert not bench.take(Stopped)


def test_groups_can_be_left_to_another_manager(bench: PoolBench) -> None:
    bench.begin()
    bench.feed(DrainPool(stop_groups=False))
    assert bench.take(Stopped)
    assert not bench.take(StopGroup)


def test_a_manager_that_stood_by_stops_nothing() -> None:
    bench = PoolBench()
    bench.feed(Drain())
    assert bench.take(Stopped)


def test_a_group_that_starts_during_the_drain_is_stopped_too(bench: PoolBench) -> None:
    bench.feed(RequireGroup("42"))
    bench.list_groups()
    assert bench.asked(StartGroup)
    bench.feed(Drain())
    bench.list_groups()
    assert not bench.take(Stopped), "it is being started"
    bench.feed(GroupDone("42"))
    bench.list_groups(**{"42": UP})
    assert bench.asked(StopGroup).key == "42"


def test_a_group_that_somebody_has_started_again_is_stopped_once(bench: PoolBench) -> None:
    """Where another manager has taken over, both would be at work on it."""
    bench.begin()
    bench.feed(Drain())
    bench.list_groups(**{"42": UP})
    assert bench.asked(StopGroup).key == "42"
    bench.feed(GroupDone("42"))
    bench.list_groups(**{"42": UP})
    assert not bench.take(StopGroup)
    assert bench.take(Stopped)


def test_a_stop_that_has_failed_is_not_the_one(bench: PoolBench) -> None:
    bench.begin()
    bench.feed(Drain())
    bench.list_groups(**{"42": UP})
    assert bench.asked(StopGroup)
    bench.feed(GroupFailed("42", "no answer"))
    bench.list_groups(**{"42": UP})
    assert not bench.take(Stopped)
    bench.pass_time(0.5)
    bench.list_groups(**{"42": UP})
    assert bench.asked(StopGroup).key == "42"
    bench.feed(GroupDone("42"))
    bench.list_groups()
    assert bench.take(Stopped)


def test_another_manager_has_the_groups_where_one_takes_over(bench: PoolBench) -> None:
    bench.begin()
    bench.feed(DrainPool(stop_groups=True, hand_over=True))
    assert bench.asked(StopConsuming) == ()
    assert bench.asked(HandOver) == ()
    assert not bench.take(Stopped)
    bench.feed(HandedOver(taken=True))
    assert not bench.take(StopGroup)
    assert not bench.take(ListGroups)
    assert bench.take(Stopped)


@pytest.mark.parametrize("answer", [HandedOver(taken=False), Disconnected("reset")])
def test_groups_are_stopped_where_no_manager_takes_over(bench: PoolBench, answer: Any) -> None:
    bench.begin()
    bench.feed(DrainPool(stop_groups=True, hand_over=True))
    assert bench.asked(HandOver) == ()
    bench.feed(answer)
    bench.list_groups(**{"42": UP})
    assert bench.asked(StopGroup).key == "42"
    bench.feed(HandedOver(taken=True))  # too late
    bench.feed(GroupDone("42"))
    bench.list_groups()
    assert bench.take(Stopped)


@pytest.mark.parametrize("stands_by", [True, False])
def test_who_has_nothing_to_hand_over_asks_nobody(stands_by: bool) -> None:
    bench = PoolBench(configured(pool={"stop_groups_on_exit": stands_by}))
    if not stands_by:
        bench.connect()
    bench.feed(DrainPool(stop_groups=stands_by, hand_over=True))
    assert not bench.take(HandOver)
    assert bench.take(Stopped)


def test_a_manager_that_leaves_does_nothing_more_about_queues(bench: PoolBench) -> None:
    bench.begin()
    bench.pass_time(10.0)
    assert bench.asked(UnbindQueue)
    bench.feed(DrainPool(stop_groups=False))
    bench.feed(QueueDone("42"))
    bench.pass_time(60.0)
    assert not bench.take(InspectQueue)


def test_a_drain_is_asked_for_once_and_settings_can_have_it_spare_groups() -> None:
    bench = PoolBench(configured(pool={"stop_groups_on_exit": False}))
    bench.connect()
    bench.begin()
    bench.feed(Drain())
    bench.feed(DrainPool(stop_groups=True))
    assert bench.take(Stopped)
    assert not bench.take(StopGroup)


# --- what comes from outside ----------------------------------------------------------------------
def test_workers_ask_for_work_when_their_queue_has_gone(bench: PoolBench) -> None:
    bench.feed(ActivityArrived("42", "started"))
    assert bench.asked(DeclareQueue).key == "42"


def test_reports_that_nobody_knows_change_nothing(bench: PoolBench) -> None:
    bench.feed(ActivityArrived("42", "\ufffd"))
    assert bench.engine.snapshot().unknown_reports == 1
    assert not bench.take(DeclareQueue)


def test_what_is_no_input_is_a_bug() -> None:
    with pytest.raises(LocalViolation, match="a pool does not handle the input"):
        PoolBench().feed("hello")


def test_the_status_tells_what_there_is(bench: PoolBench) -> None:
    bench.begin()
    status = bench.engine.snapshot()
    assert status.connected
    assert status.is_listed
    assert not status.draining
    assert status.queues["42"].actual == "bound"
    assert status.groups.running == {"42": UP}
    assert status.orphans.forwarded == 1
