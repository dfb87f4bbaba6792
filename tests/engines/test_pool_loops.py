"""Queues and groups converge to the expected state step by step, whatever fails on the way."""

from __future__ import annotations

import pytest
from tests.spec.requirement import requirement
from tests.support.pool_engines import CONFIG, PoolBench, configured

from requite.engine import Warn
from requite.pool.effects import (
    BindQueue,
    DeclareQueue,
    DeleteQueue,
    Forward,
    InspectQueue,
    ListGroups,
    ListQueues,
    StartGroup,
    StopGroup,
    UnbindQueue,
)
from requite.pool.inputs import (
    Connected,
    Disconnected,
    GroupDone,
    GroupFailed,
    GroupListFailed,
    GroupsListed,
    OrphanArrived,
    Published,
    QueueAbsent,
    QueueDone,
    QueueFailed,
    QueueInspected,
    QueueListFailed,
    QueuesListed,
    ReleaseGroup,
    RequireGroup,
    RunningGroup,
    ScaleGroup,
    SetVersion,
)
from requite.pool.queues import Actual

UP = RunningGroup("1", 1)


@pytest.fixture
def bench() -> PoolBench:
    bench = PoolBench()
    bench.connect()
    bench.out.clear()
    return bench


def unbind_queue(bench: PoolBench, key: str = "42", **groups: RunningGroup) -> None:
    """Advance the clock without requests until the group's queue is unbound."""
    bench.pass_time(10.5)
    assert bench.asked(UnbindQueue).key == key
    bench.feed(QueueDone(key))
    bench.list_groups(**groups)


def start_and_release(bench: PoolBench, key: str = "42") -> None:
    """Start a group, and stop it for lack of requests, up to the last inspection of its queue."""
    bench.begin(key)
    release(bench, key)


def release(bench: PoolBench, key: str = "42") -> None:
    """Stop a running group for lack of requests, up to the last inspection of its queue."""
    unbind_queue(bench, key, **{key: UP})
    bench.pass_time(4.0)
    bench.inspect(key)
    bench.list_groups(**{key: UP})
    assert bench.asked(StopGroup).key == key
    bench.feed(GroupDone(key))
    bench.list_groups()
    bench.pass_time(5.0)
    bench.list_groups()


# --- queues ---------------------------------------------------------------------------------------
@requirement("pool:queues:create", "pool:startup:limits", "pool:group:queue")
def test_a_queue_is_declared_with_its_limits_then_bound(bench: PoolBench) -> None:
    bench.feed(RequireGroup("4/2"))
    declared = bench.asked(DeclareQueue)
    assert declared.key == "4/2"
    assert declared.arguments == {
        "x-queue-type": "quorum",
        "x-dead-letter-exchange": "core-dl-xchg",
        "x-delivery-limit": 3,
        "x-message-ttl": 60_000,
        "x-max-length": 100,
    }
    assert not bench.take(BindQueue)
    bench.feed(QueueDone("4/2"))
    assert bench.asked(BindQueue).key == "4/2"
    bench.feed(QueueDone("4/2"))
    assert bench.engine.queues.bound_since("4/2") == 1


@requirement("pool:unbind-first", "pool:queues:remove")
def test_a_queue_is_unbound_and_inspected_then_its_group_stopped_and_it_is_deleted(
    bench: PoolBench,
) -> None:
    bench.begin()
    unbind_queue(bench, **{"42": UP})
    bench.pass_time(4.0)
    bench.inspect()
    bench.list_groups(**{"42": UP})
    assert bench.asked(StopGroup).key == "42"
    assert not bench.take(DeleteQueue), "its workers may give requests back"
    bench.feed(GroupDone("42"))
    bench.list_groups()
    bench.pass_time(5.0)
    bench.list_groups()
    bench.settle()
    assert bench.asked(DeleteQueue).key == "42"
    bench.feed(QueueDone("42"))
    assert bench.engine.queues.snapshot() == {}
    assert bench.engine.tracker.state().groups == {}


@pytest.mark.parametrize("content", [{"ready": 1}, {"held": 1}])
def test_a_group_whose_queue_is_not_empty_is_required_again(
    bench: PoolBench, content: dict[str, int]
) -> None:
    bench.begin()
    unbind_queue(bench, **{"42": UP})
    bench.pass_time(4.0)
    bench.inspect(**content)
    assert bench.asked(BindQueue).key == "42"
    assert not bench.take(StopGroup)


