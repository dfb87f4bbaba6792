"""The state that all processes of a run of a pool share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from requite.pool.engine import PoolParts
from requite.protocols.amqp.topology import Pool, Queue

if TYPE_CHECKING:
    from requite.sim.kernel.history import History
    from requite.sim.kernel.transcript import Transcript
    from requite.sim.kernel.world import World
    from requite.sim.pool.knobs import PoolKnobs
    from requite.sim.pool.ledger import Ledger
    from requite.sim.pool.rabbit import SimRabbit


class Topology(Pool):
    """The exchanges and queues that a manager declares. Mutation tests pass broken ones."""

    def is_exclusive(self, queue: Queue) -> bool:
        """Return whether a queue of the pool is deleted with its manager's connection: none is."""
        return queue.name == ""


@dataclass(frozen=True, slots=True)
class PoolSimParts:
    """The parts under test. Mutation tests pass broken ones."""

    engine: PoolParts = field(default_factory=PoolParts)
    topology: type[Topology] = Topology


@dataclass(slots=True)
class PoolStage:
    """The state that all processes of a run share."""

    world: World
    history: History
    knobs: PoolKnobs
    parts: PoolSimParts
    ledger: Ledger
    rabbit: SimRabbit
    transcript: Transcript | None = None

    def remark(self, who: str, what: str) -> None:
        """Record an event in the transcript."""
        if self.transcript is not None:
            self.transcript.event(who, what)
