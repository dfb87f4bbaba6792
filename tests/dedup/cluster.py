"""A broker with workers and clients of deduplicating services; handlers that count their runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import requite
from requite import Dedup, Request

WAIT_S = 20.0


class Cluster:
    """A broker with its workers and clients, which are closed together."""

    def __init__(self, broker: requite.Broker) -> None:
        self.url = broker.endpoints[0].replace("tcp://", "mdp://")
        self._open: list[Any] = []

    async def serve(self, *services: Any, **settings: Any) -> requite.Worker:
        worker = requite.Worker(self.url, *services, **settings)
        await worker.start()
        self._open.append(worker)
        return worker

    def client(self, service: str, **settings: Any) -> requite.AsyncClient:
        client = requite.AsyncClient(self.url, service=service, timeout=WAIT_S, **settings)
        self._open.append(client)
        return client

    async def close(self) -> None:
        for each in self._open:
            await each.close()


class CountingHandlers:
    """Handlers of all four kinds that count their runs, and one that waits for `gate`."""

    def __init__(self, dedup: Dedup) -> None:
        self.runs: list[bytes] = []
        self.gate = asyncio.Event()
        self.ended = asyncio.Event()
        self.services = [
            requite.service("coroutine", idempotent=dedup)(self.coroutine),
            requite.service("function", idempotent=dedup)(self.function),
            requite.service("async-generator", idempotent=dedup)(self.async_generator),
            requite.service("generator", idempotent=dedup)(self.generator),
            requite.service("gated", idempotent=dedup)(self.gated),
        ]

    async def coroutine(self, request: Request) -> bytes:
        self.runs.append(request.body)
        return b"%d" % len(self.runs)

    def function(self, request: Request) -> list[bytes]:
        self.runs.append(request.body)
        return [b"run", b"%d" % len(self.runs)]

    async def async_generator(self, request: Request) -> AsyncIterator[bytes]:
        self.runs.append(request.body)
        for number in range(3):
            yield b"%d of %d" % (number, len(self.runs))

    def generator(self, request: Request) -> Iterator[bytes]:
        self.runs.append(request.body)
        yield b"1 of %d" % len(self.runs)
        return b"end of %d" % len(self.runs)

    async def gated(self, request: Request) -> bytes:
        self.runs.append(request.body)
        try:
            await self.gate.wait()
        finally:
            self.ended.set()
        return b"%d" % len(self.runs)