def test_a_queue_with_consumers_is_inspected_again_before_deletion(bench: PoolBench) -> None:
    start_and_release(bench)
    bench.inspect(consumers=2)
    assert not bench.take(DeleteQueue)
    bench.pass_time(5.0)
    bench.settle()
    assert bench.asked(DeleteQueue).key == "42"


def test_a_queue_with_messages_at_the_second_inspection_is_kept(
    bench: PoolBench,
) -> None:
    """Requests that a dead worker held return to the queue, or are counted only later."""
    start_and_release(bench)
    bench.inspect()
    bench.pass_time(CONFIG.loops.settle_s)
    bench.inspect(held=1)
    assert not bench.take(DeleteQueue)
    assert bench.asked(BindQueue).key == "42"
    assert bench.engine.tracker.status("42") is not None


def test_a_consumer_at_the_second_inspection_restarts_both(bench: PoolBench) -> None:
    start_and_release(bench)
    bench.inspect()
    bench.pass_time(CONFIG.loops.settle_s)
    bench.inspect(consumers=1)
    bench.pass_time(CONFIG.loops.interval_s)
    bench.settle()
    assert bench.asked(DeleteQueue).key == "42"


def test_a_request_between_both_inspections_restarts_them(bench: PoolBench) -> None:
    start_and_release(bench)
    bench.inspect()
    bench.feed(OrphanArrived("late", "42"))
    assert bench.asked(BindQueue).key == "42"
    assert bench.engine.queues.snapshot()["42"].step is not None
    bench.feed(QueueDone("42"))
    bench.feed(Published(bench.asked(Forward).ticket))
    bench.list_groups()
    bench.feed(GroupDone(bench.asked(StartGroup).key))
    bench.list_groups(**{"42": UP})
    release(bench)
    bench.settle()
    assert bench.asked(DeleteQueue).key == "42"


@requirement("pool:queues:retry")
def test_refused_declarations_are_retried_with_back_off(bench: PoolBench) -> None:
    bench.feed(RequireGroup("a"))
    for _ in range(4):
        bench.feed(QueueFailed(bench.asked(DeclareQueue).key, "406 PRECONDITION_FAILED"))
        assert "406" in bench.asked(Warn).text
        bench.report("a")
        bench.pass_time(8.0)
    bench.feed(RequireGroup("b"))
    assert {effect.key for effect in bench.take(DeclareQueue)} == {"a", "b"}


def test_a_refused_deletion_is_retried(bench: PoolBench) -> None:
    start_and_release(bench)
    bench.settle()
    bench.feed(QueueFailed(bench.asked(DeleteQueue).key, "540 NOT_IMPLEMENTED"))
    bench.pass_time(0.5)
    assert bench.asked(UnbindQueue), "nobody knows what the refused one has done"


def test_a_group_required_during_the_deletion_of_its_queue_gets_a_new_queue(
    bench: PoolBench,
) -> None:
    start_and_release(bench)
    bench.settle()
    assert bench.asked(DeleteQueue)
    bench.feed(OrphanArrived("late", "42"))
    assert not bench.take(DeclareQueue)
    bench.feed(QueueDone("42"))
    assert not bench.take(DeclareQueue), "RabbitMQ may not be done with the old one"
    assert not bench.take(Forward)
    bench.pass_time(1.0)
    bench.bind("42")
    assert bench.asked(Forward).tag == "late"


def test_a_queue_declared_for_a_group_given_up_meanwhile_is_unbound(bench: PoolBench) -> None:
    """A declaration succeeds if the queue exists; it may be bound since an earlier connection."""
    bench.feed(RequireGroup("42"))
    assert bench.asked(DeclareQueue)
    bench.feed(ReleaseGroup("42"))
    bench.feed(QueueDone("42"))
    assert bench.asked(UnbindQueue).key == "42"
    assert not bench.take(InspectQueue)
    bench.feed(QueueAbsent("42"))
    bench.pass_time(1.5)
    assert bench.asked(DeclareQueue).key == "42", "its workers consume from it until they stop"
    bench.feed(QueueDone("42"))
    assert not bench.take(UnbindQueue), "it is new"


def test_a_queue_awaiting_deletion_is_bound_at_once_when_required(
    bench: PoolBench,
) -> None:
    start_and_release(bench)
    bench.inspect(consumers=1)
    bench.feed(OrphanArrived("late", "42"))
    assert bench.asked(BindQueue).key == "42"


