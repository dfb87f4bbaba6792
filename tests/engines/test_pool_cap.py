"""`limits.groups`: requests for more keys wait, whatever makes the keys known."""

from __future__ import annotations

from typing import Any

import pytest
from tests.engines.test_pool_services import RUNS, Bench
from tests.support.pool_engines import PoolBench, configured

from requite.engine import Warn
from requite.pool.effects import DeclareQueue, Destination, Forward, StartGroup
from requite.pool.inputs import (
    GroupDone,
    OrphanArrived,
    Published,
    QueueDone,
    QueueInspected,
    ReleaseGroup,
    RequireGroup,
    RunningGroup,
    ScaleGroup,
)

UP = RunningGroup("1", 1)


def pool(groups: int = 2, queues: dict[str, bool] | None = None, **more: Any) -> PoolBench:
    """Return a connected manager with this limit."""
    bench = PoolBench(configured(limits={"groups": groups, "orphans": 100, **more}))
    bench.connect(queues)
    return bench


def alerts(bench: PoolBench) -> list[Warn]:
    """Remove and return the warnings about the limit."""
    return [each for each in bench.take(Warn) if each.kind == "groups-max"]


def expected(bench: PoolBench) -> set[str]:
    """Return the keys of the expected groups."""
    return set(bench.engine.tracker.state().groups)


def let_go(bench: PoolBench, key: str) -> None:
    """Release a group, and let its workers end."""
    bench.feed(ReleaseGroup(key))
    bench.feed(QueueDone(key))
    bench.pass_time(4.0)
    bench.feed(QueueInspected(key, 0, 0, 0))


def test_requests_for_sixty_keys_start_as_many_groups_as_the_limit() -> None:
    bench = pool(5)
    for number in range(60):
        bench.feed(OrphanArrived(number, f"key-{number}"))
        bench.feed(OrphanArrived(-number, f"key-{number}"))
    bench.list_groups()
    first = {f"key-{number}" for number in range(5)}
    assert {each.key for each in bench.take(StartGroup)} == first
    assert {each.key for each in bench.take(DeclareQueue)} == first
    assert bench.engine.snapshot().orphans.waiting == {f"key-{n}": 2 for n in range(60)}
    [alert] = alerts(bench)
    assert "limits.groups" in alert.text
    assert "'key-5'" in alert.text


def test_a_waiting_request_gets_its_group_when_another_goes() -> None:
    bench = pool(1)
    bench.begin("a")
    bench.feed(OrphanArrived("b1", "b"))
    bench.feed(OrphanArrived("c1", "c"))
    assert (expected(bench), len(alerts(bench))) == ({"a"}, 1)
    let_go(bench, "a")
    assert (expected(bench), alerts(bench)) == ({"b"}, [])  # the oldest request is first
    bench.bind("b")
    forwarded = bench.asked(Forward)
    assert (forwarded.tag, forwarded.to) == ("b1", Destination.REQUESTS)


def test_after_there_was_room_the_alert_is_given_again() -> None:
    bench = pool(1)
    bench.begin("a")
    bench.feed(OrphanArrived("b1", "b", 1.0))
    assert len(alerts(bench)) == 1
    bench.pass_time(2.0)
    let_go(bench, "a")
    assert expected(bench) == set()
    bench.feed(RequireGroup("c"))
    bench.feed(OrphanArrived("d1", "d"))
    assert (expected(bench), len(alerts(bench))) == ({"c"}, 1)


def test_a_waiting_request_expires() -> None:
    bench = pool(1)
    bench.begin("a")
    bench.feed(OrphanArrived("b1", "b", expires_s=3.0))
    bench.pass_time(2.9)
    assert not bench.take(Forward)
    bench.pass_time(0.1)
    letter = bench.asked(Forward)
    assert (letter.tag, letter.to, letter.reason) == ("b1", Destination.DEAD_LETTERS, "expired")
    bench.feed(Published(letter.ticket))
    assert bench.engine.snapshot().orphans.waiting == {}


def test_a_group_of_the_pool_is_not_limited() -> None:
    bench = pool(1)
    bench.begin("a")
    bench.feed(ReleaseGroup("a"))
    bench.feed(QueueDone("a"))
    bench.feed(OrphanArrived("a1", "a"))
    bench.feed(QueueDone("a"))
    assert bench.asked(Forward).tag == "a1"
    assert alerts(bench) == []


def test_operators_and_reports_of_workers_add_no_group_above_the_limit() -> None:
    bench = pool(1)
    bench.begin("a")
    bench.feed(RequireGroup("b"))
    bench.feed(ScaleGroup("c", 3))
    bench.report("d")
    bench.report("e", "started")
    assert (expected(bench), len(alerts(bench))) == ({"a"}, 1)


def test_groups_whose_queues_exist_are_kept() -> None:
    bench = pool(2, dict.fromkeys("abc", True))
    assert expected(bench) == {"a", "b", "c"}
    bench.feed(OrphanArrived("d1", "d"))
    assert expected(bench) == {"a", "b", "c"}
    for key in "ab":
        let_go(bench, key)
    assert expected(bench) == {"c", "d"}


def test_a_request_waits_for_a_group_that_a_queue_requires() -> None:
    """The queue of a stopped group still holds a request, so its group comes back above the
    limit."""
    bench = pool(1)
    bench.begin("a")
    let_go(bench, "a")
    bench.list_groups()
    bench.feed(RequireGroup("b"))
    bench.feed(OrphanArrived("a1", "a"))
    assert expected(bench) == {"b"}
    bench.feed(GroupDone("a"))
    bench.list_groups(b=UP)
    bench.pass_time(5.0)
    bench.list_groups(b=UP)
    bench.feed(QueueInspected("a", 1, 0, 0))
    assert expected(bench) == {"a", "b"}
    bench.feed(QueueDone("a"))
    assert "a1" in {each.tag for each in bench.take(Forward)}


# --- at a broker of MDP ---------------------------------------------------------------------------
def at_broker(groups: int = 2) -> Bench:
    """Return a connected manager at a broker, with this limit."""
    return Bench(configured(limits={"groups": groups}))


def test_waiting_requests_at_a_broker_start_as_many_groups_as_the_limit() -> None:
    bench = at_broker(2)
    bench.connect_and_answer()
    for number in range(60):
        bench.add_waiting_request(f"{number}")
    bench.advance(5.0)
    assert (len(bench.running), len(alerts(bench))) == (2, 1)
    served = next(iter(bench.running))
    bench.set_counts(served, queued=0)
    bench.advance(20.0)
    assert served not in bench.running
    assert len(bench.running) == 2
    assert len(alerts(bench)) <= 1  # there was room for a moment


def test_workers_of_a_broker_add_no_group_above_the_limit() -> None:
    bench = at_broker(2)
    for number in range(9):  # any peer may register a worker
        bench.set_counts(f"{number}", workers=1)
    bench.connect_and_answer()
    assert len(expected(bench)) == 2


def test_groups_that_run_come_before_waiting_requests_of_other_keys() -> None:
    bench = at_broker(2)
    for key in "abc":
        bench.add_waiting_request(key)
    bench.running = {"x": RUNS, "y": RUNS}
    for key in "xy":
        bench.set_counts(key, workers=1)
    bench.connect_and_answer()
    assert expected(bench) == {"x", "y"}


@pytest.mark.parametrize("groups", [0, -1])
def test_a_pool_without_groups_is_refused(groups: int) -> None:
    with pytest.raises(ValueError, match=r"limits\.groups is less than 1"):
        configured(limits={"groups": groups})
