"""Which of the managers of a pool at a broker of MDP decides.

Each registers as a worker of one service, and the one that has come first decides. When it ends,
its connection does, and the next one is first; when it falls silent, the broker drops it after its
heartbeats. Whoever has not been told lately that it is first must not decide any more: the broker
may have dropped it, and another one may be first. (Where a registration breaks at once, two may
decide until the next look. That does no harm: starts are idempotent, stops drain.)
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from requite.core.liveness import HeartbeatPolicy
from requite.pool.drivers.base import Driver, DriverError
from requite.pool.inputs import RunningGroup
from requite.protocols.majordomo.keyed import managers_of
from requite.request import Request
from requite.shell.clock import now
from requite.worker import Worker, service

_HEARTBEAT: Final = HeartbeatPolicy(interval_s=3.0)
# The broker drops no manager within an interval of its last sign of life, whatever its own settings
# are: of both intervals the longer one holds, a heartbeat is never older than one, and it takes two
# without any.
LEASE_S: Final = _HEARTBEAT.interval_s


class Election:
    """The place of this manager among those of its pool."""

    def __init__(self, url: str, pool: str, describe: Callable[[], Mapping[str, Any]]) -> None:
        @service(managers_of(pool))
        async def managers(_request: Request) -> bytes:
            return json.dumps(describe()).encode()

        self._worker: Final = Worker(url, managers, heartbeat=_HEARTBEAT)
        self._confirmed_at = float("-inf")
        self._leave_lock: Final = asyncio.Lock()
        self.has_left = False

    @property
    def name(self) -> str:
        """What the broker calls this manager."""
        return self._worker.name.hex()

    @property
    def is_leader(self) -> bool:
        """Whether this manager may decide; one that is leaving may end what is its own."""
        return self.has_left or now() - self._confirmed_at <= LEASE_S

    async def register(self) -> None:
        """Register."""
        await self._worker.start()

    def confirm(self, managers: tuple[str, ...], asked_at: float) -> bool:
        """Tell whether this manager is the first of those that the broker has told of; it was asked
        at that instant."""
        is_first = not self.has_left and managers[:1] == (self.name,)
        if is_first:
            self._confirmed_at = asked_at
        return is_first

    async def leave(self) -> None:
        """Let another manager be first."""
        self.has_left = True
        async with self._leave_lock:
            await self._worker.close()


class LeaderDriver:
    """A driver that starts and stops workers only for the manager that decides."""

    def __init__(self, driver: Driver, election: Election) -> None:
        self._driver: Final = driver
        self._election: Final = election
        self.workers_max = driver.workers_max

    async def list(self) -> Mapping[str, RunningGroup]:
        """As the driver does."""
        return await self._driver.list()

    async def start(self, key: str, version: str = "", workers: int | None = None) -> None:
        """As the driver does, if this manager decides; else raise `DriverError`."""
        self._check()
        await self._driver.start(key, version, workers)

    async def stop(self, key: str) -> None:
        """As the driver does, if this manager decides; else raise `DriverError`."""
        self._check()
        await self._driver.stop(key)

    async def close(self) -> None:
        """As the driver does."""
        await self._driver.close()

    def _check(self) -> None:
        if not self._election.is_leader:
            raise DriverError(
                f"the broker has not answered for {LEASE_S:g} s (broker.url): another manager may"
                " decide now"
            )
