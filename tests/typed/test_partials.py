"""Partial replies of typed methods, where they are carried and where not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from decimal import Decimal
from typing import Protocol

import pytest
from tests.spec.requirement import requirement
from tests.typed.shop import (
    BINDS,
    Order,
    Orders,
    OutOfStock,
    Quote,
    Shop,
    served,
)

import requite
from requite import (
    BadRequest,
    ConfigurationError,
)
from requite.request import Partial


@requirement("typed:partials")
async def test_partial_replies_are_values() -> None:
    async with served(Shop().service) as client:
        orders = client.bind(Orders, "orders")
        quotes = [Quote(Decimal(n)) for n in range(3)]
        assert [quote async for quote in orders.watch(Order("a", 3))] == quotes
        assert [quote async for quote in orders.listing(order=Order("a", 3))] == quotes
        failing = orders.watch(Order("none", 1))
        assert await anext(failing) == quotes[0]
        with pytest.raises(OutOfStock):
            await anext(failing)
        stream = client.stream(b'{"sku":"a","count":1}', service="orders.watch")
        parts = [part async for part in stream]
        assert [(type(part), part.body) for part in parts] == [
            (Partial, b'{"price":"0"}'),
            (requite.Reply, b""),
        ]
        with pytest.raises(BadRequest):
            await anext(orders.watch(b"no order"))  # type: ignore[arg-type]


@requirement("typed:no-partials")
@pytest.mark.parametrize("bind", BINDS, ids=["sp", "flp", "pirate"])
async def test_partial_replies_are_refused_where_they_are_not_carried(bind: str) -> None:
    with pytest.raises(ConfigurationError, match="partial replies"):
        requite.Worker(Shop().service, bind=bind.format("none"))
    client = requite.AsyncClient(bind.format("none"))
    with pytest.raises(ConfigurationError, match="partial replies"):
        client.bind(Orders, "orders")


@requirement("typed:partials", "typed:body-request")
async def test_a_group_of_a_pool_has_partial_replies() -> None:
    url = "mdp+inproc://group?pool=p&key=k"
    async with (
        requite.Broker("inproc://group"),
        requite.Worker(url, Shop().service) as worker,
        requite.AsyncClient(url, timeout=20.0) as client,
    ):
        assert worker.services == ["orders"]
        orders = client.bind(Orders, "orders")
        quotes = [Quote(Decimal(n)) for n in range(3)]
        assert await orders.price(Order("a", 3)) == Quote(Decimal("1.5"))
        assert await orders.slow(Order("a", 3)) == quotes
        assert [quote async for quote in orders.watch(Order("a", 3))] == quotes
        assert [quote async for quote in orders.listing(Order("a", 3))] == quotes
        failing = orders.watch(Order("none", 1))
        assert await anext(failing) == quotes[0]
        with pytest.raises(OutOfStock):
            await anext(failing)
        with pytest.raises(BadRequest):
            await anext(orders.watch(b"no order"))  # type: ignore[arg-type]
        request = b'\x11RQT1\x0corders.watch{"sku":"a","count":1}'
        parts = [(type(part), part.body) async for part in client.stream(request)]
        assert parts == [(Partial, b'{"price":"0"}'), (requite.Reply, b"")]


async def test_partial_replies_of_a_group_end_with_the_call_that_is_cancelled() -> None:
    url, ended = "mdp+inproc://group-cancelled?pool=p&key=k", asyncio.Event()
    service = requite.Service("ticking")

    @service.method
    async def tick(count: int) -> AsyncIterator[int]:
        try:
            yield count
            await asyncio.Event().wait()
        finally:
            ended.set()

    class Ticking(Protocol):
        def tick(self, count: int) -> AsyncIterator[int]: ...

    async with (
        requite.Broker("inproc://group-cancelled"),
        requite.Worker(url, service),
        requite.AsyncClient(url, timeout=20.0) as client,
    ):
        async with aclosing(client.bind(Ticking, "ticking").tick(1)) as numbers:  # type: ignore[type-var]
            assert await anext(numbers) == 1
        await ended.wait()


def test_a_queue_of_rabbitmq_is_one_service_with_partial_replies() -> None:
    url = "amqp://127.0.0.1?queue=q"
    assert requite.Worker(url, Shop().service).services == ["orders"]
    assert requite.AsyncClient(url).bind(Orders, "orders") is not None
