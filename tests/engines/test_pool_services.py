"""A pool at a broker of MDP: the groups needed follow from the broker's counts per service."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.support.pool_engines import CONFIG, PoolBench

from requite.engine import Warn
from requite.errors import LocalViolation
from requite.pool.config import BrokerSection, PoolConfig
from requite.pool.effects import ListGroups, ListServices, StartGroup, StopGroup
from requite.pool.engine import PoolEngine, PoolParts
from requite.pool.inputs import (
    Connected,
    Disconnected,
    GroupDone,
    GroupsListed,
    QueueDone,
    ReleaseGroup,
    RunningGroup,
    ServiceCounts,
    ServiceListFailed,
    ServicesListed,
)
from requite.pool.queues import Actual
from requite.pool.services import ServiceLoop
from requite.pool.tracker import GroupStatus

BROKER = BrokerSection("mdp://a", interval_s=1.0, settle_s=3.0)
RUNS = RunningGroup("1", 1)


class Bench(PoolBench):
    """The engine of a pool at a broker, with the broker's services and the driver's groups as
    tables."""

    def __init__(self, config: PoolConfig = CONFIG) -> None:
        super().__init__(config)
        config = replace(config, broker=BROKER)
        self.engine = PoolEngine(config, self.now, PoolParts(queues=ServiceLoop))
        self.services: dict[str, ServiceCounts] = {}
        self.running: dict[str, RunningGroup] = {}

    def connect_and_answer(self) -> None:
        """Become the active manager, and answer its effects."""
        self.feed(Connected())
        self.answer()

    def answer(self) -> None:
        """Answer the engine's effects until there are none; the driver executes orders at once."""
        while asked := self.take(ListServices) + self.take(ListGroups) + self.orders():
            for effect in asked:
                self.answer_one(effect)

    def answer_one(self, effect: Any) -> None:
        match effect:
            case ListServices(ticket):
                self.feed(ServicesListed(ticket, dict(self.services)))
            case ListGroups(ticket):
                self.feed(GroupsListed(ticket, dict(self.running)))
            case StartGroup(key, version):
                self.running[key] = RunningGroup(version, 1)
                self.set_counts(key, workers=1)
                self.feed(GroupDone(key))
            case StopGroup(key):
                self.running.pop(key, None)
                self.set_counts(key, workers=0)
                self.feed(GroupDone(key))

    def orders(self) -> list[Any]:
        return [*self.take(StartGroup), *self.take(StopGroup)]

    def set_counts(self, key: str = "42", **counts: int) -> None:
        """Set the broker's counts for a service."""
        self.services[key] = self.services.get(key, ServiceCounts(0, 0, 0, 0))._replace(**counts)

    def add_waiting_request(self, key: str = "42") -> None:
        """Add a request that waits at the broker."""
        seen = self.services.get(key, ServiceCounts(0, 0, 0, 0))
        self.set_counts(key, queued=seen.queued + 1, accepted=seen.accepted + 1)

    def add_served_request(self, key: str = "42") -> None:
        """Add a request that is answered between two listings."""
        self.set_counts(key, accepted=self.services[key].accepted + 1)

    def advance(self, seconds: float) -> None:
        """Advance the clock, and answer the engine's effects meanwhile."""
        until = self.now + seconds
        while (at := self.engine.deadline()) is not None and at <= until:
            self.pass_time(max(0.0, at - self.now))
            self.answer()
        self.pass_time(until - self.now)
        self.answer()

    def status(self, key: str = "42") -> GroupStatus | None:
        return self.engine.tracker.status(key)


@pytest.fixture
def bench() -> Bench:
    bench = Bench()
    bench.connect_and_answer()
    return bench


def test_a_waiting_request_starts_its_group(bench: Bench) -> None:
    bench.add_waiting_request()
    assert bench.running == {}
    bench.advance(1.0)
    assert bench.running == {"42": RUNS}
    bench.advance(1.0)
    assert bench.engine.snapshot().queues["42"].actual is Actual.BOUND


def test_a_group_without_requests_is_stopped_after_both_delays(bench: Bench) -> None:
    bench.add_waiting_request()
    bench.advance(1.0)
    bench.set_counts(queued=0)
    bench.advance(9.0)
    assert bench.status() is GroupStatus.ACTIVE
    bench.advance(1.5)
    assert bench.status() is GroupStatus.UNBOUND
    assert bench.running == {"42": RUNS}
    bench.advance(4.0)
    assert (bench.status(), bench.running) == (None, {})


