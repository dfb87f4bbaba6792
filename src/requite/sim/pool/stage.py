"""What everybody in a run shares."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from requite.pool.engine import PoolParts
from requite.protocols.amqp.topology import Pool, Queue

if TYPE_CHECKING:
    from requite.sim.history import History
    from requite.sim.pool.knobs import PoolKnobs
    from requite.sim.pool.ledger import Ledger
    from requite.sim.pool.rabbit import SimRabbit
    from requite.sim.transcript import Transcript
    from requite.sim.world import World


class Topology(Pool):
    """What a manager declares; those that are broken on purpose declare something else."""

    def is_exclusive(self, queue: Queue) -> bool:
        """Tell whether a queue of the pool goes with its manager's connection: none does."""
        return queue.name == ""


@dataclass(frozen=True, slots=True)
class PoolSimParts:
    """What takes part in a run; broken ones prove that they are found."""

    engine: PoolParts = field(default_factory=PoolParts)
    topology: type[Topology] = Topology


@dataclass(slots=True)
class PoolStage:
    """The world of a run, and what is in it."""

    world: World
    history: History
    knobs: PoolKnobs
    parts: PoolSimParts
    ledger: Ledger
    rabbit: SimRabbit
    transcript: Transcript | None = None

    def remark(self, who: str, what: str) -> None:
        """Write down what happens."""
        if self.transcript is not None:
            self.transcript.event(who, what)
