"""A pool at a broker of MDP: which groups are there is learnt from what waits for them."""

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
    """The engine of a pool at a broker, and a broker that is written down here."""

    def __init__(self, config: PoolConfig = CONFIG) -> None:
        super().__init__(config)
        config = replace(config, broker=BROKER)
        self.engine = PoolEngine(config, self.now, PoolParts(queues=ServiceLoop))
        self.services: dict[str, ServiceCounts] = {}
        self.running: dict[str, RunningGroup] = {}

    def come_up(self) -> None:
        """Be the manager that decides; answer whatever is asked."""
        self.feed(Connected())
        self.answer()

    def answer(self) -> None:
        """Answer what is asked, until nothing is; the driver does what it is told at once."""
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
                self.see(key, workers=1)
                self.feed(GroupDone(key))
            case StopGroup(key):
                self.running.pop(key, None)
                self.see(key, workers=0)
                self.feed(GroupDone(key))

    def orders(self) -> list[Any]:
        return [*self.take(StartGroup), *self.take(StopGroup)]

    def see(self, key: str = "42", **counts: int) -> None:
        """Let the broker have these counts for a service."""
        self.services[key] = self.services.get(key, ServiceCounts(0, 0, 0, 0))._replace(**counts)

    def arrive(self, key: str = "42") -> None:
        """Let a request come, and wait."""
        seen = self.services.get(key, ServiceCounts(0, 0, 0, 0))
        self.see(key, queued=seen.queued + 1, accepted=seen.accepted + 1)

    def serve(self, key: str = "42") -> None:
        """Let a request come and be answered between two looks."""
        self.see(key, accepted=self.services[key].accepted + 1)

    def pass_answering(self, seconds: float) -> None:
        """Let time pass, and answer all that is asked meanwhile."""
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
    bench.come_up()
    return bench


def test_a_request_that_waits_has_its_group_started(bench: Bench) -> None:
    bench.arrive()
    assert bench.running == {}
    bench.pass_answering(1.0)
    assert bench.running == {"42": RUNS}
    bench.pass_answering(1.0)
    assert bench.engine.snapshot().queues["42"].actual is Actual.BOUND


def test_a_group_without_requests_goes_after_both_delays_and_not_before(bench: Bench) -> None:
    bench.arrive()
    bench.pass_answering(1.0)
    bench.see(queued=0)
    bench.pass_answering(9.0)
    assert bench.status() is GroupStatus.ACTIVE
    bench.pass_answering(1.5)
    assert bench.status() is GroupStatus.UNBOUND
    assert bench.running == {"42": RUNS}
    bench.pass_answering(4.0)
    assert (bench.status(), bench.running) == (None, {})


@pytest.mark.parametrize("period_s", [0.4, 1.0, 3.0, 9.0, 12.0])
def test_steady_traffic_at_any_rate_keeps_a_group(bench: Bench, period_s: float) -> None:
    bench.arrive()
    bench.pass_answering(1.0)
    bench.see(queued=0)
    for _ in range(8):
        bench.pass_answering(period_s)
        assert bench.running == {"42": RUNS}
        bench.serve()


def test_a_long_request_keeps_its_group(bench: Bench) -> None:
    bench.arrive()
    bench.pass_answering(1.0)
    bench.see(queued=0, in_progress=1)
    bench.pass_answering(60.0)
    assert bench.status() is GroupStatus.ACTIVE
    bench.see(in_progress=0)
    bench.pass_answering(15.5)
    assert bench.running == {}


def test_a_released_group_finishes_its_work_and_goes(bench: Bench) -> None:
    bench.arrive()
    bench.pass_answering(1.0)
    bench.see(queued=0, in_progress=1)
    bench.pass_answering(1.0)
    bench.feed(ReleaseGroup("42"))
    bench.pass_answering(20.0)
    assert bench.status() is GroupStatus.UNBOUND
    assert bench.running == {"42": RUNS}
    bench.see(in_progress=0)
    bench.pass_answering(1.0)
    assert bench.running == {}


def test_a_request_for_a_released_group_makes_it_active_again(bench: Bench) -> None:
    bench.arrive()
    bench.pass_answering(1.0)
    bench.see(queued=0)
    bench.feed(ReleaseGroup("42"))
    bench.serve()
    bench.pass_answering(1.0)
    assert bench.status() is GroupStatus.ACTIVE


def test_what_comes_before_the_last_look_keeps_the_group(bench: Bench) -> None:
    bench.arrive()
    bench.pass_answering(1.0)
    bench.see(queued=0)
    bench.feed(ReleaseGroup("42"))
    bench.answer()
    bench.pass_time(4.0)  # nothing is answered: the last look of all is asked for, or under way
    [asked] = bench.take(ListServices)
    bench.feed(ServicesListed(asked.ticket, dict(bench.services)))
    assert bench.status() is GroupStatus.UNBOUND, "that look began before the group was to go"
    bench.arrive()
    bench.answer()
    assert bench.status() is GroupStatus.ACTIVE
    assert bench.running == {"42": RUNS}


def test_a_request_that_comes_while_its_group_stops_has_it_started_again(bench: Bench) -> None:
    bench.arrive()
    bench.pass_answering(1.0)
    bench.see(queued=0)
    bench.feed(ReleaseGroup("42"))
    while not (stops := bench.take(StopGroup)):
        for effect in bench.take(ListServices) + bench.take(ListGroups):
            bench.answer_one(effect)
        bench.pass_time(0.5)
    bench.arrive()
    bench.answer_one(stops[0])
    bench.pass_answering(1.0)
    assert bench.running == {"42": RUNS}


