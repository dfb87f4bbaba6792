"""Typed services over a real RabbitMQ."""

from __future__ import annotations

from decimal import Decimal

import pytest
from tests.amqp.live import serving
from tests.support.rabbit import Rabbit
from tests.typed.shop import Order, Orders, OutOfStock, Quote, Shop

from requite import AsyncClient, BadRequest

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


async def test_a_queue_for_each_method(rabbit: Rabbit) -> None:
    shop = Shop()
    async with (
        serving(rabbit.url, shop.service),
        AsyncClient(rabbit.url, timeout=30.0) as client,
    ):
        orders = client.bind(Orders, "orders")
        assert await orders.price(Order("a", 3)) == Quote(Decimal("1.5"))
        quotes = [quote async for quote in orders.watch(Order("a", 2))]
        assert quotes == [Quote(Decimal(0)), Quote(Decimal(1))]
        with pytest.raises(OutOfStock) as caught:
            await orders.price(Order("none", 1))
        assert caught.value.left == 3
        with pytest.raises(BadRequest) as refused:
            await orders.price(b"")  # type: ignore[arg-type]
        assert not refused.value.may_have_executed


async def test_one_queue_for_all_methods(rabbit: Rabbit) -> None:
    url = f"{rabbit.url}?queue=everything"
    async with (
        serving(url, Shop().service),
        AsyncClient(url, timeout=30.0) as client,
    ):
        orders = client.bind(Orders, "orders")
        assert await orders.price(Order("a", 3)) == Quote(Decimal("1.5"))
        with pytest.raises(OutOfStock):
            await orders.price(Order("none", 1))
        quotes = [Quote(Decimal(0)), Quote(Decimal(1))]
        assert await orders.slow(Order("a", 2)) == quotes
        assert [quote async for quote in orders.watch(Order("a", 2))] == quotes
        assert [quote async for quote in orders.listing(Order("a", 2))] == quotes
        with pytest.raises(OutOfStock):
            [quote async for quote in orders.watch(Order("none", 2))]
