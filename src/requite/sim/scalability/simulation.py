"""A run of the scalability protocols: its phases and checkers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from requite.errors import CallTimeout
from requite.sim.kernel.checkers.leftovers import left_after_all, left_after_drain
from requite.sim.kernel.fault_injection import FaultInjector
from requite.sim.kernel.parties import PROBE_S, PartiesSimulation, handler_s_max, reconnect_s
from requite.sim.kernel.plan import Plan
from requite.sim.kernel.result import Options
from requite.sim.kernel.simulation import Luck, Phase
from requite.sim.kernel.workload import CallPlan, draw_calls
from requite.sim.scalability.cast import SpCast
from requite.sim.scalability.checkers import SP_CHECKERS
from requite.sim.scalability.knobs import ScalabilityKnobs
from requite.sim.scalability.party import Party, SpParts, SpStage
from requite.sim.scalability.shapes import Shape
from requite.sim.scalability.tables import left_after_calls, not_settled
from requite.sim.scalability.words import describe, show
from requite.sim.scalability.workload import may_be_endless, probe


class ScalabilitySimulation(PartiesSimulation):
    """A run with clients, devices and workers in any topology."""

    knobs_type = ScalabilityKnobs

    def __init__(self, plan: Plan, options: Options) -> None:
        super().__init__(plan, options, SP_CHECKERS, describe, show)
        self.knobs: ScalabilityKnobs = plan.knobs
        self.cast: SpCast = SpCast(SpStage.of(self, SpParts))
        self.injector = FaultInjector(self.cast)
        self._handed_on = 0

    @staticmethod
    def draw_calls(knobs: ScalabilityKnobs, luck: Luck) -> Iterable[CallPlan]:
        """See `Simulation.draw_calls`."""
        return draw_calls(knobs, luck("calls"), may_be_endless)

    def phases(self) -> Iterable[Phase]:
        """Settle, probe every channel, then drain clients, devices and workers."""
        return (
            self.settle,
            self.ask,
            self._drain_clients,
            self._drain_devices,
            self._drain_workers,
        )

    # --- liveness (I10) ---------------------------------------------------------------------------
    def settle_s(self) -> float:
        """See `settle_s`."""
        return settle_s(self.knobs)

    def unsettled(self) -> list[str]:
        """Return what has not settled yet; no request may loop any more."""
        before, self._handed_on = self._handed_on, sum(d.hub.handed_on for d in self.cast.devices)
        return super().unsettled() or ["requests still loop"] * (before != self._handed_on)

    def not_settled(self) -> list[str]:
        """See `tables.not_settled`."""
        return not_settled(self.cast)

    def probes(self, client: str) -> int:
        """Return the number of probe calls: two for each channel of a client."""
        return 2 * sum(edge.upper == client for edge in self.knobs.edges)

    def probe(self, client: str, number: int) -> CallPlan:
        """See `PartiesSimulation.probe`."""
        return probe(self.knobs, client, number, PROBE_S)

    def may_be_lost(self, plan: CallPlan, outcome: object) -> bool:
        """Whether a loop may have dropped the request, and its client does not resend."""
        spec = self.cast.client(plan.client).spec
        in_loop = self.knobs.shape == Shape.LOOP
        return in_loop and not spec.is_persistent and isinstance(outcome, CallTimeout)

    # --- bounded memory (I9) ----------------------------------------------------------------------
    def left_after_calls(self) -> list[str]:
        """See `tables.left_after_calls`."""
        return left_after_calls(self.cast)

    def left_after_drain(self, party: Party) -> Iterator[str]:
        """See `leftovers.left_after_drain`."""
        return left_after_drain(party, party.hub.places)

    def _drain_clients(self) -> bool:
        return self.drain_all("clients", self.cast.clients, self.left_in_the_end(self.settle_s()))

    def _drain_devices(self) -> bool:
        return self.drain_all("devices", self.cast.devices, self.left_in_the_end(self.settle_s()))

    def _drain_workers(self) -> bool:
        """Drain all workers, after checking that without peers they equal new ones."""
        workers = self.cast.workers
        self.wait_until_alone(workers)
        left = [what for worker in workers for what in left_after_all(worker)]
        return self.drain_all("workers", workers, left)


def settle_s(knobs: ScalabilityKnobs) -> float:
    """Return the time in seconds in which everything must settle once faults have ended (I10).

    It is the sum of what may happen in sequence: a dead connection is detected and replaced,
    deadlines pass, calls without a deadline are resent a few times, and one worker works off all
    requests, some of them twice.
    """
    deadlines_s = 1.5 * knobs.timeout_s
    resend_s = max((client.resend_s or 0.0) for client in knobs.clients)
    work_s = (2 * knobs.calls + 100) * handler_s_max(knobs.service_s, knobs.behaviours)
    return reconnect_s(knobs.network) + deadlines_s + 5 * resend_s + work_s