@pytest.mark.parametrize("period_s", [0.4, 1.0, 3.0, 9.0, 12.0])
def test_steady_traffic_at_any_rate_keeps_a_group(bench: Bench, period_s: float) -> None:
    bench.add_waiting_request()
    bench.advance(1.0)
    bench.set_counts(queued=0)
    for _ in range(8):
        bench.advance(period_s)
        assert bench.running == {"42": RUNS}
        bench.add_served_request()


def test_a_long_request_keeps_its_group(bench: Bench) -> None:
    bench.add_waiting_request()
    bench.advance(1.0)
    bench.set_counts(queued=0, in_progress=1)
    bench.advance(60.0)
    assert bench.status() is GroupStatus.ACTIVE
    bench.set_counts(in_progress=0)
    bench.advance(15.5)
    assert bench.running == {}


def test_a_released_group_finishes_its_requests_and_is_stopped(bench: Bench) -> None:
    bench.add_waiting_request()
    bench.advance(1.0)
    bench.set_counts(queued=0, in_progress=1)
    bench.advance(1.0)
    bench.feed(ReleaseGroup("42"))
    bench.advance(20.0)
    assert bench.status() is GroupStatus.UNBOUND
    assert bench.running == {"42": RUNS}
    bench.set_counts(in_progress=0)
    bench.advance(1.0)
    assert bench.running == {}


def test_a_request_for_a_released_group_makes_it_active_again(bench: Bench) -> None:
    bench.add_waiting_request()
    bench.advance(1.0)
    bench.set_counts(queued=0)
    bench.feed(ReleaseGroup("42"))
    bench.add_served_request()
    bench.advance(1.0)
    assert bench.status() is GroupStatus.ACTIVE


def test_a_request_before_the_last_listing_keeps_the_group(bench: Bench) -> None:
    bench.add_waiting_request()
    bench.advance(1.0)
    bench.set_counts(queued=0)
    bench.feed(ReleaseGroup("42"))
    bench.answer()
    bench.pass_time(4.0)  # nothing is answered: the last listing is requested or in progress
    [asked] = bench.take(ListServices)
    bench.feed(ServicesListed(asked.ticket, dict(bench.services)))
    assert bench.status() is GroupStatus.UNBOUND, "that look began before the group was to go"
    bench.add_waiting_request()
    bench.answer()
    assert bench.status() is GroupStatus.ACTIVE
    assert bench.running == {"42": RUNS}


def test_a_request_for_a_stopping_group_starts_it_again(bench: Bench) -> None:
    bench.add_waiting_request()
    bench.advance(1.0)
    bench.set_counts(queued=0)
    bench.feed(ReleaseGroup("42"))
    while not (stops := bench.take(StopGroup)):
        for effect in bench.take(ListServices) + bench.take(ListGroups):
            bench.answer_one(effect)
        bench.pass_time(0.5)
    bench.add_waiting_request()
    bench.answer_one(stops[0])
    bench.advance(1.0)
    assert bench.running == {"42": RUNS}


def test_lost_workers_cause_a_listing_of_groups_at_once(bench: Bench) -> None:
    bench.add_waiting_request()
    bench.advance(4.0)  # the last regular listing of groups was at the end of `settle`
    bench.running.clear()
    bench.set_counts(workers=0)
    bench.advance(1.6)  # one listing, and the back-off of a group that has exited
    assert bench.running == {"42": RUNS}


def test_a_service_without_requests_and_workers_gets_no_group(bench: Bench) -> None:
    bench.set_counts("idle", accepted=7)
    bench.advance(3.0)
    bench.set_counts("idle", accepted=8)  # a request arrived, and was cancelled
    bench.advance(2.0)
    assert bench.status("idle") is None
    assert bench.running == {}


def test_groups_of_a_former_manager_are_kept_if_their_workers_reconnect() -> None:
    bench = Bench()
    bench.running = {"a": RUNS, "b": RUNS, "c": RUNS}
    bench.set_counts("a", workers=1)
    bench.connect_and_answer()
    bench.advance(2.0)
    assert bench.running.keys() == {"a", "b", "c"}
    bench.set_counts("b", workers=1)  # its workers reconnect late
    bench.advance(2.0)
    assert bench.running.keys() == {"a", "b"}
    assert bench.status("a") is bench.status("b") is GroupStatus.ACTIVE


def test_a_group_released_during_settle_is_stopped() -> None:
    settings = replace(CONFIG, lifetime=replace(CONFIG.lifetime, stop_delay_s=0.5))
    bench = Bench(settings)
    bench.running = {"a": RUNS}
    bench.set_counts("a", workers=1)
    bench.connect_and_answer()
    bench.feed(ReleaseGroup("a"))
    bench.advance(2.0 * BROKER.settle_s)
    assert bench.status("a") is None
    assert bench.running == {}


