"""A manager that is drained ends in order: pending messages, then groups."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.pool_engines import PoolBench, configured, dead_letter

from requite.engine import Drain, Stopped, Wake
from requite.pool.effects import (
    Answer,
    HandOver,
    InspectQueue,
    ListGroups,
    StartGroup,
    StopConsuming,
    StopGroup,
    UnbindQueue,
)
from requite.pool.inputs import (
    Disconnected,
    DrainPool,
    GroupDone,
    GroupFailed,
    HandedOver,
    OrphanArrived,
    Published,
    QueueDone,
    RequireGroup,
    RunningGroup,
)

UP = RunningGroup("1", 1)


@pytest.fixture
def bench() -> PoolBench:
    bench = PoolBench()
    bench.connect()
    bench.out.clear()
    return bench


def test_a_drain_finishes_pending_messages_and_stops_groups(bench: PoolBench) -> None:
    bench.begin()
    bench.feed(dead_letter())
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


def test_a_drain_may_leave_groups_running(bench: PoolBench) -> None:
    bench.begin()
    bench.feed(DrainPool(stop_groups=False))
    assert bench.take(Stopped)
    assert not bench.take(StopGroup)


def test_a_drained_standby_manager_stops_at_once() -> None:
    bench = PoolBench()
    bench.feed(Drain())
    assert bench.take(Stopped)


def test_a_group_that_starts_during_the_drain_is_stopped(bench: PoolBench) -> None:
    bench.feed(RequireGroup("42"))
    bench.list_groups()
    assert bench.asked(StartGroup)
    bench.feed(Drain())
    bench.list_groups()
    assert not bench.take(Stopped), "it is being started"
    bench.feed(GroupDone("42"))
    bench.list_groups(**{"42": UP})
    assert bench.asked(StopGroup).key == "42"


def test_a_group_started_again_during_the_drain_is_not_stopped_twice(bench: PoolBench) -> None:
    """After another manager has taken over, both could stop and start it in turn."""
    bench.begin()
    bench.feed(Drain())
    bench.list_groups(**{"42": UP})
    assert bench.asked(StopGroup).key == "42"
    bench.feed(GroupDone("42"))
    bench.list_groups(**{"42": UP})
    assert not bench.take(StopGroup)
    assert bench.take(Stopped)


def test_a_failed_stop_is_retried_during_the_drain(bench: PoolBench) -> None:
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


def test_groups_keep_running_if_another_manager_takes_over(bench: PoolBench) -> None:
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
def test_groups_are_stopped_if_no_manager_takes_over(bench: PoolBench, answer: Any) -> None:
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
def test_a_manager_without_groups_to_hand_over_does_not_ask(stands_by: bool) -> None:
    bench = PoolBench(configured(pool={"stop_groups_on_exit": stands_by}))
    if not stands_by:
        bench.connect()
    bench.feed(DrainPool(stop_groups=stands_by, hand_over=True))
    assert not bench.take(HandOver)
    assert bench.take(Stopped)


def test_a_draining_manager_takes_no_more_steps_on_queues(bench: PoolBench) -> None:
    bench.begin()
    bench.pass_time(10.0)
    assert bench.asked(UnbindQueue)
    bench.feed(DrainPool(stop_groups=False))
    bench.feed(QueueDone("42"))
    bench.pass_time(60.0)
    assert not bench.take(InspectQueue)


def test_a_second_drain_is_ignored_and_stop_groups_on_exit_may_be_off() -> None:
    bench = PoolBench(configured(pool={"stop_groups_on_exit": False}))
    bench.connect()
    bench.begin()
    bench.feed(Drain())
    bench.feed(DrainPool(stop_groups=True))
    assert bench.take(Stopped)
    assert not bench.take(StopGroup)
