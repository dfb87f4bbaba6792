"""The driver for workers that are started by hand: it only records starts and stops."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from requite.pool.drivers.base import check_workers
from requite.pool.inputs import RunningGroup


class NoopDriver:
    """Starts and stops nothing; `list` returns the recorded groups."""

    workers_max: int = 1_000

    def __init__(self) -> None:
        self._groups: Final[dict[str, RunningGroup]] = {}

    async def list(self) -> Mapping[str, RunningGroup]:
        """Return the groups that were started and not stopped."""
        return dict(self._groups)

    async def start(self, key: str, version: str = "", workers: int | None = None) -> None:
        """Record a group as started."""
        check_workers(workers, self.workers_max)
        known = self._groups.get(key)
        if known is None:
            self._groups[key] = RunningGroup(version, workers or 1)
        elif workers is not None:
            self._groups[key] = known._replace(workers=workers)

    async def stop(self, key: str) -> None:
        """Record a group as stopped."""
        self._groups.pop(key, None)

    async def close(self) -> None:
        """Do nothing."""
