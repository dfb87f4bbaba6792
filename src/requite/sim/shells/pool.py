"""A platform that runs the workers of a pool, as a container engine would, and its driver."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from random import Random
from typing import Final

from requite.pool.config import BrokerSection, HttpSection, Lifetime, Loops, PoolConfig, PoolSection
from requite.pool.drivers.base import check_workers
from requite.pool.inputs import RunningGroup
from requite.sim.kernel.process import Ending
from requite.sim.shells.knobs import POOL, ShellKnobs
from requite.sim.shells.stage import ShellStage, brokers
from requite.sim.shells.workers import ShellWorker

_START_S: Final = 0.5  # the longest start of a worker
_ANSWER_S: Final = 0.1  # the longest delay of the driver
_VERSION: Final = "1"


class PoolWorker(ShellWorker):
    """A worker of one group. It is never restarted; a manager may start another one."""

    @property
    def has_ended(self) -> bool:
        """Whether it was started and has ended."""
        return self.life > 0 and not self.alive

    def _end(self, what: Ending) -> None:
        super()._end(what)
        self.retired = True


@dataclass(slots=True)
class _Group:
    workers: list[PoolWorker] = field(default_factory=list)
    stopping: bool = False


class Platform:
    """Runs groups of workers, independently of the managers."""

    def __init__(self, stage: ShellStage, join: Callable[[ShellWorker], None]) -> None:
        self._stage = stage
        self._join = join
        self._groups: dict[str, _Group] = {}
        self._numbers = count(1)
        self._rng = stage.world.rng("platform")

    def groups(self) -> dict[str, RunningGroup]:
        """Return the groups that have workers, by key."""
        for group in self._groups.values():
            group.workers = [worker for worker in group.workers if not worker.has_ended]
        self._groups = {key: group for key, group in self._groups.items() if group.workers}
        return {
            key: RunningGroup(_VERSION, len(group.workers), group.stopping)
            for key, group in self._groups.items()
        }

    def start(self, key: str, workers: int) -> None:
        """Start the missing workers of a group."""
        self.groups()
        group = self._groups.setdefault(key, _Group())
        group.stopping = False
        for _ in range(workers - len(group.workers)):
            name = f"worker-{next(self._numbers)}"
            spec = replace(self._stage.knobs.workers[0], name=name)
            worker = PoolWorker(spec, self._stage, key=key)
            group.workers.append(worker)
            self._join(worker)
            self._stage.world.after(_START_S * self._rng.random(), worker.start)

    def stop(self, key: str) -> None:
        """Send SIGTERM to the workers of a group."""
        group = self._groups.get(key)
        if group is not None:
            group.stopping = True
            for worker in group.workers:
                self._stop(worker)

    def _stop(self, worker: PoolWorker) -> None:
        if worker.alive and not worker.frozen:
            self._stage.world.after(0.0, worker.drain)
        elif not worker.has_ended:  # starting, or frozen
            self._stage.world.after(_START_S, self._stop, worker)


class PlatformDriver:
    """The driver that a manager uses (`requite.pool.drivers`)."""

    workers_max: int = 8

    def __init__(self, platform: Platform, rng: Random) -> None:
        self._platform = platform
        self._rng = rng

    async def list(self) -> Mapping[str, RunningGroup]:
        """Return the groups that have workers."""
        await self._pause()
        return self._platform.groups()

    async def start(self, key: str, version: str = "", workers: int | None = None) -> None:
        """Start the missing workers of a group."""
        check_workers(workers, self.workers_max)
        await self._pause()
        self._platform.start(key, workers or 1)

    async def stop(self, key: str) -> None:
        """Drain the workers of a group."""
        await self._pause()
        self._platform.stop(key)

    async def close(self) -> None:
        """Do nothing: there is no connection."""

    async def _pause(self) -> None:
        await asyncio.sleep(_ANSWER_S * self._rng.random())


def config_of(knobs: ShellKnobs) -> PoolConfig:
    """Return the settings of the managers."""
    return PoolConfig(
        PoolSection(POOL, version=_VERSION),
        broker=BrokerSection(f"mdp://{brokers(knobs)}", settle_s=4.0, timeout_s=2.0),
        lifetime=Lifetime(knobs.unused_s, 1.0, 0.5),
        loops=Loops(1.0, 0.2, 2.0),
        http=HttpSection(enabled=False),
    )
