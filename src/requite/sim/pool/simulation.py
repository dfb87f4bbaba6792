"""A run of a pool: first faults, then none; then each guarantee is checked in its own phase."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import Final, NamedTuple

from requite.protocols.amqp.topology import Pool
from requite.sim.kernel import virtual
from requite.sim.kernel.plan import Plan
from requite.sim.kernel.process import Process
from requite.sim.kernel.result import Options
from requite.sim.kernel.simulation import Luck, Phase, Simulation
from requite.sim.pool.callers import Caller
from requite.sim.pool.driver import SimDriver
from requite.sim.pool.faults import PoolFaults
from requite.sim.pool.knobs import PoolKnobs, Task
from requite.sim.pool.ledger import Ledger, Request
from requite.sim.pool.management import ManagementApi
from requite.sim.pool.manager import Manager
from requite.sim.pool.stage import PoolSimParts, PoolStage
from requite.sim.pool.store import PoolStore
from requite.sim.rabbitmq.checkers import NoMistakes
from requite.sim.rabbitmq.process import RabbitParty

_START_WITHIN_S: Final = 0.2
_DRAIN_S: Final = 60.0
_STEADY_KEY: Final = "steady"
_SLOW_KEY: Final = "slow"


class PoolCall(NamedTuple):
    """A request for `key`, which a caller makes at `at_s`. `silent`: it has no reply-to."""

    number: int
    at_s: float
    caller: int
    key: str
    task: Task
    expires_s: float | None
    silent: bool


class PoolSimulation(Simulation):
    """A run with callers, managers, workers, a driver, and RabbitMQ."""

    knobs_type = PoolKnobs
    call_type = PoolCall

    def __init__(self, plan: Plan, options: Options) -> None:
        super().__init__(plan, options, (NoMistakes,), lambda _sender, _message: "")
        self.knobs: PoolKnobs = plan.knobs
        knobs = self.knobs
        self.ledger = Ledger(self.history, knobs)
        self.store = PoolStore(self.world, knobs, self.ledger)
        self.stage = PoolStage.of(
            self,
            PoolSimParts,
            ledger=self.ledger,
            store=self.store,
            api=ManagementApi(self.store, knobs.api_s),
            version=knobs.config.pool.version,
        )
        self.rabbit = RabbitParty(self.stage, self.store, knobs.server)
        self.stage.rabbit = self.rabbit
        self.driver = SimDriver(self.stage)
        self.managers = [
            Manager(f"manager-{i + 1}", self.stage, self.driver) for i in range(knobs.managers)
        ]
        self.callers = [Caller(f"caller-{i + 1}", self.stage) for i in range(knobs.callers)]
        self.injector = PoolFaults(self.stage, self.driver, self.managers, self.callers)
        self._names = Pool("core")

    # --- events -----------------------------------------------------------------------------------
    @staticmethod
    def draw_calls(knobs: PoolKnobs, luck: Luck) -> Iterable[PoolCall]:
        """Draw the times of the calls, then, in the order of time, what each call is."""
        rng = luck("workload")
        for _ in range(knobs.managers):  # the draws for the managers' starts: see `begin`
            rng.random()
        instants = [rng.random() * knobs.faulty_s for _ in range(knobs.calls)]
        numbers = sorted(range(knobs.calls), key=instants.__getitem__)
        rng = luck("calls")
        return [_draw_call(knobs, rng, number + 1, instants[number]) for number in numbers]

    def run(self) -> None:
        """Run all phases with virtual clock and seeded randomness."""
        with virtual.quiet(), virtual.world(self.world):
            super().run()
            for member in (*self.managers, *self.callers, *self.driver.all_workers):
                member.discard()

    def process_failed(self, process: Process, trace: str) -> None:
        """Report a process that ended with an exception (I13)."""
        self.history.violate("I13", f"{process.name}: {trace}")
        super().process_failed(process, trace)

    def begin(self) -> None:
        """Schedule the starts of callers and managers, and the planned calls."""
        world, rng = self.world, self.world.rng("workload")
        self.rabbit.start()
        for caller in self.callers:
            caller.start()
        for manager in self.managers:
            world.at(rng.random() * _START_WITHIN_S, manager.start)
        for call in self.planned.calls:
            world.at(call.at_s, self._call, call)

    def _call(self, call: PoolCall) -> None:
        self.callers[call.caller].call(
            call.number, call.key, call.task, expires_s=call.expires_s, silent=call.silent
        )

    def phases(self) -> Iterable[Phase]:
        """Return the phases after the faults."""
        return (
            self._settle,
            self._serve,
            self._check_state,
            self._check_steady_group,
            self._check_blocked_key,
            self._check_version_change,
            self._check_failover,
            self._check_unused_groups_stop,
            self._drain_managers,
            self._check_requests_without_manager,
            self._drain_managers,
        )

    # --- times, in seconds ------------------------------------------------------------------------
    @property
    def _round_s(self) -> float:
        """The time in seconds that a few operations take, with the back-off of failures before
        them."""
        knobs = self.knobs
        steps_s = 12 * knobs.latency_s + 4 * knobs.driver_s + 2 * knobs.api_s + knobs.start_s
        pauses_s = 2 * knobs.config.loops.backoff_max_s + 2 * knobs.interval_s
        return 4 * (steps_s + pauses_s) + knobs.service_s + 2.0

    @property
    def _cycle_s(self) -> float:
        """The time in seconds after which an unused group is gone."""
        knobs = self.knobs
        delays_s = knobs.unbind_delay_s + knobs.extra_lifetime_s + 2 * knobs.stop_delay_s
        return delays_s + 2 * knobs.settle_s

    # --- checks (I10, I14) ------------------------------------------------------------------------
    def _settle(self) -> bool:
        """Check that all requests are served or answered with a reason, and that crashes are
        detected."""
        # A manager that a fault has drained may still stop groups.
        self.wait(lambda: not any(m.alive and m.is_leaving for m in self.managers), _DRAIN_S)
        knobs = self.knobs
        self.world.run(self.world.now + knobs.notice_s)
        attempts_s = (knobs.delivery_limit + 2) * (knobs.ack_timeout_s + self._round_s)
        limit_s = 3 * knobs.message_ttl_s + attempts_s + self._cycle_s + knobs.notice_s
        return self._wait_for(lambda: not self._unsettled(), limit_s, self._unsettled)

    def _unsettled(self) -> str:
        """Return what is left: a request without an answer, or the queues with copies of
        requests."""
        if self.ledger.open:
            return f"{self.ledger.open[0]}"
        left = [name for name, queue in self.store.queues.items() if queue.messages]
        return ", ".join(name for name in left if self._names.key_of(name) is not None)

    def _serve(self) -> bool:
        """Check that requests for a known key and for a new key are served in time."""
        return self._are_served(("key-0", "new"), 2 * self._round_s + 6.0)

    def _are_served(self, keys: Sequence[str], limit_s: float) -> bool:
        asked = [self._ask(key) for key in keys]
        return self._wait_for(
            lambda: all(request.outcome for request in asked),
            limit_s,
            lambda: f"{next(r for r in asked if not r.outcome)} is not served",
        ) and self._all_ok(asked)

    def _all_ok(self, asked: Iterable[Request]) -> bool:
        fine = {"ok", "Overloaded"} if self.knobs.queue_length else {"ok"}
        bad = [request for request in asked if request.outcome not in fine]
        for request in bad:
            self.history.violate("I14", f"{request} ends with {request.outcome!r}")
        return not bad

    def _check_state(self) -> bool:
        """Check that bound queues and running groups match the manager's target state."""
        limit_s = self._round_s + self._cycle_s
        return self._wait_for(lambda: not self._differences(), limit_s, self._differences)

    def _differences(self) -> str:
        manager = self._active
        if manager is None:
            return "no manager is_leading"
        expected = manager.engine.tracker.state().groups
        bound = self.store.request_queues()
        if {key: e.status == "active" for key, e in expected.items()} != bound:
            return f"expected are {expected}, bound queues are {bound}"
        running = {key for key, group in self.driver.groups.items() if not group.stopping}
        return "" if running == {*expected} else f"expected are {expected}, running {running}"

    def _check_steady_group(self) -> bool:
        """Check that a group with steady traffic, however sparse, stays (I14)."""
        knobs = self.knobs
        slack_s = 6 * knobs.latency_s + knobs.service_s + 0.05
        longest_s = max(0.5 * knobs.unbind_delay_s, 0.95 * knobs.unbind_delay_s - slack_s)
        shortest_s = 1.5 * knobs.service_s + 8 * knobs.latency_s  # the capacity of one worker
        pause_s = max(longest_s * 0.05 ** self.world.rng("steady").random(), shortest_s)
        # Two requests: while the worker of the first was starting, the group may have been unbound.
        for _ in range(2):
            if not self._are_served((_STEADY_KEY,), self._round_s + 6.0):
                return False
        self.remark(f"one request every {pause_s:.3f} s")
        self.ledger.guarded.add(_STEADY_KEY)
        self.ledger.guarded_from_stops.add(_STEADY_KEY)
        until = self.world.now + 2 * self._cycle_s + 1.0
        asked = []
        while self.world.now < until:
            asked.append(self._ask(_STEADY_KEY))
            self.world.run(self.world.now + pause_s)
        self.ledger.guarded.clear()
        self.ledger.guarded_from_stops.clear()
        self.wait(lambda: all(request.outcome for request in asked), self._round_s)
        return self._all_ok(asked)

    def _check_blocked_key(self) -> bool:
        """Check that a key whose queue cannot be declared delays no other key, and is served in the
        end."""
        self.store.refuse(_SLOW_KEY)
        if not self._check_expiry():
            return False
        slow = [self._ask(_SLOW_KEY) for _ in range(2 * self.knobs.orphans + 1)]
        self.world.run(self.world.now + 1.0)
        hold_s = self.knobs.config.limits.orphan_hold_s + 10 * self.knobs.latency_s
        served = self._are_served(("quick",), self._round_s + 6.0 + 4 * hold_s)
        self.store.allow(_SLOW_KEY)
        if not served or self.knobs.queue_length:
            return served and self._settle()
        limit_s = self._round_s + len(slow) * (self.knobs.service_s + hold_s) + 6.0
        return self._wait_for(
            lambda: all(request.outcome for request in slow), limit_s, lambda: "slow is not served"
        )

    def _check_expiry(self) -> bool:
        """Check that a request that waits for its queue is answered when it expires."""
        number = next(self.numbers)
        brief = self.callers[0].call(number, _SLOW_KEY, Task.SERVE, expires_s=1.0)
        return self._wait_for(
            lambda: bool(brief.answers), 1.5 + 10 * self.knobs.latency_s, lambda: f"{brief} waits"
        )

    def _check_version_change(self) -> bool:
        """Check that all groups change to a new version, a few at a time, without failed
        requests."""
        keys = ("key-0", "key-1", "key-2")
        if not self._are_served(keys, self._round_s + 6.0) or self._active is None:
            return False
        self.stage.version = "2"
        self.ledger.replaced.update(keys)
        self._active.set_version("2")
        limit_s = len(self.driver.groups) * 2 * (self._round_s + 6.0)
        asked: list[Request] = []
        until = self.world.now + limit_s
        while any(group.version != "2" for group in self.driver.groups.values()):
            if self.world.now > until:
                self.history.violate("I10", "some groups still run the old version")
                return False
            asked.append(self._ask(keys[len(asked) % 3]))
            self.world.run(
                self.world.now + max(self.knobs.unbind_delay_s / 8, self.knobs.service_s)
            )
        self.ledger.replaced.clear()
        self.wait(lambda: all(request.outcome for request in asked), self._round_s)
        return self._all_ok(asked)

    def _check_failover(self) -> bool:
        """Crash and restart all managers; check that one becomes active, and that groups with
        traffic stay."""
        manager = self._active
        if manager is None or not self._are_served((_STEADY_KEY,), self._round_s + 6.0):
            return False
        for other in self.managers:
            other.kill()
            other.start()
        self.ledger.guarded_from_stops.add(_STEADY_KEY)
        asked = [self._ask("after")]
        until = self.world.now + 2 * self._round_s + 6.0
        while not asked[0].outcome and self.world.now < until:
            # First a pause: a report that waits for the new manager would tell it of the group.
            self.world.run(self.world.now + 0.4 * self.knobs.unbind_delay_s)
            asked.append(self._ask(_STEADY_KEY))
        self.ledger.guarded_from_stops.clear()
        self.wait(lambda: all(request.outcome for request in asked), self._round_s)
        return self._all_ok(asked)

    def _check_unused_groups_stop(self) -> bool:
        """Check that no queue and no group is left when there are no requests."""
        limit_s = self._cycle_s + 2 * self._round_s + 6.0
        return self._wait_for(lambda: not self._left(), limit_s, self._left)

    def _left(self) -> str:
        queues, groups = self.store.request_queues(), self.driver.groups
        return f"left are queues {queues}, groups {groups}" if queues or groups else ""

    def _drain_managers(self) -> bool:
        """Drain the managers, with their workers; check that no state is left (I9)."""
        self._check_poison()
        served = self._are_served(("last",), self._round_s + 6.0)
        self._check_forgotten_keys()
        for manager in self.managers:
            manager.leave(stop_groups=True)
        gone = self._wait_for(
            lambda: not any(manager.alive for manager in self.managers),
            self._round_s + 8.0,
            lambda: "a manager does not leave",
        )
        if self.driver.workers:
            self.history.violate("I14", f"left is {self.driver.workers[0].name}")
        for manager in self.managers:
            self._check_tables(manager)
        return served and gone

    def _check_forgotten_keys(self) -> None:
        """Check that the manager has no state of long unused keys (I9)."""
        if self._active is None:
            return
        status = self._active.engine.snapshot()
        known = {*status.queues, *status.state.groups, *status.orphans.waiting}
        if known - {"last", "meanwhile", "key-0"} or status.windows > 3:
            self.history.violate("I9", f"remembered are {known}, {status.windows} windows")

    def _check_tables(self, manager: Manager) -> None:
        status = manager.engine.snapshot()
        left = len(manager.engine.orphans), len(manager.engine.dead_letters)
        if any(left) or status.groups.running:
            self.history.violate("I9", f"{manager.name} still holds {left}, {status.groups}")

    def _check_poison(self) -> None:
        """Check that requests that exceeded the delivery limit are in the poison queue."""
        queue = self.store.queues.get(self._names.poison_queue)
        kept = {message.number for message in queue.messages} if queue else set()
        for request in self.ledger.requests.values():
            if "delivery_limit" in request.answers and request.number not in kept:
                self.history.violate("I7", f"{request} is not in the poison queue")

    def _check_requests_without_manager(self) -> bool:
        """Check that requests made while no manager runs are served by the next one."""
        asked = [self._ask("meanwhile"), self._ask("key-0")]
        self.world.run(self.world.now + 1.0)
        for manager in self.managers:
            manager.start()
        limit_s = 2 * self._round_s + 6.0
        return self._wait_for(
            lambda: all(r.outcome for r in asked), limit_s, lambda: "what came is not served"
        ) and self._all_ok(asked)

    # --- helpers ----------------------------------------------------------------------------------
    @property
    def _active(self) -> Manager | None:
        active = [manager for manager in self.managers if manager.is_leading]
        if len(active) > 1:
            self.history.violate("I14", "two managers decide at the same time")
        return active[0] if active else None

    def _ask(self, key: str) -> Request:
        return self.callers[0].call(next(self.numbers), key, Task.SERVE)

    def _wait_for(self, holds: Callable[[], bool], limit_s: float, why: Callable[[], str]) -> bool:
        """Advance the clock until a condition holds; report a violation after `limit_s`."""
        if self.wait(holds, limit_s):
            return True
        self.history.violate("I14", f"after {limit_s:.2f} s: {why()}")
        return False

    # --- the result -------------------------------------------------------------------------------
    def tally(self) -> tuple[int, dict[str, int]]:
        """Return the number of requests, and how often they had each outcome."""
        return len(self.ledger.requests), self.ledger.outcomes

    def lines(self) -> Iterable[str]:
        """Return the lines of the digest."""
        return [f" {self.ledger.lines}"]


def _draw_call(knobs: PoolKnobs, rng: Random, number: int, at_s: float) -> PoolCall:
    key = f"key-{int(knobs.keys * rng.random() ** 2)}"
    (task,) = rng.choices(knobs.tasks, knobs.weights)
    expires_s = rng.choice((0.1, 1.0, 5.0)) if rng.random() < knobs.ttl_p else None
    caller = rng.choice(range(knobs.callers))
    silent = rng.random() < knobs.silent_p
    return PoolCall(number, at_s, caller, key, task, expires_s, silent)
