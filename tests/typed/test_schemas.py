"""Versions of a typed service side by side, and schemas that change under a bound client."""

from __future__ import annotations

from collections.abc import AsyncIterator
from decimal import Decimal
from typing import Protocol

import pytest
from tests.spec.requirement import requirement
from tests.typed.shop import (
    Calls,
    Order,
    Orders,
    Quote,
    Shop,
    served,
)

import requite
from requite import (
    BadReply,
    BadRequest,
    NoService,
)


@requirement("typed:names")
async def test_two_versions_side_by_side() -> None:
    class Tripled(Protocol):
        async def price(self, order: Order) -> int: ...

    second = requite.Service("orders", version="2.1")

    @second.method
    async def price(order: Order) -> int:
        return 3 * order.count

    async with served(Shop(version="1.7").service, second) as client:
        assert await client.bind(Calls, "orders").price(Order("a", 2)) == Quote(Decimal(1))
        assert await client.bind(Tripled, "orders", version="2").price(Order("a", 2)) == 6
        reply = await client.call(b'{"sku":"a","count":2}', service="orders.v2.price")
        assert reply.body == b"6"


async def test_a_schema_that_changed_under_a_bound_client() -> None:
    class Stale(Protocol):
        async def slow(self, order: Order) -> list[int]: ...

        async def price(self, order: str) -> Quote: ...

    async with served(Shop().service) as client:
        orders = client.bind(Stale, "orders")
        with pytest.raises(BadReply) as caught:
            await orders.slow(Order("a", 1))
        assert (caught.value.path, caught.value.reason) == ("$[0]", "expected int, got object")
        assert caught.value.may_have_executed
        with pytest.raises(BadRequest, match="expected object, got str"):
            await orders.price("a")


class ColouredOrder(Order):
    colour: str


def changed_shop() -> requite.Service:
    """Return a later shop: orders need a colour, prices are cents, and `ping` is gone."""
    service = requite.Service("orders")

    async def price(order: ColouredOrder) -> int:
        raise AssertionError("it must not run")

    async def slow(order: Order) -> list[int]:
        return [50]

    async def watch(order: Order) -> AsyncIterator[int]:
        yield 50

    for method in (price, slow, watch):
        service.method(method)
    return service


async def test_a_service_that_is_replaced_under_a_bound_client() -> None:
    url = "mdp+inproc://replaced"
    policy = requite.BrokerPolicy(service_grace_s=0.1)
    async with (
        requite.Broker("inproc://replaced", policy=policy),
        requite.AsyncClient(url, timeout=20.0) as client,
    ):
        orders = client.bind(Orders, "orders")
        async with requite.Worker(url, Shop().service):
            assert await orders.price(Order("a", 2)) == Quote(Decimal(1))
            await orders.ping()
        async with requite.Worker(url, changed_shop()):
            with pytest.raises(BadRequest, match="missing required field colour") as refused:
                await orders.price(Order("a", 2))
            assert not refused.value.may_have_executed
            with pytest.raises(BadReply, match="`requite describe` shows what the service") as odd:
                await orders.slow(Order("a", 2))
            assert (odd.value.path, odd.value.may_have_executed) == ("$[0]", True)
            with pytest.raises(BadReply, match="expected object, got int"):
                [quote async for quote in orders.watch(Order("a", 2))]
            with pytest.raises(NoService) as gone:
                await orders.ping()
            assert not gone.value.may_have_executed
