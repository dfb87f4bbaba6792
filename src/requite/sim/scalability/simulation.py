"""A run of the scalability protocols: its phases, and what its checkers are told."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from requite.errors import CallTimeout
from requite.request import Reply
from requite.sim.checkers.calls import EndsOnce
from requite.sim.faults import plan_faults
from requite.sim.history import History
from requite.sim.knobs import Behaviour
from requite.sim.network import Network
from requite.sim.result import Options
from requite.sim.scalability.cast import SpCast
from requite.sim.scalability.checkers import SP_CHECKERS
from requite.sim.scalability.checkers.calls import LosesNothing, NeverRepeated, ResentAtOnce
from requite.sim.scalability.checkers.devices import HopsBounded
from requite.sim.scalability.checkers.queues import Bounded, FairQueues, NeverStartedInVain
from requite.sim.scalability.faults import SpTrouble
from requite.sim.scalability.knobs import ScalabilityKnobs
from requite.sim.scalability.party import Party, SpStage
from requite.sim.scalability.shapes import Shape
from requite.sim.scalability.tables import (
    left_after_all,
    left_after_calls,
    left_after_drain,
    not_settled,
)
from requite.sim.scalability.words import describe, show
from requite.sim.scalability.workload import plan_calls, probe
from requite.sim.simulation import Phase, Simulation
from requite.sim.workload import CallPlan

_PROBE_S: Final = 15.0
_LEAVE_S: Final = 10.0
_HANDLER_S_MAX: Final = 2.0
_SLACK_S: Final = 0.01


class ScalabilitySimulation(Simulation):
    """Clients, devices and workers, connected somehow."""

    def __init__(self, seed: int, knobs: ScalabilityKnobs, options: Options) -> None:
        super().__init__(seed, knobs, options, SP_CHECKERS, describe, show)
        self.knobs = knobs
        self.cast = SpCast(self._stage())
        self.trouble = SpTrouble(self.cast)
        self._handed_on = 0
        instruct(self.history, knobs)

    def _stage(self) -> SpStage:
        return SpStage(
            self.world,
            Network(self.world, self.knobs.network),
            self.history,
            self,
            self.knobs,
            self.options.sp_parts,
            self.transcript,
        )

    def plan(self) -> None:
        """Plan the start, the calls and the faults."""
        world, cast = self.world, self.cast
        rng = world.rng("start")
        for party in cast.parties:
            world.at(rng.random() * 0.1, party.start)
        for plan in plan_calls(self.knobs, world.rng("calls")):
            self.plan_call(plan, cast.client(plan.client).user)
        for fault in plan_faults(self.knobs, world.rng("faults")):
            world.at(fault.at_s, self.trouble.strike, fault)

    def heal(self) -> None:
        """End all faults."""
        self.trouble.end()

    def phases(self) -> Iterable[Phase]:
        """Settle, ask everybody, and go."""
        return (
            self._settle,
            self._probe,
            self._send_clients_home,
            self._send_devices_home,
            self._send_workers_home,
        )

    # --- what must come about (I10) ---------------------------------------------------------------
    def _settle(self) -> bool:
        """Everything pending settles, nothing goes round any more, and everybody is connected."""
        limit_s = settle_s(self.knobs)
        self.world.run(self.world.now + self.knobs.network.spike_s)  # what is late has come by then
        self.wait(lambda: not self._unsettled(), limit_s)
        problems = self._unsettled()
        for problem in problems:
            self.history.violate("I10", f"{limit_s:.1f} s after all faults have healed, {problem}")
        return not problems

    def _unsettled(self) -> list[str]:
        before, self._handed_on = self._handed_on, sum(d.hub.handed_on for d in self.cast.devices)
        problems = [f"{call} has not ended" for call in self.history.open.values()]
        problems = problems or not_settled(self.cast) or [*left_after_calls(self.cast)]
        return problems or ["requests go round"] * (before != self._handed_on)

    def _probe(self) -> bool:
        """Who asks now gets replies, whichever way the request goes."""
        self.remark("every client calls, over each of its channels")
        probes = [plan for client in self.knobs.clients for plan in self._plan_probes(client.name)]
        limit_s = _PROBE_S * (len(probes) + 1)
        self.wait(lambda: self.have_ended(probes), limit_s)
        for plan in probes:
            outcome = self.outcome_of(plan)
            if not isinstance(outcome, Reply) and not self._may_be_lost(plan, outcome):
                text = f"{plan.client} calls and gets {outcome!r}"
                self.history.violate("I10", f"with all faults healed, {text}")
        return not self.history.open

    def _plan_probes(self, client: str) -> Iterator[CallPlan]:
        """Make calls one after the other, two for each channel of a client."""
        user = self.cast.client(client).user
        before = None
        for _ in range(2 * sum(edge.upper == client for edge in self.knobs.edges)):
            plan = probe(self.knobs, client, next(self.numbers), _PROBE_S)._replace(follows=before)
            self.plan_call(plan, user)
            yield plan
            before = plan.number

    def _may_be_lost(self, plan: CallPlan, outcome: object) -> bool:
        """Whether a request may have gone round until it was dropped, and nobody sent it again."""
        spec = self.cast.client(plan.client).spec
        in_loop = self.knobs.shape == Shape.LOOP
        return in_loop and not spec.is_persistent and isinstance(outcome, CallTimeout)

    # --- what must not be left (I9) ---------------------------------------------------------------
    def _send_clients_home(self) -> bool:
        return self._send_home("clients", self.cast.clients, self._left_in_the_end())

    def _send_devices_home(self) -> bool:
        return self._send_home("devices", self.cast.devices, self._left_in_the_end())

    def _left_in_the_end(self) -> list[str]:
        """Say what stays: what was sent again may have met its reply, and runs once more."""
        self.wait(lambda: not [*left_after_calls(self.cast)], settle_s(self.knobs))
        return [*left_after_calls(self.cast)]

    def _send_workers_home(self) -> bool:
        """With everybody gone, a worker is as good as new."""
        workers = self.cast.workers
        self.wait(lambda: not any(worker.streams for worker in workers), _LEAVE_S)
        left = [what for worker in workers for what in left_after_all(worker)]
        return self._send_home("workers", workers, left)

    def _send_home(self, who: str, parties: Sequence[Party], left: list[str]) -> bool:
        self.remark(f"the {who} leave")
        for party in parties:
            party.retired = True
            party.drain()
        if not self.wait(lambda: not any(party.alive for party in parties), _LEAVE_S):
            left.append(f"one of the {who} does not end when it is told to")
        left += [what for party in parties for what in left_after_drain(party)]
        for what in left:
            self.history.violate("I9", what)
        return not left


def instruct(history: History, knobs: ScalabilityKnobs) -> None:
    """Tell the checkers what the knobs allow."""
    for checker in history.checkers:
        if isinstance(checker, EndsOnce):
            checker.grace_s = knobs.pace.timer_late_s
        elif isinstance(checker, ResentAtOnce):
            checker.resend_s = {client.name: client.resend_s for client in knobs.clients}
            checker.grace_s = knobs.pace.timer_late_s + knobs.pace.flush_late_s + _SLACK_S
        elif isinstance(checker, NeverRepeated):
            checker.resend_s = {client.name: client.resend_s for client in knobs.clients}
        elif isinstance(checker, LosesNothing):
            checker.loss = knobs.loss
        elif isinstance(checker, HopsBounded | FairQueues | NeverStartedInVain):
            checker.hops = knobs.hops
        elif isinstance(checker, Bounded):
            checker.hops = knobs.hops
            checker.queue_max = {worker.name: worker.queue_max for worker in knobs.workers}
            checker.in_hand_max = {client.name: client.slots for client in knobs.clients}
            checker.in_hand_max |= {worker.name: worker.capacity for worker in knobs.workers}


def settle_s(knobs: ScalabilityKnobs) -> float:
    """Return the time in which everything must settle once faults are healed (I10).

    It is the sum of all that may have to happen one after the other: a dead connection is found
    out and replaced, deadlines pass, what has none is sent again a few times, and what workers were
    given, some of it more than once, is worked off by one of them.
    """
    network = knobs.network
    connection_s = network.keepalive_s + network.retransmit_s + 2 * network.connect_timeout_s + 12
    deadlines_s = 1.5 * knobs.timeout_s
    resend_s = max((client.resend_s or 0.0) for client in knobs.clients)
    handler_s = 15 * knobs.service_s  # five partial replies, three times the knob's each
    if Behaviour.HANG in knobs.behaviours:
        handler_s = max(handler_s, _HANDLER_S_MAX)
    work_s = (2 * knobs.calls + 100) * handler_s
    return connection_s + deadlines_s + 5 * resend_s + work_s