def test_a_restart_of_the_broker_stops_no_group(bench: Bench) -> None:
    bench.add_waiting_request()
    bench.advance(5.0)
    bench.feed(Disconnected())
    bench.services.clear()
    bench.advance(60.0)
    bench.connect_and_answer()
    bench.advance(5.0)
    assert bench.running == {"42": RUNS}
    bench.set_counts(workers=1, accepted=1)
    bench.advance(3.0)
    bench.services = {"42": ServiceCounts(0, 0, 0, 1)}  # the broker restarts again, unnoticed
    bench.advance(6.0)
    assert bench.status() is GroupStatus.ACTIVE


def test_counts_from_before_a_reconnect_make_no_group_active(bench: Bench) -> None:
    bench.add_waiting_request()
    bench.advance(1.0)
    bench.set_counts(queued=0)
    bench.set_counts("idle", accepted=3)
    bench.advance(1.0)
    bench.feed(ReleaseGroup("42"))
    bench.feed(Disconnected())
    assert {key: seen.actual for key, seen in bench.engine.snapshot().queues.items()} == {
        "42": Actual.UNKNOWN
    }
    bench.connect_and_answer()
    bench.advance(2.0)
    assert bench.status() is GroupStatus.UNBOUND


def test_a_failed_listing_of_services_is_retried(bench: Bench) -> None:
    bench.pass_time(1.0)
    [asked] = bench.take(ListServices)
    bench.feed(ServiceListFailed(asked.ticket, "no answer"))
    [warning] = bench.take(Warn)
    assert "broker.url" in warning.text
    assert "no answer" in warning.text
    assert bench.take(ListServices) == []
    bench.pass_time(0.5)
    [again] = bench.take(ListServices)
    bench.feed(ServicesListed(asked.ticket, {"42": ServiceCounts(1, 0, 1, 0)}))  # too late
    assert bench.status() is None
    bench.feed(ServicesListed(again.ticket, {"42": ServiceCounts(1, 0, 1, 0)}))
    assert bench.status() is GroupStatus.ACTIVE


def test_a_foreign_input_is_refused(bench: Bench) -> None:
    with pytest.raises(LocalViolation, match="is not an event about services"):
        bench.feed(QueueDone("42"))


class PoolMachine(RuleBasedStateMachine):
    """Random requests, deaths of workers, and restarts of broker and manager. In the end, no
    request waits without its group, and groups that are not needed have stopped."""

    @initialize()
    def begin(self) -> None:
        self.bench = Bench()
        self.bench.connect_and_answer()

    keys = st.sampled_from(["1", "2"])

    @rule(key=keys)
    def request(self, key: str) -> None:
        self.bench.add_waiting_request(key)

    @rule(key=keys)
    def serve(self, key: str) -> None:
        if self.bench.services.get(key, ServiceCounts(0, 0, 0, 0)).workers:
            self.bench.set_counts(key, queued=0)

    @rule(key=keys)
    def worker_dies(self, key: str) -> None:
        if self.bench.running.pop(key, None):
            self.bench.set_counts(key, workers=0)

    @rule(key=keys)
    def release(self, key: str) -> None:
        self.bench.feed(ReleaseGroup(key))

    @rule()
    def broker_restarts(self) -> None:
        """Clients resend the waiting requests."""
        bench = self.bench
        bench.feed(Disconnected())
        for key, seen in bench.services.items():
            workers = int(key in bench.running)
            bench.services[key] = ServiceCounts(seen.queued, 0, seen.queued, workers)
        bench.connect_and_answer()

    @rule(seconds=st.sampled_from([0.3, 1.0, 5.0, 20.0]))
    def advance_answering(self, seconds: float) -> None:
        self.bench.advance(seconds)

    @rule(seconds=st.sampled_from([0.3, 2.0, 15.0]))
    def advance_without_answers(self, seconds: float) -> None:
        self.bench.pass_time(seconds)

    @invariant()
    def services_with_workers_are_running_groups(self) -> None:
        for key, seen in self.bench.services.items():
            assert bool(seen.workers) == (key in self.bench.running)

    def teardown(self) -> None:
        bench = self.bench
        bench.answer()
        bench.advance(30.0)
        waiting = {key for key, seen in bench.services.items() if seen.queued}
        assert waiting <= bench.running.keys()
        for key in waiting:
            bench.set_counts(key, queued=0)
        bench.advance(60.0)
        assert bench.running == {}
        assert bench.engine.tracker.state().groups == {}


TestPoolMachine = PoolMachine.TestCase
TestPoolMachine.settings = settings(max_examples=60, stateful_step_count=20)
