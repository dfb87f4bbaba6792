"""A typed service for tests, the classes that clients bind to it, and a broker with a worker."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from decimal import Decimal
from itertools import count
from typing import Any, Protocol

import msgspec

import requite
from requite.worker import Group

_places = count()

BINDS = ("inproc://typed-{}", "flp+inproc://typed-{}", "pirate+inproc://typed-{}")


class Order(msgspec.Struct):
    sku: str
    count: int


class Quote(msgspec.Struct):
    price: Decimal


@dataclass
class OutOfStock(Exception):
    """There is too little of it."""

    sku: str
    left: int = 0


class Closed(Exception):
    pass


class Shop:
    """The service, and a record of the messages that its methods got."""

    def __init__(self, *, partials: bool = True, **settings: Any) -> None:
        self.seen: list[Any] = []
        self.contexts: list[requite.Context] = []
        self.service = service = requite.Service("orders", **settings)
        service.method(errors=[OutOfStock, Closed])(self.price)
        service.method(self.slow)
        service.method(self.ping)
        service.method(self.raw)
        if partials:
            service.method(errors=[OutOfStock])(self.watch)
            service.method(self.listing)

    async def price(self, order: Order, context: requite.Context) -> Quote:
        """Price an order."""
        self.seen.append(order)
        self.contexts.append(context)
        match order.sku:
            case "none":
                raise OutOfStock(order.sku, left=3)
            case "closed":
                raise Closed("until nine")
            case "broken":
                raise ValueError("no such account")
            case "refused":
                raise requite.RemoteFailure('{"error":"BadRequest","path":"$","reason":"a lie"}')
            case "wrong":
                return Order("a", 1)  # type: ignore[return-value]
            case "wrong inside":
                return Quote("a lot")  # type: ignore[arg-type]
        return Quote(Decimal(order.count) / 2)

    def slow(self, order: Order) -> list[Quote]:
        return [Quote(Decimal(n)) for n in range(order.count)]

    async def ping(self) -> None:
        self.seen.append(None)

    async def raw(self, body: bytes) -> bytes:
        return body[::-1]

    async def watch(self, order: Order) -> AsyncIterator[Quote]:
        for n in range(order.count):
            yield Quote(Decimal(n))
        if order.sku == "none":
            raise OutOfStock(order.sku)

    def listing(self, order: Order) -> Iterator[Quote]:
        for n in range(order.count):
            yield Quote(Decimal(n))


class Calls(Protocol):
    @requite.raises(OutOfStock, Closed)
    async def price(self, order: Order, *, timeout: float = ...) -> Quote: ...  # noqa: ASYNC109

    async def slow(self, order: Order) -> list[Quote]: ...

    async def ping(self) -> None: ...

    async def raw(self, body: bytes) -> bytes: ...


class Orders(Calls, Protocol):
    @requite.raises(OutOfStock)
    def watch(self, order: Order) -> AsyncIterator[Quote]: ...

    def listing(self, order: Order) -> AsyncIterator[Quote]: ...


class BlockingCalls(Protocol):
    @requite.raises(OutOfStock, Closed)
    def price(self, order: Order, *, timeout: float = ...) -> Quote: ...

    def slow(self, order: Order) -> list[Quote]: ...


class BlockingOrders(BlockingCalls, Protocol):
    @requite.raises(OutOfStock)
    def watch(self, order: Order) -> Iterator[Quote]: ...


@asynccontextmanager
async def served(*services: Group, **settings: Any) -> AsyncIterator[requite.AsyncClient]:
    """Yield a client of a broker whose worker serves these services."""
    name = f"shop-{next(_places)}"
    broker = requite.Broker(f"inproc://{name}", policy=requite.BrokerPolicy(service_grace_s=0.3))
    await broker.start()
    url = f"mdp+inproc://{name}"
    worker = requite.Worker(url, *services, **settings)
    try:
        await worker.start()
        await worker.until_connected(0)
        async with requite.AsyncClient(url, timeout=20.0) as client:
            yield client
    finally:
        await worker.close()
        await broker.close()
