"""A broker and a worker whose services record the idempotency key of each request."""

from __future__ import annotations

import asyncio
from collections import Counter
from time import monotonic
from uuid import UUID

from tests.support.live import Live, LiveBroker

import requite
from requite.protocols.majordomo.policy import BrokerPolicy
from requite.worker import Service, service


class Recorded:
    """A broker, and a worker that serves `echo`, `fail`, `nap`, `large` and `once`.

    `keys` counts the requests by key. `most` is the largest number of requests that `nap` ran at
    the same time. `once` runs each request once; `effects` counts its runs by key.
    """

    def __init__(self) -> None:
        self.effects: Counter[UUID] = Counter()
        self.dedup = requite.Dedup()
        self.keys: Counter[UUID] = Counter()
        self.bodies: Counter[bytes] = Counter()
        self.last_at = 0.0  # arrival of the last request, monotonic
        self.most = 0
        self._running = 0
        self._broker = LiveBroker(policy=BrokerPolicy(service_grace_s=0.2))
        worker = requite.Worker(self._broker.url, *self.services(), capacity=256)
        self._worker = Live(worker)

    def services(self) -> list[Service]:
        return [
            service("echo")(self.echo),
            service("fail")(self.fail),
            service("nap")(self.nap),
            service("large")(self.large),
            service("once", idempotent=self.dedup)(self.once),
        ]

    def url(self, name: str = "echo") -> str:
        """Return the URL of a service."""
        return f"{self._broker.url}/{name}"

    @property
    def broker(self) -> LiveBroker:
        return self._broker

    def close(self) -> None:
        """Stop the worker and the broker. Idempotent."""
        self._worker.close()
        self._broker.close()

    def _note(self, request: requite.Request) -> None:
        self.keys[UUID(bytes=request.idempotency_key)] += 1
        self.bodies[request.body] += 1
        self.last_at = monotonic()

    async def echo(self, request: requite.Request) -> list[bytes]:
        self._note(request)
        return list(request.frames)

    async def fail(self, request: requite.Request) -> bytes:
        self._note(request)
        raise requite.RemoteFailure("it cannot be " + request.body.decode())

    async def nap(self, request: requite.Request) -> bytes:
        """Sleep for 20 ms; record the largest number of concurrent requests."""
        self._note(request)
        self._running += 1
        self.most = max(self.most, self._running)
        await asyncio.sleep(0.02)
        self._running -= 1
        return request.body

    async def large(self, request: requite.Request) -> bytes:
        """Reply with the number of bytes that the body states."""
        self._note(request)
        return bytes(int(request.body))

    async def once(self, request: requite.Request) -> bytes:
        """Count an effect that must not happen twice; reply with the number of effects so far."""
        self.effects[UUID(bytes=request.idempotency_key)] += 1
        return b"%d" % self.effects.total()
