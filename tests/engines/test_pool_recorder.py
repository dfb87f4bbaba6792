"""The rows that the manager of a pool writes about groups, orphans and dead letters."""

from __future__ import annotations

import re
from typing import Any

import pytest
from tests.support.pool_engines import PoolBench, configured

from requite.chronicle import NO_CALL, Chronicle, EventRow, Kind
from requite.pool.effects import Answer, BindQueue, DeclareQueue, Forward
from requite.pool.inputs import (
    DeadLetterArrived,
    Disconnected,
    DrainPool,
    GroupDone,
    GroupFailed,
    GroupsListed,
    OrphanArrived,
    Published,
    QueueDone,
    ReleaseGroup,
    RequireGroup,
    RunningGroup,
    ScaleGroup,
)
from requite.pool.manager.messages import Delivery, call_id_of
from requite.pool.recorder import HISTORY_MAX, GroupStep, PoolRecorder
from requite.protocols.amqp.properties import Properties
from requite.request import Status

CALL = bytes(range(16))


class RecordedBench(PoolBench):
    """A bench whose engine is recorded."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.chronicle = Chronicle()
        self.recorder = PoolRecorder(self.chronicle)
        self.told = 0  # events of the history that were read

    def feed(self, event: Any) -> list[Any]:
        effects = super().feed(event)
        self.recorder.record(event, effects, self.engine.tracker, self.now)
        return effects

    def new_rows(self) -> list[EventRow]:
        """Return the event rows written since the last call."""
        return self.chronicle.take()[2]

    def new_history(self) -> list[tuple[GroupStep, str]]:
        """Return what happened to groups since the last call."""
        history = [(each.step, each.reason) for each in self.recorder.history]
        new, self.told = history[self.told :], len(history)
        return new

    def list_groups(self, **groups: RunningGroup) -> None:
        """Answer the engine's last `ListGroups`."""
        self.feed(GroupsListed(self.engine.groups._round, groups))


@pytest.fixture
def bench() -> RecordedBench:
    bench = RecordedBench()
    bench.connect()
    bench.out.clear()
    bench.new_rows()
    return bench


def kinds(rows: list[EventRow]) -> list[tuple[Kind, bytes]]:
    return [(Kind(row.kind), row.service) for row in rows]


def test_an_orphan_is_recorded_when_it_has_been_forwarded_to_its_queue(bench):
    bench.feed(OrphanArrived("tag", "BR", None, CALL))
    assert kinds(bench.new_rows()) == [(Kind.REQUIRED, b"BR")]
    for effect in (DeclareQueue, BindQueue):
        assert bench.asked(effect).key == "BR"
        bench.feed(QueueDone("BR"))
    assert bench.new_rows() == []
    bench.feed(Published(bench.asked(Forward).ticket))
    [row] = bench.new_rows()
    assert (row.kind, row.call_id, row.service, row.at) == (Kind.QUEUED, CALL, b"BR", bench.now)


def test_started_stopped_and_failed_groups_are_recorded(bench):
    bench.feed(OrphanArrived("tag", "BR"))
    bench.new_rows()
    bench.list_groups(BR=RunningGroup("1", 2))
    bench.list_groups(BR=RunningGroup("1", 1))
    [row] = bench.new_rows()
    assert (row.kind, row.service, row.reason) == (Kind.WORKER_JOINED, b"BR", "2 workers")
    bench.list_groups()
    assert kinds(bench.new_rows()) == [(Kind.WORKER_LOST, b"BR")]
    bench.feed(GroupFailed("BR", "no such program"))
    [row] = bench.new_rows()
    assert (row.kind, row.service, row.reason) == (Kind.REFUSED, b"BR", "no such program")


def test_a_released_group_is_recorded_as_drained_and_released():
    bench = RecordedBench(configured(pool={"version": "2"}))
    bench.connect()
    bench.feed(RequireGroup("BR"))
    bench.new_rows()
    bench.list_groups(BR=RunningGroup("1", None))  # of another version: it is replaced
    bench.list_groups()
    assert kinds(bench.new_rows()) == [(Kind.WORKER_JOINED, b"BR"), (Kind.WORKER_DRAINED, b"BR")]
    bench.feed(ReleaseGroup("BR"))
    assert kinds(bench.new_rows()) == [(Kind.RELEASED, b"BR")]


@pytest.mark.parametrize(
    ("reason", "kind", "outcome", "error"),
    [
        ("expired", Kind.EXPIRED, Status.EXPIRED, "CallTimeout"),
        ("rejected", Kind.ANSWERED, Status.FAILED, "RemoteFailure"),
        ("maxlen", Kind.ANSWERED, Status.OVERLOADED, "Overloaded"),
        ("delivery_limit", Kind.ANSWERED, Status.POISONED, "Poisoned"),
        ("of old age", Kind.ANSWERED, Status.FAILED, "RemoteFailure"),
    ],
)
def test_a_dead_letter_is_recorded_when_its_answer_is_confirmed(
    bench, reason, kind, outcome, error
):
    headers = {"x-first-death-reason": reason}
    bench.feed(DeadLetterArrived("tag", "BR", headers, "client", "id", CALL))
    if reason == "delivery_limit":
        bench.feed(Published(bench.asked(Forward).ticket))
    assert bench.new_rows() == []
    bench.feed(Published(bench.asked(Answer).ticket, routed=False))
    [row] = bench.new_rows()
    assert (row.kind, row.outcome, row.error) == (kind, outcome, error)
    assert (row.call_id, row.service) == (CALL, b"BR")


