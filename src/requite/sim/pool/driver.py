"""A driver that can be slow and fail, and that runs groups of workers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Final

from requite.pool.inputs import RunningGroup
from requite.sim.pool.worker import PoolWorker

if TYPE_CHECKING:
    from requite.sim.pool.stage import PoolStage

Tell = Callable[[bool], None]
Listed = Callable[[dict[str, RunningGroup] | None], None]

_FAILED_BUT_DONE_P: Final = 0.3  # the share of failed operations that took effect


@dataclass(slots=True)
class _Group:
    version: str
    workers: list[PoolWorker] = field(default_factory=list)
    stopping: bool = False


class SimDriver:
    """The driver, shared by all managers of the pool. `fails`: how many faults make it fail now;
    `slow_s`: its additional delay."""

    def __init__(self, stage: PoolStage) -> None:
        self.fails = 0
        self.slow_s = 0.0
        self.all_workers: list[PoolWorker] = []  # since the beginning
        self._stage = stage
        self._groups: dict[str, _Group] = {}
        self._numbers = count(1)
        self._rng = stage.world.rng("driver")

    @property
    def workers(self) -> list[PoolWorker]:
        """All workers of all groups."""
        return [worker for group in self._groups.values() for worker in group.workers]

    @property
    def groups(self) -> dict[str, RunningGroup]:
        """The running groups, by key."""
        return {
            key: RunningGroup(group.version, len(group.workers), group.stopping)
            for key, group in self._groups.items()
        }

    # --- for managers -----------------------------------------------------------------------------
    def list(self, tell: Listed) -> None:
        """Pass the running groups to `tell`, as they were at a random instant between request and
        answer; None if the driver fails."""
        delay_s = self._delay_s()
        found: list[dict[str, RunningGroup] | None] = []
        world = self._stage.world
        world.after(
            delay_s * self._rng.random(),
            lambda: found.append(None if self.fails else self.groups),
        )
        world.after(delay_s, lambda: tell(found[0] if found else None))

    def start(self, key: str, version: str, workers: int, tell: Tell) -> None:
        """Start the missing workers of a group; stop those in excess."""
        self._stage.world.after(
            self._delay_s(), self._do, self._start, (key, version, workers), tell
        )

    def stop(self, key: str, tell: Tell) -> None:
        """Stop a group: its workers finish their requests, and exit."""
        self._stage.world.after(self._delay_s(), self._do, self._stop, (key,), tell)

    def _delay_s(self) -> float:
        return (self._stage.knobs.driver_s + self.slow_s) * (0.5 + self._rng.random())

    def _do(self, act: Callable[..., bool], args: tuple[object, ...], tell: Tell) -> None:
        if not self.fails:
            tell(act(*args))
            return
        if self._rng.random() < _FAILED_BUT_DONE_P:
            act(*args)
        tell(False)

    def _start(self, key: str, version: str, workers: int) -> bool:
        group = self._groups.setdefault(key, _Group(version))
        if group.stopping:
            return False
        for worker in group.workers[workers:]:
            worker.stop()
        for _ in range(workers - len(group.workers)):
            worker = PoolWorker(f"worker-{next(self._numbers)}", self._stage, key, self._ended)
            group.workers.append(worker)
            self.all_workers.append(worker)
            self._stage.ledger.group_started(key)
            self._stage.world.after(self._stage.knobs.start_s, worker.start)
        return True

    def _stop(self, key: str) -> bool:
        group = self._groups.get(key)
        if group is not None:
            group.stopping = True
            for worker in [*group.workers]:
                worker.stop()
        return True

    def _ended(self, worker: PoolWorker) -> None:
        group = self._groups.get(worker.key)
        if group is not None and worker in group.workers:
            group.workers.remove(worker)
            if not group.workers:
                del self._groups[worker.key]
