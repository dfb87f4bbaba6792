"""A run of the Freelance pattern: its phases and checkers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from requite.sim.freelance.cast import FlpCast
from requite.sim.freelance.checkers import NeverInVain, PongAtOnce, SentOnce
from requite.sim.freelance.choices import AllAtOnce, Faithful, MovesOn, OneAtATime, OnlyTheLiving
from requite.sim.freelance.knobs import FlpClientSpec, FreelanceKnobs
from requite.sim.freelance.party import Party
from requite.sim.freelance.queues import Bounded, FairQueues
from requite.sim.freelance.stage import FlpParts, FlpStage
from requite.sim.freelance.tables import left_after_calls, left_after_drain, not_settled
from requite.sim.freelance.words import describe
from requite.sim.kernel.checkers.calls import (
    EndsOnce,
    HonestErrors,
    LosesNothing,
    OwnReply,
    PartialsInOrder,
)
from requite.sim.kernel.checkers.leftovers import left_after_all
from requite.sim.kernel.checkers.robustness import NobodyNotices
from requite.sim.kernel.fault_injection import FaultInjector
from requite.sim.kernel.history import Checker
from requite.sim.kernel.knobs import ANSWERING, Behaviour
from requite.sim.kernel.parties import (
    LEAVE_S,
    PROBE_S,
    PartiesSimulation,
    handler_s_max,
    reconnect_s,
)
from requite.sim.kernel.plan import Plan
from requite.sim.kernel.result import Options
from requite.sim.kernel.simulation import Luck, Phase
from requite.sim.kernel.workload import CallPlan, draw_calls, plain_call

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


class FreelanceSimulation(PartiesSimulation):
    """A run with clients and servers, each client connected to all its servers."""

    knobs_type = FreelanceKnobs

    def __init__(self, plan: Plan, options: Options) -> None:
        super().__init__(plan, options, FLP_CHECKERS, describe(plan.knobs.model))
        self.knobs: FreelanceKnobs = plan.knobs
        self.cast: FlpCast = FlpCast(FlpStage.of(self, FlpParts))
        self.injector = FaultInjector(self.cast)

    @staticmethod
    def draw_calls(knobs: FreelanceKnobs, luck: Luck) -> Iterable[CallPlan]:
        """See `Simulation.draw_calls`."""
        return draw_calls(knobs, luck("calls"), _may_be_endless)

    def phases(self) -> Iterable[Phase]:
        """Settle, probe every server, then drain clients and servers."""
        return (self.settle, self.ask, self._drain_clients, self._drain_servers)

    # --- liveness (I10) ---------------------------------------------------------------------------
    def settle_s(self) -> float:
        """See `settle_s`."""
        return settle_s(self.knobs)

    def not_settled(self) -> list[str]:
        """See `tables.not_settled`."""
        return not_settled(self.cast)

    def probes(self, _client: str) -> int:
        """Return the number of probe calls: two for each server."""
        return 2 * len(self.knobs.servers)

    def probe(self, client: str, number: int) -> CallPlan:
        """See `PartiesSimulation.probe`."""
        return plain_call(client, number, PROBE_S)

    # --- bounded memory (I9) ----------------------------------------------------------------------
    def left_after_calls(self) -> list[str]:
        """See `tables.left_after_calls`."""
        return left_after_calls(self.cast)

    def left_after_drain(self, party: Party) -> Iterator[str]:
        """See `tables.left_after_drain`."""
        return left_after_drain(party)

    def _drain_clients(self) -> bool:
        """Drain all clients; the shotgun's servers may still run calls that others answered."""
        return self.drain_all("clients", self.cast.clients, self.left_in_the_end(LEAVE_S))

    def _drain_servers(self) -> bool:
        """Drain all servers, after checking that without peers they equal new ones."""
        servers = self.cast.servers
        self.wait_until_alone(servers)
        left = [what for server in servers for what in left_after_all(server)]
        return self.drain_all("servers", servers, left)


def _may_be_endless(_client: FlpClientSpec, behaviour: Behaviour, idempotent: bool) -> bool:
    """Whether a call may have no deadline: it is resent until a handler answers."""
    return idempotent and behaviour in ANSWERING


def settle_s(knobs: FreelanceKnobs) -> float:
    """Return the time in seconds in which everything must settle once faults have ended (I10).

    It is the sum of what may happen in sequence: a dead connection is detected and replaced, a
    silent server is given up and revived, deadlines pass, requests are retried, and one server
    works off all requests, some of them twice.
    """
    deadlines_s = 1.5 * knobs.timeout_s
    tries_s = sum((client.attempt_s or 0.0) * client.attempts for client in knobs.clients)
    handler_s = handler_s_max(knobs.service_s, knobs.behaviours)
    work_s = (2 * knobs.calls + 100) * handler_s * len(knobs.servers)
    return reconnect_s(knobs.network) + deadlines_s + tries_s + 6 * knobs.ttl_s + work_s