def test_a_listing_older_than_a_step_is_ignored(bench: PoolBench) -> None:
    bench.pass_time(5.0)
    listing = bench.asked(ListQueues)
    bench.begin()
    bench.feed(QueuesListed(listing.ticket, {}))
    assert bench.engine.queues.snapshot()["42"].actual is Actual.BOUND
    bench.pass_time(5.0)
    bench.list_queues({})
    assert not bench.take(DeclareQueue), "its name rests"
    bench.pass_time(1.0)
    assert bench.asked(DeclareQueue).key == "42", "this one is newer: the queue has gone"


def test_an_old_listing_does_not_restore_a_deleted_queue(bench: PoolBench) -> None:
    start_and_release(bench)
    listing = bench.asked(ListQueues)
    bench.settle()
    assert bench.asked(DeleteQueue)
    bench.feed(QueueDone("42"))
    bench.feed(QueuesListed(listing.ticket, {"42": False}))
    assert bench.engine.tracker.status("42") is None
    bench.pass_time(5.0)
    bench.list_queues({"42": False})
    assert bench.engine.tracker.status("42") is not None, "somebody has made another one"


@requirement("pool:tracker:initial")
def test_existing_queues_get_groups_at_once(bench: PoolBench) -> None:
    fresh = PoolBench()
    fresh.connect({"a": True, "b": False}, a=UP)
    assert {*fresh.engine.tracker.state().groups} == {"a", "b"}
    assert fresh.asked(BindQueue).key == "b"
    assert fresh.asked(StartGroup).key == "b"
    assert not fresh.take(StopGroup)


def test_a_failing_management_api_causes_a_warning_and_stops_no_group(bench: PoolBench) -> None:
    fresh = PoolBench()
    fresh.feed(Connected())
    fresh.feed(QueueListFailed(fresh.asked(ListQueues).ticket, "401"))
    assert "rabbitmq.management_url" in fresh.asked(Warn).text
    fresh.list_groups(stray=UP)
    assert not fresh.take(StopGroup), "nobody knows yet whether it is needed"
    fresh.feed(OrphanArrived("o", "a"))
    fresh.bind("a")
    assert fresh.asked(Forward).tag == "o"
    fresh.pass_time(0.5)
    fresh.list_queues({"a": True})
    fresh.list_groups(stray=UP, a=UP)
    assert fresh.asked(StopGroup).key == "stray"


def test_queues_are_declared_again_after_a_reconnect(bench: PoolBench) -> None:
    bench.begin()
    bench.feed(Disconnected("gone"))
    assert bench.engine.deadline() is None
    bench.feed(Connected())
    assert bench.asked(DeclareQueue).key == "42"


def test_unexpected_answers_are_ignored(bench: PoolBench) -> None:
    for event in (
        QueueDone("x"),
        QueueAbsent("x"),
        QueueFailed("x", "no"),
        QueueInspected("x", 0, 0, 0),
        QueuesListed(999, {"x": True}),
        GroupsListed(999, {"x": UP}),
        GroupDone("x"),
    ):
        bench.feed(event)
    assert bench.engine.queues.snapshot() == {}
    assert not bench.take(StopGroup)


# --- groups ---------------------------------------------------------------------------------------
@requirement("pool:groups:converge")
def test_missing_groups_are_started_and_unexpected_ones_stopped(bench: PoolBench) -> None:
    bench.feed(RequireGroup("a"))
    bench.list_groups(stray=UP)
    assert bench.asked(StartGroup) == ("a", "1", None)
    assert bench.asked(StopGroup).key == "stray"


@requirement("pool:groups:list-failure")
def test_a_failed_listing_of_groups_is_retried(bench: PoolBench) -> None:
    bench.feed(RequireGroup("a"))
    for _ in range(3):
        bench.feed(GroupListFailed(bench.take(ListGroups)[-1].ticket, "no such socket"))
        assert "no such socket" in bench.asked(Warn).text
        bench.pass_time(8.0)
    bench.list_groups()
    assert bench.asked(StartGroup).key == "a"


@requirement("pool:groups:idempotent")
def test_a_failed_start_is_retried_in_a_later_round(bench: PoolBench) -> None:
    bench.feed(RequireGroup("a"))
    bench.list_groups()
    assert bench.asked(StartGroup)
    bench.feed(GroupFailed("a", "no image"))
    assert bench.engine.snapshot().groups.failures == {"a": "no image"}
    bench.list_groups()
    assert not bench.take(StartGroup)
    bench.pass_time(0.5)
    bench.list_groups()
    assert bench.asked(StartGroup), "again, though it may run: starting twice does nothing"


