"""A broker with workers and clients on one event loop, for tests of workers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack

from requite import AsyncClient, Broker, BrokerPolicy, HeartbeatPolicy, Worker
from requite.worker import Service

WAIT_S = 20.0
BRISK = HeartbeatPolicy(interval_s=0.05, liveness=4)


class Cluster:
    """A broker with workers and clients; they are closed after the test in reverse order."""

    def __init__(self) -> None:
        self.stack = AsyncExitStack()
        self.broker: Broker

    async def open(self, **policy: object) -> None:
        """Start the broker; `policy` overrides fields of its policy."""
        policy.setdefault("heartbeat", BRISK)
        self.broker = Broker("tcp://127.0.0.1:0", policy=BrokerPolicy(**policy))  # type: ignore[arg-type]
        await self.stack.enter_async_context(self.broker)

    @property
    def url(self) -> str:
        """The URL of the broker."""
        return self.broker.endpoints[0].replace("tcp://", "mdp://")

    async def worker(self, *services: Service, **settings: object) -> Worker:
        """Start a worker; return it once the broker has registered its services."""
        settings.setdefault("heartbeat", BRISK)
        before = self.workers()
        worker = Worker(self.url, *services, **settings)  # type: ignore[arg-type]
        await self.stack.enter_async_context(worker)
        await until(lambda: self.workers() == before + len(services))
        return worker

    async def client(self, name: str = "it", **settings: object) -> AsyncClient:
        """Return a client of the service `name`."""
        settings.setdefault("timeout", WAIT_S)
        client = AsyncClient(f"{self.url}/{name}", **settings)  # type: ignore[arg-type]
        return await self.stack.enter_async_context(client)

    def workers(self) -> int:
        """Return the number of workers that are registered at the broker."""
        return len(self.broker.snapshot().workers)


async def until(condition: Callable[[], object]) -> None:
    """Wait until `condition` returns a true value; fail after `WAIT_S`."""
    async with asyncio.timeout(WAIT_S):
        while not condition():  # noqa: ASYNC110 - the condition has no event
            await asyncio.sleep(0.002)
