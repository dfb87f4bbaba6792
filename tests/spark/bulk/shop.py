"""A typed service for bulk calls, and a broker with a worker that serves it."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any

import msgspec
from tests.support.live import Live, LiveBroker

import requite
from requite.protocols.majordomo.policy import BrokerPolicy
from requite.worker import Group


class Order(msgspec.Struct):
    sku: str
    count: Annotated[int, msgspec.Meta(ge=1)]
    unit: str = "piece"


class Quote(msgspec.Struct):
    price: Decimal
    note: str | None = None


class Inner(msgspec.Struct):
    a: int
    b: str | None


class Whole(msgspec.Struct):
    """A field of each kind."""

    flag: bool
    small: int
    large: int
    ratio: float
    price: Decimal
    text: str
    day: datetime.date
    at: Annotated[datetime.datetime, msgspec.Meta(tz=True)]
    local: Annotated[datetime.datetime, msgspec.Meta(tz=False)]
    raw: bytes
    tags: list[str | None]
    rates: dict[str, float]
    inner: Inner
    many: list[Inner]
    nothing: str | None


class Numbers(msgspec.Struct, omit_defaults=True):
    n: int
    price: Decimal
    at: datetime.datetime | None = None
    scale: int = 7


@dataclass
class OutOfStock(Exception):
    sku: str
    left: int


class Shop:
    """The methods of the service. `seen` has the orders of `price` by idempotency key, `effects`
    those of `ship`, which runs each request once."""

    def __init__(self, **settings: Any) -> None:
        self.seen: Counter[bytes] = Counter()
        self.effects: Counter[str] = Counter()
        self.service = service = requite.Service("orders", **settings)
        service.method(errors=[OutOfStock])(self.price)
        service.method(idempotent=requite.Dedup())(self.ship)
        service.method(self.whole)
        service.method(self.numbers)
        service.method(self.length)
        service.method(self.reverse)
        service.method(self.ping)
        service.method(self.watch)

    async def price(self, order: Order, context: requite.Context) -> Quote:
        self.seen[context.idempotency_key] += 1
        if order.sku == "none":
            raise OutOfStock(order.sku, 3)
        if order.sku == "broken":
            raise ValueError("no such account")
        return Quote(Decimal(order.count) / 4, None if order.count == 2 else order.unit)

    async def ship(self, order: Order) -> int:
        self.effects[order.sku] += 1
        return self.effects[order.sku]

    async def whole(self, whole: Whole) -> Whole:
        return whole

    async def numbers(self, text: str) -> Numbers:
        return msgspec.json.decode(text, type=Numbers)

    async def length(self, words: list[str]) -> int:
        return len(words)

    async def reverse(self, body: bytes) -> bytes:
        return body[::-1]

    async def ping(self, order: Order) -> None: ...

    async def watch(self, order: Order) -> AsyncIterator[Quote]:
        yield Quote(Decimal(1))


class Served:
    """A broker, and a worker of these services; `serve` replaces the worker."""

    def __init__(self, *services: Group) -> None:
        self._broker = LiveBroker(policy=BrokerPolicy(service_grace_s=0.1))
        self._worker: Live | None = None
        self.serve(*services)

    def serve(self, *services: Group) -> None:
        """Stop the worker, and start one of these services; none: only stop it."""
        if self._worker is not None:
            self._worker.close()
            self._worker = None
        if services:
            self._worker = Live(requite.Worker(self._broker.url, *services, capacity=64))

    def url(self, name: str) -> str:
        """Return the URL of a service."""
        return f"{self._broker.url}/{name}"

    def close(self) -> None:
        """Stop worker and broker."""
        self.serve()
        self._broker.close()
