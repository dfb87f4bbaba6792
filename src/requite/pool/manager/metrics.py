"""The metrics of a manager."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import Response

from requite import __build__, __version__
from requite.metrics import catalogue as metrics
from requite.metrics.families import Family, singles
from requite.metrics.process import LoopLag, Process, of_process
from requite.metrics.reading import SharedReading
from requite.pool.manager.carrier import State
from requite.pool.manager.managed import Managed

_PROCESS: Final = Process(__version__, __build__, "pool run")
_STATUSES: Final = ("active", "unbound")


class PoolMetrics:
    """`/metrics` of a manager: its pool and its process."""

    def __init__(self, manager: Managed) -> None:
        self._manager: Final = manager
        self._lag: Final = LoopLag()
        self._reading: Final = SharedReading(self._read)

    def start(self) -> None:
        """Start measuring the event loop."""
        self._lag.start()

    async def close(self) -> None:
        """Stop measuring, and end the reading in progress."""
        self._lag.stop()
        await self._reading.close()

    async def answer(self, _request: Request) -> Response:
        """Answer a request."""
        return await self._reading.response()

    async def _read(self) -> Sequence[Collector]:
        is_ready = self._manager.state is State.ACTIVE
        return [*of_process(_PROCESS, self._lag, is_ready=is_ready), *of_pool(self._manager)]


def of_pool(manager: Managed) -> list[Family]:
    """Return the metrics of a pool and its manager."""
    seen, pool = manager.snapshot(), manager.config.pool.name
    running = seen.groups.running or {}
    by_status = Counter(str(group.status) for group in seen.state.groups.values())
    groups, dead_letters = Family(metrics.POOL_GROUPS), Family(metrics.POOL_DEAD_LETTERS)
    for status in _STATUSES:
        groups.add(by_status[status], pool, status)
    for reason, count in sorted(seen.dead_letters.by_reason.items()):
        dead_letters.add(count, pool, reason)
    values = (
        (metrics.POOL_ACTIVE, manager.state is State.ACTIVE),
        (metrics.POOL_STANDBY, manager.state is State.STANDBY),
        (metrics.POOL_GROUPS_MAX, manager.config.limits.groups),
        (metrics.POOL_RUNNING_GROUPS, len(running)),
        (metrics.POOL_WORKERS, sum(group.workers or 0 for group in running.values())),
        (metrics.POOL_FAILING_GROUPS, seen.groups.pausing),
        (metrics.POOL_ORPHANS, sum(seen.orphans.waiting.values())),
        (metrics.POOL_ORPHANS_FORWARDED, seen.orphans.forwarded),
        (metrics.POOL_POISONED, seen.dead_letters.poison),
    )
    return [groups, dead_letters, *singles(*values, labels=(pool,))]
