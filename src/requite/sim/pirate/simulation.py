"""A run of the Pirate patterns: its phases, faults and checkers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from requite.sim.kernel.cast import Cast
from requite.sim.kernel.checkers.leftovers import dead_ends, held, left_after_all, left_after_drain
from requite.sim.kernel.fault_injection import FaultInjector, NodePair, choose
from requite.sim.kernel.parties import PROBE_S, PartiesSimulation, handler_s_max, reconnect_s
from requite.sim.kernel.plan import Plan
from requite.sim.kernel.result import Options
from requite.sim.kernel.simulation import Luck, Phase
from requite.sim.kernel.workload import CallPlan, draw_calls
from requite.sim.pirate.checkers import PIRATE_CHECKERS
from requite.sim.pirate.intruder import PirateIntruder
from requite.sim.pirate.knobs import PirateKnobs, PirateVariant
from requite.sim.pirate.parties import (
    Client,
    Party,
    PirateParts,
    PirateStage,
    Queue,
    Server,
    Worker,
)
from requite.sim.pirate.words import describe
from requite.sim.pirate.workload import SERVICE, plan_call

_INTRUDERS: Final = 3


class PirateCast(Cast):
    """Clients, workers, and the middle: a queue or servers."""

    def __init__(self, stage: PirateStage) -> None:
        knobs = stage.knobs
        kind = Server if knobs.crew is PirateVariant.LAZY else Queue
        self.middle: list[Party] = [kind(name, stage) for name in knobs.middle]
        self.workers = [Worker(spec.name, stage) for spec in knobs.workers]
        self.clients = [Client(spec, stage) for spec in knobs.clients]
        self.parties: list[Party] = [*self.middle, *self.workers, *self.clients]
        super().__init__(
            stage,
            {"middle": self.middle, "worker": self.workers, "client": self.clients},
            [PirateIntruder(f"intruder-{i + 1}", stage) for i in range(_INTRUDERS)],
            exposed=self.middle,
        )

    def choose_nodes(self, lot: float) -> NodePair:
        """Choose a party in the middle and one of its peers."""
        others = [*self.clients, *self.workers]
        ways = [(party.name, other.name) for party in self.middle for other in others]
        return choose(ways, lot)


class PirateSimulation(PartiesSimulation):
    """A run with clients, and servers or a queue with workers."""

    knobs_type = PirateKnobs

    def __init__(self, plan: Plan, options: Options) -> None:
        super().__init__(plan, options, PIRATE_CHECKERS, describe)
        self.knobs: PirateKnobs = plan.knobs
        self.cast: PirateCast = PirateCast(PirateStage.of(self, PirateParts))
        self.injector = FaultInjector(self.cast)

    @staticmethod
    def draw_calls(knobs: PirateKnobs, luck: Luck) -> Iterable[CallPlan]:
        """See `Simulation.draw_calls`."""
        calls = draw_calls(knobs, luck("calls"), lambda *_: False)
        return (plan._replace(service=SERVICE) for plan in calls)

    def phases(self) -> Iterable[Phase]:
        """Settle, probe every worker, then drain clients, workers, and the middle."""
        return (self.settle, self.ask, self._drain_clients, self._drain_workers, self._drain_last)

    # --- liveness (I10) ---------------------------------------------------------------------------
    def settle_s(self) -> float:
        """See `settle_s`."""
        return settle_s(self.knobs)

    def not_settled(self) -> list[str]:
        """Return parties that are not alive, not connected or not ready."""
        dead = [f"{party.name} is not alive" for party in self.cast.parties if not party.alive]
        return dead or [*_unlike_peers(self.cast)]

    def probes(self, _client: str) -> int:
        """Return the number of probe calls: one for each worker, and one more."""
        return len(self.knobs.workers) + 1

    def probe(self, client: str, number: int) -> CallPlan:
        """See `PartiesSimulation.probe`."""
        return plan_call(self.knobs, client, number, PROBE_S, self.world.now)

    # --- bounded memory (I9) ----------------------------------------------------------------------
    def left_after_calls(self) -> list[str]:
        """Return what any party still holds when no calls are left."""
        return [*held(self.cast.parties, _IDLE)]

    def left_after_drain(self, party: Party) -> Iterator[str]:
        """See `leftovers.left_after_drain`."""
        return left_after_drain(party, party.hub.places)

    def _drain_clients(self) -> bool:
        return self.drain_all("clients", self.cast.clients, self.left_in_the_end(self.settle_s()))

    def _drain_workers(self) -> bool:
        return self.drain_all("workers", self.cast.workers, self.left_in_the_end(self.settle_s()))

    def _drain_last(self) -> bool:
        """Drain the queue or the servers, after checking that without peers they equal new ones."""
        middle = self.cast.middle
        self.wait_until_alone(middle)
        left = [what for party in middle for what in left_after_all(party)]
        return self.drain_all("last", middle, left)


def settle_s(knobs: PirateKnobs) -> float:
    """Return the time in seconds in which everything must settle once faults have ended (I10).

    It is the sum of what may happen in sequence: a dead connection is detected and replaced, silent
    peers are given up, a pause before the next connection, deadlines pass, and handlers end.
    """
    presence_s = 2 * knobs.silence_s + knobs.pause_max_s
    handler_s = handler_s_max(knobs.service_s, knobs.behaviours)
    return reconnect_s(knobs.network) + presence_s + 1.5 * knobs.timeout_s + 3 * handler_s


# --- tables ---------------------------------------------------------------------------------------
_IDLE: Final = {
    "client": ("held", "sent", "dialling"),
    "server": ("waiting", "running", "abandoned"),
    "queue": ("waiting", "busy"),
    "worker": ("waiting", "running", "abandoned", "dialling"),
}


def _unlike_peers(cast: PirateCast) -> Iterator[str]:
    """Yield tables that do not match the live peers."""
    for party in cast.parties:
        yield from dead_ends(party)
    askers = sum(client.hub.snapshot().connections for client in cast.clients)
    known = sum(_front_of(party) for party in cast.middle)
    if askers != known:
        yield f"clients have {askers} connections, but the other ends have {known}"
    for party in cast.middle:
        if party.kind == "queue":
            state: Any = party.hub.snapshot()
            if (state.unready, state.idle) != (0, len(cast.workers)):
                yield f"{len(cast.workers)} workers are connected, but {party.name} has {state}"


def _front_of(party: Party) -> int:
    count: int = party.hub.snapshot().clients
    return count
