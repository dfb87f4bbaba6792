"""A run of the Pirate patterns: its phases, faults and checkers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final

from requite.sim.checkers.leftovers import dead_ends, held, left_after_all, left_after_drain
from requite.sim.fault_injection import FaultAction, FaultInjector, NodePair, choose
from requite.sim.faults import Fault
from requite.sim.network import Network
from requite.sim.parties import PROBE_S, PartiesSimulation, handler_s_max, reconnect_s
from requite.sim.pirate.checkers import PIRATE_CHECKERS
from requite.sim.pirate.intruder import PirateIntruder
from requite.sim.pirate.knobs import PirateFault, PirateKnobs, PirateVariant
from requite.sim.pirate.parties import Client, Party, PirateStage, Queue, Server, Worker
from requite.sim.pirate.words import describe
from requite.sim.pirate.workload import plan_call, plan_calls
from requite.sim.plan import Plan
from requite.sim.process import Process
from requite.sim.result import Options
from requite.sim.simulation import Luck, Phase
from requite.sim.stream import SimStream
from requite.sim.workload import CallPlan

_INTRUDERS: Final = 3


class Cast:
    """All processes of a run, not yet started."""

    def __init__(self, stage: PirateStage) -> None:
        knobs = stage.knobs
        self.world = stage.world
        self.network = stage.network
        self.clients = [Client(spec, stage) for spec in knobs.clients]
        self.workers = [Worker(spec.name, stage) for spec in knobs.workers]
        has_queue = knobs.crew is not PirateVariant.LAZY
        kind = Queue if has_queue else Server
        self.middle: list[Party] = [kind(name, stage) for name in knobs.middle]
        self.intruders = [PirateIntruder(f"intruder-{i + 1}", stage) for i in range(_INTRUDERS)]
        self.parties: list[Party] = [*self.middle, *self.workers, *self.clients]
        self.honest: list[Process] = [*self.parties]

    def client(self, name: str) -> Client:
        """Return the client of that name."""
        return next(client for client in self.clients if client.name == name)


class PirateSimulation(PartiesSimulation):
    """A run with clients, and servers or a queue with workers."""

    knobs_type = PirateKnobs

    def __init__(self, plan: Plan, options: Options) -> None:
        super().__init__(plan, options, PIRATE_CHECKERS, describe)
        self.knobs: PirateKnobs = plan.knobs
        stage = PirateStage(
            self.world,
            Network(self.world, self.knobs.network),
            self.history,
            self,
            self.knobs,
            options.pirate_parts,
            self.transcript,
        )
        self.cast: Cast = Cast(stage)
        self.injector = PirateFaultInjector(self.cast)

    @staticmethod
    def draw_calls(knobs: PirateKnobs, luck: Luck) -> Iterable[CallPlan]:
        """See `Simulation.draw_calls`."""
        return plan_calls(knobs, luck("calls"))

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


class PirateFaultInjector(FaultInjector):
    """Injects faults into clients, servers, queue and workers."""

    _cast: Cast

    def actions(self) -> Mapping[StrEnum, FaultAction]:
        """Return the action of each `PirateFault`."""
        cast = self._cast
        workers = bool(cast.workers)
        return {
            PirateFault.CRASH_CLIENT: self.crash(cast.clients),
            PirateFault.CRASH_MIDDLE: self.crash(cast.middle),
            PirateFault.CRASH_WORKER: self.crash(cast.workers) if workers else _nothing,
            PirateFault.POWER_LOSS: self.lose_power,
            PirateFault.FREEZE_CLIENT: self.freeze(cast.clients),
            PirateFault.FREEZE_MIDDLE: self.freeze(cast.middle),
            PirateFault.FREEZE_WORKER: self.freeze(cast.workers) if workers else _nothing,
            PirateFault.PARTITION: self.partition,
            PirateFault.PARTITION_ONE_WAY: self.partition_one_way,
            PirateFault.CLOG: self.clog,
            PirateFault.RESET: self.reset,
            PirateFault.BLACK_HOLE: self.black_hole,
            PirateFault.DRAIN_CLIENT: self.drain(cast.clients),
            PirateFault.DRAIN_MIDDLE: self.drain(cast.middle),
            PirateFault.DRAIN_WORKER: self.drain(cast.workers) if workers else _nothing,
            PirateFault.INTRUDER: self.intrude,
        }

    def choose_nodes(self, lot: float) -> NodePair:
        """Choose a party in the middle and one of its peers."""
        others = [*self._cast.clients, *self._cast.workers]
        ways = [(party.name, other.name) for party in self._cast.middle for other in others]
        return choose(ways, lot)

    def streams(self) -> Sequence[SimStream]:
        """Return the connections of the parties in the middle."""
        return [s for party in self._cast.middle for s in party.streams if s.is_open]


def _nothing(_fault: Fault) -> None:
    """Do nothing: the run has no process for this fault."""


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


def _unlike_peers(cast: Cast) -> Iterator[str]:
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
