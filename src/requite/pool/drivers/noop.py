"""The driver for workers that are started by hand: it only remembers what was asked of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from requite.pool.drivers.base import Group, check_workers


class NoopDriver:
    """Starts and stops nothing. `list` returns what was asked for since this object was made."""

    workers_max: int = 1_000

    def __init__(self, version: str = "") -> None:
        self._version: Final = version
        self._groups: Final[dict[str, Group]] = {}

    async def list(self) -> Mapping[str, Group]:
        """Return the groups that were started and not stopped."""
        return dict(self._groups)

    async def start(self, key: str, workers: int = 1) -> None:
        """Count a group as started."""
        check_workers(workers, self.workers_max)
        self._groups[key] = Group(self._version, workers)

    async def stop(self, key: str) -> None:
        """Count a group as stopped."""
        self._groups.pop(key, None)

    async def close(self) -> None:
        """There is nothing to let go of."""