def test_messages_dropped_with_a_lost_connection_are_not_recorded(bench):
    bench.feed(DeadLetterArrived("tag", "BR", {}, None, None, CALL))
    assert [row.call_id for row in bench.new_rows()] == [CALL]  # no caller to answer
    bench.feed(OrphanArrived("other", "BR", None, CALL))
    bench.feed(Disconnected())
    assert kinds(bench.new_rows()) == [(Kind.REQUIRED, b"BR")]
    assert bench.recorder._held == {}


@pytest.mark.parametrize(
    ("text", "call_id"),
    [(CALL.hex(), CALL), ("", NO_CALL), ("7", NO_CALL), ("x" * 32, NO_CALL)],
)
def test_the_call_id_is_read_from_a_valid_message_id(text, call_id):
    assert call_id_of(Delivery(1, "key", b"", Properties(message_id=text), b"")) == call_id


# --- the history of groups ------------------------------------------------------------------------
def test_the_history_says_why_a_group_was_started(bench):
    bench.feed(OrphanArrived("tag", "BR"))
    bench.list_groups()
    assert bench.new_history() == [(GroupStep.STARTING, "a request for it arrived")]
    bench.feed(GroupDone("BR"))
    bench.list_groups(BR=RunningGroup("1", 1))
    assert bench.new_history() == [(GroupStep.RUNNING, "1 worker")]
    bench.feed(ScaleGroup("BR", 3))
    bench.list_groups(BR=RunningGroup("1", 1))
    assert bench.new_history() == [(GroupStep.STARTING, "it has 1 worker, and should have 3")]


def test_the_history_says_that_workers_have_exited_and_are_started_again(bench):
    bench.feed(RequireGroup("BR"))
    bench.list_groups()
    bench.feed(GroupDone("BR"))
    bench.list_groups(BR=RunningGroup("1", 1))
    bench.new_history()
    bench.list_groups()
    bench.pass_time(60.0)
    bench.list_groups()
    lost, again = bench.new_history()[:2]
    assert lost == (GroupStep.LOST, "its workers have exited without an order")
    assert again[0] == GroupStep.STARTING
    assert re.fullmatch(r"its workers have exited; it was started \d+\.\d s before", again[1])


def test_the_history_says_that_workers_exit_at_once(bench):
    bench.feed(RequireGroup("BR"))
    for _ in range(3):
        bench.list_groups()
        bench.feed(GroupDone("BR"))
        bench.list_groups()
        bench.pass_time(60.0)
    seen = bench.new_history()
    assert seen[0] == (GroupStep.STARTING, "an operator required it")
    pauses = [
        float(why.rpartition(" started ")[2].removesuffix(" s before")) for _, why in seen[1:]
    ]
    assert all(why.startswith("its workers have exited; ") for _, why in seen[1:])
    assert len(pauses) >= 2
    assert pauses == sorted(pauses)


def test_the_history_says_why_a_group_was_stopped():
    bench = RecordedBench(configured(pool={"version": "2"}))
    bench.connect()
    bench.feed(RequireGroup("BR"))
    bench.list_groups(BR=RunningGroup("1", 1))
    bench.feed(GroupDone("BR"))
    bench.list_groups()
    assert bench.new_history() == [
        (GroupStep.RUNNING, "1 worker"),
        (GroupStep.STOPPING, "it is replaced: it runs version 1"),
        (GroupStep.STOPPED, "it is replaced: it runs version 1"),
        (GroupStep.STARTING, "it is replaced"),
    ]
    bench.feed(GroupDone("BR"))
    bench.list_groups(BR=RunningGroup("2", 1))
    bench.new_history()
    bench.feed(DrainPool())
    bench.list_groups(BR=RunningGroup("2", 1))
    [stopping] = bench.new_history()
    assert stopping == (GroupStep.STOPPING, "the manager exits, and no other one takes over")


def test_the_history_says_that_an_order_failed(bench):
    bench.feed(RequireGroup("BR"))
    bench.list_groups()
    bench.feed(GroupFailed("BR", "no such program"))
    bench.list_groups()
    bench.pass_time(60.0)
    bench.list_groups()
    _, failed, again = bench.new_history()[:3]
    assert failed == (GroupStep.FAILED, "no such program")
    assert again[1].startswith("the last order to the driver failed; it was started ")


def test_the_history_is_bounded_and_needs_no_journal(bench):
    bench.recorder = PoolRecorder(None)
    for number in range(HISTORY_MAX + 50):
        bench.feed(GroupFailed("BR", f"no such program {number}"))
    first, *_, last = bench.recorder.history
    assert (len(bench.recorder.history), first.key) == (HISTORY_MAX, "BR")
    assert (first.reason, last.reason) == ("no such program 50", "no such program 149")
    assert {each.step for each in bench.recorder.history} == {GroupStep.FAILED}
    assert bench.new_rows() == []


def test_a_released_group_is_stopped_because_an_operator_released_it(bench):
    bench.feed(RequireGroup("BR"))
    bench.list_groups(BR=RunningGroup("1", 1))
    bench.new_rows()
    bench.feed(ReleaseGroup("BR"))
    [released] = bench.new_rows()
    assert (released.kind, released.reason) == (Kind.RELEASED, "an operator released it")
