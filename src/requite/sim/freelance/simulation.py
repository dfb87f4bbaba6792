"""A run of the Freelance pattern: its phases, and what its checkers are told."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from requite.request import Reply
from requite.sim.checkers.calls import EndsOnce, HonestErrors, OwnReply, PartialsInOrder
from requite.sim.faults import plan_faults
from requite.sim.freelance.cast import FlpCast
from requite.sim.freelance.checkers import (
    FlpChecker,
    LosesNothing,
    NeverInVain,
    NobodyNotices,
    PongAtOnce,
    SentOnce,
)
from requite.sim.freelance.choices import AllAtOnce, Faithful, MovesOn, OneAtATime, OnlyTheLiving
from requite.sim.freelance.faults import FlpTrouble
from requite.sim.freelance.knobs import FreelanceKnobs
from requite.sim.freelance.party import FlpStage, Party
from requite.sim.freelance.queues import Bounded, FairQueues
from requite.sim.freelance.tables import (
    left_after_all,
    left_after_calls,
    left_after_drain,
    not_settled,
)
from requite.sim.freelance.words import describe
from requite.sim.freelance.workload import plan_calls, probe
from requite.sim.history import Checker, History
from requite.sim.knobs import Behaviour
from requite.sim.network import Network
from requite.sim.result import Options
from requite.sim.simulation import Phase, Simulation
from requite.sim.workload import CallPlan

FLP_CHECKERS: Final[tuple[type[Checker], ...]] = (
    EndsOnce,
    OwnReply,
    PartialsInOrder,
    FairQueues,
    Bounded,
    SentOnce,
    HonestErrors,
    NobodyNotices,
    NeverInVain,
    OnlyTheLiving,
    Faithful,
    MovesOn,
    OneAtATime,
    AllAtOnce,
    PongAtOnce,
    LosesNothing,
)
_PROBE_S: Final = 15.0
_LEAVE_S: Final = 10.0
_HANDLER_S_MAX: Final = 2.0


class FreelanceSimulation(Simulation):
    """Clients and servers, each with each."""

    def __init__(self, seed: int, knobs: FreelanceKnobs, options: Options) -> None:
        super().__init__(seed, knobs, options, FLP_CHECKERS, describe(knobs.model))
        self.knobs = knobs
        self.cast = FlpCast(self._stage())
        self.trouble = FlpTrouble(self.cast)
        instruct(self.history, knobs)

    def _stage(self) -> FlpStage:
        return FlpStage(
            self.world,
            Network(self.world, self.knobs.network),
            self.history,
            self,
            self.knobs,
            self.options.flp_parts,
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
        return (self._settle, self._probe, self._send_clients_home, self._send_servers_home)

    # --- what must come about (I10) ---------------------------------------------------------------
    def _settle(self) -> bool:
        """Everything pending comes to its end, and everybody is connected."""
        limit_s = settle_s(self.knobs)
        self.world.run(self.world.now + self.knobs.network.spike_s)  # what is late has come by then
        self.wait(lambda: not self._unsettled(), limit_s)
        problems = self._unsettled()
        for problem in problems:
            self.history.violate("I10", f"{limit_s:.1f} s after all faults have healed, {problem}")
        return not problems

    def _unsettled(self) -> list[str]:
        problems = [f"{call} has not ended" for call in self.history.open.values()]
        return problems or not_settled(self.cast) or [*left_after_calls(self.cast)]

    def _probe(self) -> bool:
        """Who asks now gets replies."""
        self.remark("every client calls")
        probes = [plan for client in self.knobs.clients for plan in self._plan_probes(client.name)]
        self.wait(lambda: self.have_ended(probes), _PROBE_S * (len(probes) + 1))
        for plan in probes:
            outcome = self.outcome_of(plan)
            if not isinstance(outcome, Reply):
                text = f"{plan.client} calls and gets {outcome!r}"
                self.history.violate("I10", f"with all faults healed, {text}")
        return not self.history.open

    def _plan_probes(self, client: str) -> Iterator[CallPlan]:
        """Make calls one after the other, two for each server."""
        user, before = self.cast.client(client).user, None
        for _ in range(2 * len(self.knobs.servers)):
            plan = probe(client, next(self.numbers), _PROBE_S)._replace(follows=before)
            self.plan_call(plan, user)
            yield plan
            before = plan.number

    # --- what must not be left (I9) ---------------------------------------------------------------
    def _send_clients_home(self) -> bool:
        self._wait_until_idle()
        left = [*left_after_calls(self.cast)]
        return self._send_home("clients", self.cast.clients, left)

    def _wait_until_idle(self) -> None:
        """The shotgun's servers may still be at work on what another one has answered."""
        self.wait(lambda: not [*left_after_calls(self.cast)], _LEAVE_S)

    def _send_servers_home(self) -> bool:
        """With everybody gone, a server is as good as new."""
        servers = self.cast.servers
        self.wait(lambda: not any(server.streams for server in servers), _LEAVE_S)
        left = [what for server in servers for what in left_after_all(server)]
        return self._send_home("servers", servers, left)

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


def instruct(history: History, knobs: FreelanceKnobs) -> None:
    """Tell the checkers what the knobs allow."""
    for checker in history.checkers:
        if isinstance(checker, FlpChecker):
            checker.knobs = knobs
        if isinstance(checker, EndsOnce):
            checker.grace_s = knobs.pace.timer_late_s
        elif isinstance(checker, SentOnce):
            checker.attempt_s = {client.name: client.attempt_s for client in knobs.clients}
        elif isinstance(checker, Bounded):
            checker.queue_max = {server.name: server.queue_max for server in knobs.servers}
            slots = {client.name: client.slots for client in knobs.clients}
            checker.in_hand_max = slots | {each.name: each.capacity for each in knobs.servers}


def settle_s(knobs: FreelanceKnobs) -> float:
    """Return the time in which everything must settle once faults are healed (I10).

    It is the sum of all that may have to happen one after the other: a dead connection is found
    out and replaced, a silent server is given up and revived, deadlines pass, tries are repeated,
    and what servers were given, some of it more than once, is worked off by one of them.
    """
    network = knobs.network
    connection_s = network.keepalive_s + network.retransmit_s + 2 * network.connect_timeout_s + 12
    deadlines_s = 1.5 * knobs.timeout_s
    tries_s = sum((client.attempt_s or 0.0) * client.attempts for client in knobs.clients)
    handler_s = 15 * knobs.service_s  # five partial replies, three times the knob's each
    if Behaviour.HANG in knobs.behaviours:
        handler_s = max(handler_s, _HANDLER_S_MAX)
    work_s = (2 * knobs.calls + 100) * handler_s * len(knobs.servers)
    return connection_s + deadlines_s + tries_s + 6 * knobs.ttl_s + work_s
