"""Leader election among the managers of a pool at a broker of MDP.

Each manager registers as a worker of one service; the first registered one is the leader. When its
connection ends, the next manager is first; when its heartbeats stop, the broker drops it.
Leadership is a lease: a manager whose last confirmation is too old stops acting, since the broker
may have dropped it and another one may be first. (If a registration breaks at once, two managers
may act until the next poll. That does no harm: starts are idempotent, and stops drain.)
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
from requite.shell import clock
from requite.worker import Worker, service

_HEARTBEAT: Final = HeartbeatPolicy(interval_s=3.0)
# The broker drops no manager within an interval of its last heartbeat, whatever its own settings:
# the longer of both intervals applies, and two intervals must pass without a heartbeat.
LEASE_S: Final = _HEARTBEAT.interval_s


class Election:
    """The candidacy of this manager for the leadership of its pool."""

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
        """The broker's name for this manager."""
        return self._worker.name.hex()

    @property
    def is_leader(self) -> bool:
        """Whether this manager may act; one that has left may still stop its own groups."""
        return self.has_left or clock.now() - self._confirmed_at <= LEASE_S

    async def register(self) -> None:
        """Register."""
        await self._worker.start()

    def confirm(self, managers: tuple[str, ...], asked_at: float) -> bool:
        """Whether this manager is first in a listing requested at `asked_at`; if so, renew its
        lease."""
        is_first = not self.has_left and managers[:1] == (self.name,)
        if is_first:
            self._confirmed_at = asked_at
        return is_first

    async def leave(self) -> None:
        """Deregister, so that another manager becomes first."""
        self.has_left = True
        async with self._leave_lock:
            await self._worker.close()


class LeaderDriver:
    """A driver that starts and stops workers only while its manager is the leader."""

    def __init__(self, driver: Driver, election: Election) -> None:
        self._driver: Final = driver
        self._election: Final = election
        self.workers_max = driver.workers_max

    async def list(self) -> Mapping[str, RunningGroup]:
        """List the running groups."""
        return await self._driver.list()

    async def start(self, key: str, version: str = "", workers: int | None = None) -> None:
        """Start a group, if this manager is the leader; else raise `DriverError`."""
        self._check()
        await self._driver.start(key, version, workers)

    async def stop(self, key: str) -> None:
        """Stop a group, if this manager is the leader; else raise `DriverError`."""
        self._check()
        await self._driver.stop(key)

    async def close(self) -> None:
        """Close the driver."""
        await self._driver.close()

    def _check(self) -> None:
        if not self._election.is_leader:
            raise DriverError(
                f"the broker has not answered for {LEASE_S:g} s (broker.url): another manager may"
                " be active now"
            )
