"""One run: `run(seed, scenario, options) -> Result`, a pure function of its arguments."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any, Final

from requite.request import Reply
from requite.sim import scenarios
from requite.sim.cast import Cast
from requite.sim.checkers import CHECKERS
from requite.sim.checkers.calls import EndsOnce
from requite.sim.checkers.dispatch import AttemptsBounded, NeverStartedInVain, OneOwner
from requite.sim.checkers.intrusion import NobodyNotices
from requite.sim.checkers.presence import HeardInTime
from requite.sim.checkers.tables import (
    left_after_all,
    left_after_calls,
    left_after_clients,
    left_after_drain,
    not_settled,
    sizes,
)
from requite.sim.faults import Trouble, plan_faults
from requite.sim.history import History, Violation
from requite.sim.knobs import Behaviour, Knobs
from requite.sim.network import Network
from requite.sim.process import Process
from requite.sim.roles import Parts, Stage
from requite.sim.transcript import Transcript
from requite.sim.workload import CallPlan, plan_calls
from requite.sim.world import Stuck, World

_LOOK_EVERY_S: Final = 0.25
_PROBE_S: Final = 15.0
_LEAVE_S: Final = 10.0
_RESTART_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Options:
    """What may be set from outside. `knobs` replaces drawn knobs, by name."""

    parts: Parts = field(default_factory=Parts)
    knobs: dict[str, Any] = field(default_factory=dict)
    transcript: bool = False
    heartbeats: bool = True  # whether the transcript has them


@dataclass(frozen=True, slots=True)
class Result:
    """What came of a run. `digest` is equal for runs that went alike, and only for them.

    `replay` is the command that repeats it; `transcript` is empty unless asked for.
    """

    seed: int
    scenario: str
    knobs: tuple[str, ...]
    violations: tuple[Violation, ...]
    calls: int
    outcomes: dict[str, int]
    virtual_s: float
    events: int
    digest: str
    transcript: tuple[str, ...] = ()

    @property
    def replay(self) -> str:
        """The command that repeats this run."""
        return replay_command(self.seed, self.scenario)


def replay_command(seed: int, scenario: str) -> str:
    """Return the command that repeats a run, also one that came to no result."""
    return f"requite sim --seed {seed} --scenario {scenario}"


def knobs_of(seed: int, scenario: str, options: Options | None = None) -> Knobs:
    """Draw the knobs of a run. Raises `ConfigurationError` for a scenario that there is not."""
    knobs = scenarios.draw(seed, scenarios.find(scenario))
    return replace(knobs, **options.knobs) if options and options.knobs else knobs


def run(seed: int, scenario: str = "swarm", options: Options | None = None) -> Result:
    """Run one seed. Raises `ConfigurationError` for a scenario that there is not."""
    options = options or Options()
    knobs = knobs_of(seed, scenario, options)
    # What operators would read is not news here: intruders see to it that there is plenty.
    logging.getLogger("requite.sim").setLevel(logging.CRITICAL)
    simulation = Simulation(seed, knobs, options)
    simulation.run()
    return simulation.result(scenario)


class Simulation:
    """The phases of a run, in order."""

    def __init__(self, seed: int, knobs: Knobs, options: Options) -> None:
        self.seed = seed
        self.knobs = knobs
        self.options = options
        self.world = World(seed)
        self.history = History(self.world, CHECKERS)
        self.transcript = (
            Transcript(self.world, heartbeats=options.heartbeats) if options.transcript else None
        )
        self.cast = Cast(self._stage())
        self.trouble = Trouble(self.cast)
        self._numbers = iter(range(knobs.calls + 1, 1 << 30))
        instruct(self.history, knobs)

    def _stage(self) -> Stage:
        return Stage(
            self.world,
            Network(self.world, self.knobs.network),
            self.history,
            self,
            self.knobs,
            self.options.parts,
            self.transcript,
        )

    # --- what processes report --------------------------------------------------------------------
    def process_failed(self, process: Process, trace: str) -> None:
        """An exception came out of a process."""
        self.history.tell("process_failed", process, trace)
        self.world.after(_RESTART_S, process.start)

    def process_changed(self, process: Process, what: str) -> None:
        """A process started, ended, froze or thawed."""
        if self.transcript is not None:
            self.transcript.event(process.name, what)

    # --- the phases -------------------------------------------------------------------------------
    def run(self) -> None:
        """Go through all phases; a phase that fails makes those after it pointless."""
        try:
            self._run()
        except Stuck as stuck:
            self.history.violate("I13", f"the run comes to no end: {stuck}")

    def _run(self) -> None:
        self._plan()
        self.world.run(self.knobs.faulty_s)
        self._remark("all faults heal")
        self.trouble.end()
        phases = (self._settle, self._probe, self._send_clients_home, self._send_workers_home)
        for phase in phases:
            if not phase():
                break
        self.history.finish()

    def _plan(self) -> None:
        """Let everybody start, and put everything into the queue that is known beforehand."""
        world, cast = self.world, self.cast
        rng = world.rng("start")
        world.at(0.0, cast.broker.start)
        for peer in cast.peers:
            world.at(rng.random() * 0.1, peer.start)
        for plan in plan_calls(self.knobs, world.rng("calls")):
            if plan.follows is None:
                world.at(plan.at_s, cast.client(plan.client).call, plan)
            else:
                cast.client(plan.client).followers[plan.follows] = plan
        for fault in plan_faults(self.knobs, world.rng("faults")):
            world.at(fault.at_s, self.trouble.strike, fault)

    def _settle(self) -> bool:
        """I10: everything pending settles, and the tables become equal to the live peers."""
        limit_s = settle_s(self.knobs)
        self.world.run(self.world.now + self.knobs.network.spike_s)  # what is late has come by then
        self._wait(lambda: not self._unsettled(), limit_s)
        problems = self._unsettled()
        for problem in problems:
            self.history.violate("I10", f"{limit_s:.1f} s after all faults have healed, {problem}")
        return not problems

    def _unsettled(self) -> list[str]:
        pending = [f"{call} has not ended" for call in self.history.open.values()]
        return pending or not_settled(self.cast) or [*left_after_calls(self.cast)]

    def _probe(self) -> bool:
        """I10: who asks now gets replies, from every service."""
        self._remark("every client calls every service")
        probes = list(self._plan_probes())
        for plan in probes:
            self.cast.client(plan.client).call(plan)
        self._wait(lambda: self._have_ended(probes), _PROBE_S + 1)
        for plan in probes:
            call = self.history.calls.get(plan.number)
            outcome = None if call is None else call.outcome
            if not isinstance(outcome, Reply) or len(outcome.frames) != 2:
                text = f"{plan.client} calls {plan.service} and gets {outcome!r}"
                self.history.violate("I10", f"with all faults healed, {text}")
        return not self.history.open

    def _plan_probes(self) -> Iterator[CallPlan]:
        for client in self.cast.clients:
            for service in self.knobs.services:
                number = next(self._numbers)
                yield CallPlan(
                    number=number,
                    at_s=self.world.now,
                    client=client.name,
                    service=service,
                    behaviour=Behaviour.ECHO,
                    service_s=0.001,
                    parts=0,
                    payload=b"probe %d" % number,
                    timeout_s=_PROBE_S,
                    idempotent=True,
                    wants_partials=False,
                    cancel_after_s=None,
                )

    def _have_ended(self, plans: list[CallPlan]) -> bool:
        calls = self.history.calls
        return all(
            plan.number in calls and calls[plan.number].ended_at is not None for plan in plans
        )

    def _send_clients_home(self) -> bool:
        """I9: with the calls and the clients gone, nothing of them is left."""
        cast = self.cast
        left = [*left_after_calls(cast)]
        self._remark("the clients leave")
        for client in cast.clients:
            client.retired = True
            client.drain()
        gone = self._wait(lambda: not any(client.alive for client in cast.clients), _LEAVE_S)
        self._wait(lambda: not [*left_after_clients(cast.broker)], _LEAVE_S)
        left += left_after_clients(cast.broker)
        left += [what for client in cast.clients for what in left_after_drain(client)]
        for what in left:
            self.history.violate("I9", what)
        return gone and not left

    def _send_workers_home(self) -> bool:
        """I9: with everybody gone the broker is as good as new, and ends when it is told to."""
        broker = self.cast.broker
        self._remark("the workers leave")
        for worker in self.cast.workers:
            worker.retired = True
            worker.drain()
        gone = self._wait(lambda: not any(w.alive for w in self.cast.workers), _LEAVE_S)
        fresh = sizes(self.options.parts.broker(self.knobs.broker_policy))
        limit_s = self.knobs.service_ttl_s * 2 + _LEAVE_S
        self._wait(lambda: not [*left_after_all(broker, fresh)], limit_s)
        for what in left_after_all(broker, fresh):
            self.history.violate("I9", f"with everybody gone, {what}")
        for what in [what for worker in self.cast.workers for what in left_after_drain(worker)]:
            self.history.violate("I9", what)
        broker.retired = True
        broker.drain()
        if not self._wait(lambda: not broker.alive, _LEAVE_S) or not gone:
            self.history.violate("I9", "a worker or the broker does not end when it is told to")
        return gone

    def _wait(self, until: Callable[[], bool], limit_s: float) -> bool:
        """Let time pass until something holds; tell whether it came to that."""
        limit = self.world.now + limit_s
        while not until():
            if self.world.now >= limit:
                return False
            self.world.run(min(limit, self.world.now + _LOOK_EVERY_S))
        return True

    def _remark(self, text: str) -> None:
        if self.transcript is not None:
            self.transcript.event("--", text)

    # --- the result -------------------------------------------------------------------------------
    def result(self, scenario: str) -> Result:
        """Return what came of it."""
        history = self.history
        return Result(
            self.seed,
            scenario,
            tuple(self.knobs.lines()),
            tuple(history.violations),
            len(history.calls),
            dict(sorted(history.outcomes.items())),
            self.world.now,
            self.world.events,
            self._digest(),
            () if self.transcript is None else tuple(self.transcript.lines),
        )

    def _digest(self) -> str:
        digest = sha256(f"{self.world.events} {self.world.now!r}".encode())
        for call in self.history.calls.values():
            ended = f"{call.number} {call.ended_at!r} {call.outcome!r} {len(call.executions)}\n"
            digest.update(ended.encode())
        return digest.hexdigest()[:16]


def instruct(history: History, knobs: Knobs) -> None:
    """Tell the checkers what the knobs allow."""
    for checker in history.checkers:
        if isinstance(checker, EndsOnce | NeverStartedInVain):
            checker.grace_s = knobs.interval_s + knobs.pace.timer_late_s
        elif isinstance(checker, AttemptsBounded):
            checker.attempts_max = knobs.attempts_max
        elif isinstance(checker, OneOwner):
            checker.silence_s = knobs.silence_s
            checker.lease_s = {worker.name: worker.lease_s for worker in knobs.workers}
        elif isinstance(checker, NobodyNotices):
            checker.silence_s = knobs.silence_s
        elif isinstance(checker, HeardInTime):
            checker.limit_s = knobs.silence_limit_s


def settle_s(knobs: Knobs) -> float:
    """Return the time in which everything must settle once faults are healed (I10).

    It is the sum of all that may have to happen one after the other: a dead connection is found
    out and replaced, silent peers are noticed, deadlines pass, and what has no deadline is waited
    for, tried again and worked off.
    """
    network = knobs.network
    connection_s = network.keepalive_s + network.retransmit_s + 2 * network.connect_timeout_s + 12
    presence_s = 2 * knobs.liveness * knobs.slowest_interval_s
    deadlines_s = 1.5 * knobs.timeout_s + knobs.interval_s
    tries = max(client.tries for client in knobs.clients)
    retries_s = tries * (knobs.service_grace_s + 2.0)
    lease_s = max(worker.lease_s for worker in knobs.workers)
    work_s = knobs.calls * (0.1 + knobs.endless_p * (3 * knobs.service_s + 2 * lease_s))
    return connection_s + presence_s + deadlines_s + retries_s + work_s
