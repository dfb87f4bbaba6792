"""A run of a pair of brokers: clients and workers know both, and use the one that serves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from requite.protocols.binarystar.table import PairRole
from requite.sim.kernel import virtual
from requite.sim.kernel.fault_injection import NodePair, choose, spare
from requite.sim.kernel.simulation import Phase
from requite.sim.majordomo.cast import MajordomoCast
from requite.sim.majordomo.parties import BROKER, Stage
from requite.sim.majordomo.simulation import MajordomoSimulation
from requite.sim.majordomo.words import describe
from requite.sim.paired.brokers import FRONT, PairedBroker
from requite.sim.paired.checkers import PAIRED_CHECKERS
from requite.sim.paired.knobs import PairedKnobs
from requite.transport.address import InprocAddress

_NAMES: Final = ("primary", "backup")  # of their nodes
_BETWEEN_THE_TWO_P: Final = 0.4


class PairedCast(MajordomoCast):
    """The two brokers, their clients and workers."""

    brokers: Sequence[PairedBroker]

    def __init__(self, stage: Stage, knobs: PairedKnobs) -> None:
        super().__init__(stage, [PairedBroker(role, stage, knobs) for role in PairRole], 0)

    @property
    def active(self) -> list[PairedBroker]:
        """The brokers that serve now."""
        return [broker for broker in self.brokers if broker.alive and broker.serves]

    def choose_nodes(self, lot: float) -> NodePair:
        """Choose the two brokers, or one of them and a peer."""
        if spare(lot) < _BETWEEN_THE_TWO_P:
            return _NAMES
        return choose(_NAMES, spare(spare(lot))), choose(self.peers, lot).name


class PairedSimulation(MajordomoSimulation):
    """A run with two brokers, clients and workers."""

    knobs_type = PairedKnobs
    checkers = PAIRED_CHECKERS
    knobs: PairedKnobs
    cast: PairedCast

    def describe(self, sender: str, message: Sequence[bytes]) -> str:
        """Describe a message."""
        return describe(BROKER if sender in _NAMES else sender, message)

    def make_cast(self) -> PairedCast:
        """Create all processes."""
        return PairedCast(self.make_stage(), self.knobs)

    def places(self) -> tuple[InprocAddress, ...]:
        """Return the addresses of the brokers, the primary first."""
        return tuple(InprocAddress(f"{name}:{FRONT}") for name in _NAMES)

    def run(self) -> None:
        """Run all phases with virtual clock and seeded randomness."""
        with virtual.quiet(), virtual.world(self.world):
            super().run()
            for broker in self.cast.brokers:
                broker.discard()

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
        return super().settle_s() + 10 * self.knobs.pair_heartbeat_s

    def disagreements(self) -> list[str]:
        """Check I10: one broker serves, and has all workers; the other has no connections."""
        active = self.cast.active
        if len(active) != 1:
            states = {broker.name: broker.half.state.name for broker in self.cast.brokers}
            return [f"{len(active)} of the two serve: {states}"]
        [broker] = active
        return _workers_unlike(broker, self.cast) + [
            f"{other.name} does not serve, but has {len(other.host.links)} connections"
            for other in self.cast.brokers
            if other is not broker and (other.hub.parties or other.host.links)
        ]


def _workers_unlike(broker: PairedBroker, cast: MajordomoCast) -> list[str]:
    names = broker.hub.names
    known = Counter(
        names[bytes.fromhex(worker.worker)] for worker in broker.shell.snapshot().workers
    )
    alive = Counter(worker.name for worker in cast.workers)
    return [] if known == alive else [f"{broker.name} knows {dict(known)}, alive are {dict(alive)}"]
