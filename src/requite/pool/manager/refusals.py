"""Refuses requests to services that have a pool's prefix but no valid key.

No worker would ever serve them, and the broker would reject them only after its service grace,
without the reason. So the manager registers for such a service while requests wait there.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Final

from requite.errors import ConfigurationError, RemoteFailure
from requite.pool.inputs import ServiceCounts
from requite.protocols.majordomo.keyed import meant_by, service_of
from requite.request import Request
from requite.worker import Worker, service

_WORKERS_MAX: Final = 32  # each is a connection; further names wait
_log = logging.getLogger("requite.pool")


class Refusals:
    """Workers that refuse every request, with the reason."""

    def __init__(self, url: str, pool: str) -> None:
        self._url: Final = url
        self._pool: Final = pool
        self._workers: Final[dict[str, Worker]] = {}
        self._updating: Final = asyncio.Lock()

    async def update(self, others: Mapping[str, ServiceCounts]) -> None:
        """Start workers for names with waiting requests, and drain those without."""
        if self._updating.locked():
            return
        async with self._updating:
            done = [name for name in self._workers if not _has_requests(others.get(name))]
            await asyncio.gather(*(self._workers.pop(name).drain() for name in done))
            for name, seen in others.items():
                room = len(self._workers) < _WORKERS_MAX
                if seen.queued and name not in self._workers and room:
                    await self._start(name)

    async def close(self) -> None:
        """Close all workers; the broker rejects the remaining requests."""
        async with self._updating:
            workers = [*self._workers.values()]
            self._workers.clear()
            await asyncio.gather(*(worker.close() for worker in workers))

    async def _start(self, name: str) -> None:
        reason = refusal(self._pool, name)
        _log.info("refusing requests: %s", reason)

        @service(name)
        async def refuse(_request: Request) -> bytes:
            raise RemoteFailure(reason, may_have_executed=False)

        worker = self._workers[name] = Worker(self._url, refuse)
        await worker.start()


def _has_requests(seen: ServiceCounts | None) -> bool:
    """Whether a service has waiting or running requests."""
    return seen is not None and bool(seen.queued or seen.in_progress)


def refusal(pool: str, name: str) -> str:
    """Return why no group can serve a service name."""
    key = meant_by(pool, name)
    if key is not None and "\0" in key:
        return f"{name!r} is not a group of the pool {pool!r}: a key cannot contain a NUL"
    try:
        meant = None if key is None else service_of(pool, key)
    except ConfigurationError:  # too long, once it is encoded
        meant = None
    if meant is None:
        return f"{name!r} is not a group of the pool {pool!r}: no key has this service name"
    return (
        f"{name!r} is not a group of the pool {pool!r}: percent-encode the key, as in"
        f" {meant!r}; or set pool= and key= in the URL"
    )