def test_a_group_has_one_pending_order_at_a_time(bench: PoolBench) -> None:
    bench.feed(RequireGroup("a"))
    bench.list_groups()
    assert bench.asked(StartGroup)
    bench.pass_time(5.0)
    bench.list_groups()
    assert not bench.take(StartGroup)


def test_a_group_that_keeps_exiting_is_started_with_back_off(bench: PoolBench) -> None:
    bench.feed(RequireGroup("a"))
    bench.list_groups()
    times = []
    for _ in range(4):
        bench.asked(StartGroup)
        bench.feed(GroupDone("a"))
        bench.list_groups(a=UP)
        since = bench.now
        while not any(isinstance(effect, StartGroup) for effect in bench.out):
            bench.report("a")
            bench.pass_time(0.25)
            bench.list_groups()
        times.append(bench.now - since)
    assert times == sorted(times)
    assert times[-1] > times[0]
    assert bench.engine.snapshot().groups.failures == {"a": "its workers have exited"}


def test_a_failure_is_cleared_when_the_group_has_run_for_a_while(bench: PoolBench) -> None:
    bench.feed(RequireGroup("a"))
    bench.list_groups()
    bench.asked(StartGroup)
    bench.feed(GroupFailed("a", "no image"))
    bench.list_groups()
    bench.pass_time(0.5)
    bench.list_groups()
    bench.asked(StartGroup)
    bench.feed(GroupDone("a"))
    bench.list_groups(a=UP)
    assert bench.engine.snapshot().groups.failures == {"a": "no image"}
    end = bench.now + CONFIG.loops.backoff_max_s + CONFIG.loops.interval_s
    while bench.now < end:
        bench.report("a")
        bench.pass_time(1.0)
        bench.list_groups(a=UP)
    assert not bench.engine.snapshot().groups.failures


@requirement("pool:tracker:unbind")
def test_an_unbound_group_keeps_running(bench: PoolBench) -> None:
    bench.begin()
    unbind_queue(bench, **{"42": UP})
    assert not bench.take(StopGroup)
    bench.report()
    assert bench.asked(BindQueue).key == "42"


def test_a_new_version_replaces_groups_one_after_the_other(bench: PoolBench) -> None:
    for key in "abc":
        bench.feed(RequireGroup(key))
    running = dict.fromkeys("abc", UP)
    bench.list_groups(**running)
    bench.feed(SetVersion("2"))
    bench.list_groups(**running)
    replaced = []
    for _ in range(3):
        key = bench.asked(StopGroup).key
        bench.feed(GroupDone(key))
        bench.list_groups(**running | {key: RunningGroup("1", 1, stopping=True)})
        assert not bench.take(StartGroup)
        del running[key]
        bench.pass_time(5.0)
        bench.list_groups(**running)
        assert bench.asked(StartGroup) == (key, "2", None)
        assert not bench.take(StopGroup)
        bench.feed(GroupDone(key))
        running[key] = RunningGroup("2", 1)
        replaced.append(key)
        bench.list_groups(**running)
    assert sorted(replaced) == ["a", "b", "c"]
    assert not bench.take(StopGroup)


def test_scaling_restarts_the_group_with_the_new_size(bench: PoolBench) -> None:
    bench.begin()
    bench.feed(ScaleGroup("42", 3))
    bench.list_groups(**{"42": UP})
    assert bench.asked(StartGroup) == ("42", "1", 3)
    bench.feed(GroupDone("42"))
    bench.list_groups(**{"42": RunningGroup("1", 3)})
    assert not bench.take(StartGroup)


def test_a_standby_manager_stops_no_groups(bench: PoolBench) -> None:
    bench.feed(Disconnected("somebody else consumes"))
    bench.pass_time(60.0)
    bench.list_groups(stray=UP)
    assert not bench.take(StopGroup)


def test_a_failed_inspection_is_retried() -> None:
    bench = PoolBench(configured(lifetime={"unbind_delay_s": 1.0, "stop_delay_s": 1.0}))
    bench.connect()
    bench.begin()
    bench.pass_time(1.5)
    bench.feed(QueueDone(bench.asked(UnbindQueue).key))
    bench.pass_time(1.0)
    bench.feed(QueueFailed(bench.asked(InspectQueue).key, "timeout"))
    assert bench.engine.tracker.status("42") is not None
    bench.pass_time(0.5)
    bench.inspect()
    assert bench.engine.tracker.status("42") is None
