"""The state that all processes of a run of a pool share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from requite.pool.config import PoolConfig
from requite.pool.engine import PoolParts
from requite.pool.manager.rabbit import Rabbit
from requite.sim.kernel.stage import RunStage
from requite.sim.pool.knobs import PoolKnobs

if TYPE_CHECKING:
    from requite.sim.pool.ledger import Ledger
    from requite.sim.pool.management import ManagementApi
    from requite.sim.pool.store import PoolStore
    from requite.sim.rabbitmq.process import RabbitParty


@dataclass(frozen=True, slots=True)
class PoolSimParts:
    """The parts under test. Mutation tests pass broken ones."""

    engine: PoolParts = field(default_factory=PoolParts)
    connect: Callable[[PoolConfig], Rabbit] = Rabbit


@dataclass(slots=True, kw_only=True)
class PoolStage(RunStage[PoolKnobs, PoolSimParts]):
    """The state that all processes of a run share. `version`: the version of workers that managers
    start with."""

    ledger: Ledger
    store: PoolStore
    api: ManagementApi
    version: str
    rabbit: RabbitParty[PoolStage] = field(init=False)

    @property
    def config(self) -> PoolConfig:
        """The settings of a manager that starts now."""
        config = self.knobs.config
        return replace(config, pool=replace(config.pool, version=self.version))

    def remark(self, who: str, what: str) -> None:
        """Record an event in the transcript."""
        if self.transcript is not None:
            self.transcript.event(who, what)