def test_workers_that_have_ended_are_looked_for_at_once(bench: Bench) -> None:
    bench.arrive()
    bench.pass_answering(4.0)  # the last round of its own was when `settle` was over
    bench.running.clear()
    bench.see(workers=0)
    bench.pass_answering(1.6)  # one look, and the pause after a group that has not stayed
    assert bench.running == {"42": RUNS}


def test_services_without_requests_and_workers_are_nobodys_group(bench: Bench) -> None:
    bench.see("idle", accepted=7)
    bench.pass_answering(3.0)
    bench.see("idle", accepted=8)  # it came, and was given up
    bench.pass_answering(2.0)
    assert bench.status("idle") is None
    assert bench.running == {}


def test_the_workers_of_a_former_manager_are_kept_and_others_stopped() -> None:
    bench = Bench()
    bench.running = {"a": RUNS, "b": RUNS, "c": RUNS}
    bench.see("a", workers=1)
    bench.come_up()
    bench.pass_answering(2.0)
    assert bench.running.keys() == {"a", "b", "c"}
    bench.see("b", workers=1)  # it has taken its time to come back
    bench.pass_answering(2.0)
    assert bench.running.keys() == {"a", "b"}
    assert bench.status("a") is bench.status("b") is GroupStatus.ACTIVE


def test_a_group_that_is_released_while_others_come_back_goes() -> None:
    settings = replace(CONFIG, lifetime=replace(CONFIG.lifetime, stop_delay_s=0.5))
    bench = Bench(settings)
    bench.running = {"a": RUNS}
    bench.see("a", workers=1)
    bench.come_up()
    bench.feed(ReleaseGroup("a"))
    bench.pass_answering(2.0 * BROKER.settle_s)
    assert bench.status("a") is None
    assert bench.running == {}


def test_a_broker_that_starts_anew_has_no_group_stopped(bench: Bench) -> None:
    bench.arrive()
    bench.pass_answering(5.0)
    bench.feed(Disconnected())
    bench.services.clear()
    bench.pass_answering(60.0)
    bench.come_up()
    bench.pass_answering(5.0)
    assert bench.running == {"42": RUNS}
    bench.see(workers=1, accepted=1)
    bench.pass_answering(3.0)
    bench.services = {"42": ServiceCounts(0, 0, 0, 1)}  # and once more, unseen
    bench.pass_answering(6.0)
    assert bench.status() is GroupStatus.ACTIVE


def test_what_was_counted_before_the_connection_makes_no_group_active(bench: Bench) -> None:
    bench.arrive()
    bench.pass_answering(1.0)
    bench.see(queued=0)
    bench.see("idle", accepted=3)
    bench.pass_answering(1.0)
    bench.feed(ReleaseGroup("42"))
    bench.feed(Disconnected())
    assert {key: seen.actual for key, seen in bench.engine.snapshot().queues.items()} == {
        "42": Actual.UNKNOWN
    }
    bench.come_up()
    bench.pass_answering(2.0)
    assert bench.status() is GroupStatus.UNBOUND


def test_an_answer_that_does_not_come_is_asked_for_again(bench: Bench) -> None:
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


def test_what_is_no_answer_of_a_broker_is_refused(bench: Bench) -> None:
    with pytest.raises(LocalViolation, match="is not an event about services"):
        bench.feed(QueueDone("42"))


class Rounds(RuleBasedStateMachine):
    """Requests come and go, workers die, the broker and the manager go and come back. When that has
    ended, nothing waits without its group, and groups that nobody needs are gone."""

    @initialize()
    def begin(self) -> None:
        self.bench = Bench()
        self.bench.come_up()

    keys = st.sampled_from(["1", "2"])

    @rule(key=keys)
    def request(self, key: str) -> None:
        self.bench.arrive(key)

    @rule(key=keys)
    def serve(self, key: str) -> None:
        if self.bench.services.get(key, ServiceCounts(0, 0, 0, 0)).workers:
            self.bench.see(key, queued=0)

    @rule(key=keys)
    def worker_dies(self, key: str) -> None:
        if self.bench.running.pop(key, None):
            self.bench.see(key, workers=0)

    @rule(key=keys)
    def release(self, key: str) -> None:
        self.bench.feed(ReleaseGroup(key))

    @rule()
    def broker_restarts(self) -> None:
        """Requests that waited are sent again by their clients."""
        bench = self.bench
        bench.feed(Disconnected())
        for key, seen in bench.services.items():
            workers = int(key in bench.running)
            bench.services[key] = ServiceCounts(seen.queued, 0, seen.queued, workers)
        bench.come_up()

    @rule(seconds=st.sampled_from([0.3, 1.0, 5.0, 20.0]))
    def go_on(self, seconds: float) -> None:
        self.bench.pass_answering(seconds)

    @rule(seconds=st.sampled_from([0.3, 2.0, 15.0]))
    def nobody_answers(self, seconds: float) -> None:
        self.bench.pass_time(seconds)

    @invariant()
    def all_that_runs_is_known_to_the_driver(self) -> None:
        for key, seen in self.bench.services.items():
            assert bool(seen.workers) == (key in self.bench.running)

    def teardown(self) -> None:
        bench = self.bench
        bench.answer()
        bench.pass_answering(30.0)
        waiting = {key for key, seen in bench.services.items() if seen.queued}
        assert waiting <= bench.running.keys()
        for key in waiting:
            bench.see(key, queued=0)
        bench.pass_answering(60.0)
        assert bench.running == {}
        assert bench.engine.tracker.state().groups == {}


TestRounds = Rounds.TestCase
TestRounds.settings = settings(max_examples=60, stateful_step_count=20)
