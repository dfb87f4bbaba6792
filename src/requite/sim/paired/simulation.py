"""A run of a pair of brokers: clients and workers know both, and use the one that serves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Final

from requite.protocols.binarystar.table import PairRole
from requite.sim.cast import Cast
from requite.sim.checkers.tables import left_after_calls, one_sided_connections
from requite.sim.fault_injection import FaultAction, NodePair, choose, spare
from requite.sim.knobs import FaultKind
from requite.sim.majordomo import MajordomoFaultInjector, MajordomoSimulation, settle_s
from requite.sim.paired.brokers import PairedBroker
from requite.sim.paired.checkers import PAIRED_CHECKERS
from requite.sim.paired.knobs import PairedKnobs
from requite.sim.roles import BROKER, Stage
from requite.sim.simulation import Phase
from requite.sim.stream import SimStream
from requite.sim.words import describe
from requite.transport.address import TcpAddress

_NAMES: Final = ("primary", "backup")  # of their nodes
_BETWEEN_THE_TWO_P: Final = 0.4


class PairedCast(Cast):
    """The two brokers, their clients and workers."""

    brokers: Sequence[PairedBroker]

    def __init__(self, stage: Stage, knobs: PairedKnobs) -> None:
        self.world = stage.world
        self.network = stage.network
        self.brokers = [PairedBroker(role, stage, knobs) for role in PairRole]
        self.clients = [self.make_client(spec, stage) for spec in stage.knobs.clients]
        self.workers = [self.make_worker(spec, stage) for spec in stage.knobs.workers]
        self.intruders = []
        self.peers = [*self.clients, *self.workers]
        self.honest = [*self.brokers, *self.peers]
        self._by_name = {client.name: client for client in self.clients}

    @property
    def active(self) -> list[PairedBroker]:
        """The brokers that serve now."""
        return [broker for broker in self.brokers if broker.alive and broker.serves]


class PairedSimulation(MajordomoSimulation):
    """A run with two brokers, clients and workers."""

    knobs_type = PairedKnobs
    checkers = PAIRED_CHECKERS
    knobs: PairedKnobs
    cast: PairedCast

    @staticmethod
    def describe(sender: str, message: Sequence[bytes]) -> str:
        """Describe a message."""
        return describe(BROKER if sender in _NAMES else sender, message)

    def make_cast(self, stage: Stage) -> PairedCast:
        """Create all processes."""
        return PairedCast(stage, self.knobs)

    def make_injector(self) -> MajordomoFaultInjector:
        """Return the faults of the run."""
        return PairedFaultInjector(self.cast)

    def places(self) -> tuple[TcpAddress, ...]:
        """Return the addresses of the brokers, the primary first."""
        return tuple(TcpAddress(name, 5555) for name in _NAMES)

    def start_brokers(self) -> None:
        """Start both brokers, one a little after the other."""
        rng = self.world.rng("brokers")
        for broker in self.cast.brokers:
            self.world.at(rng.random() * 0.5, broker.start)
        for _ in range(self.knobs.switches):
            at_s = rng.random() * self.knobs.faulty_s
            self.world.at(at_s, choose(self.cast.brokers, rng.random()).switch)

    def phases(self) -> Iterable[Phase]:
        """Settle, and probe all services."""
        settle, probe, *_ = super().phases()
        return (settle, probe)

    def settle_s(self) -> float:
        """Return the time in seconds in which everything must settle once faults have ended."""
        return settle_s(self.knobs) + 10 * self.knobs.pair_heartbeat_s

    def unsettled(self) -> list[str]:
        """Check I10: one broker serves, and has all workers; the other has no connections."""
        pending = [f"{call} has not ended" for call in self.history.open.values()]
        return pending or self._pair_unsettled() or [*left_after_calls(self.cast)]

    def _pair_unsettled(self) -> list[str]:
        gone = [f"{each.name} is not alive" for each in self.cast.honest if not each.alive]
        gone = gone or one_sided_connections(self.cast)
        active = self.cast.active
        if gone or len(active) != 1:
            states = {broker.name: broker.half.state.name for broker in self.cast.brokers}
            return gone or [f"{len(active)} of the two serve: {states}"]
        [broker] = active
        return _workers_unlike(broker, self.cast) + [
            f"{other.name} does not serve, but has {len(other.host.links)} connections"
            for other in self.cast.brokers
            if other is not broker and (other.watched.parties or other.host.links)
        ]


def _workers_unlike(broker: PairedBroker, cast: Cast) -> list[str]:
    names = broker.watched.names
    known = Counter(
        names[bytes.fromhex(worker.worker)] for worker in broker.engine.snapshot().workers
    )
    alive = Counter(worker.name for worker in cast.workers)
    return [] if known == alive else [f"{broker.name} knows {dict(known)}, alive are {dict(alive)}"]


class PairedFaultInjector(MajordomoFaultInjector):
    """Injects faults into a run with a pair of brokers."""

    _cast: PairedCast

    def actions(self) -> Mapping[StrEnum, FaultAction]:
        """Return the action of each `FaultKind`."""
        brokers = self._cast.brokers
        return {
            **super().actions(),
            FaultKind.CRASH_BROKER: self.crash(brokers),
            FaultKind.FREEZE_BROKER: self.freeze(brokers),
            FaultKind.DRAIN_BROKER: self.drain(brokers),
        }

    def choose_nodes(self, lot: float) -> NodePair:
        """Choose the two brokers, or one of them and a peer."""
        if spare(lot) < _BETWEEN_THE_TWO_P:
            return _NAMES
        return choose(_NAMES, spare(spare(lot))), choose(self._cast.peers, lot).name

    def streams(self) -> Sequence[SimStream]:
        """Return the connections of both."""
        both = self._cast.brokers
        return [stream for broker in both for stream in broker.streams if stream.is_open]
