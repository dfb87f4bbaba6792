"""Bodies that are no messages of a typed method, or too large: each gets a clear answer."""

from __future__ import annotations

from typing import Any, Protocol

import msgspec
import pytest
from tests.spec.requirement import requirement
from tests.typed.shop import (
    Calls,
    Order,
    OutOfStock,
    Shop,
    served,
)

import requite
from requite import (
    BadRequest,
    ConfigurationError,
    RemoteFailure,
)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "the body is empty"),
        (b"{sku}", "malformed"),
        (b'{"sku":"a","count":1} ?', "trailing"),
        (b'{"sku":"\xff","count":1}', "utf-8"),
        (b'{"sku":"a","count":' + b"[" * 100_000, "nested too deeply|array"),
    ],
)
async def test_bodies_that_are_no_messages(body: bytes, reason: str) -> None:
    shop = Shop()
    async with served(shop.service) as client:
        with pytest.raises(RemoteFailure, match=f"(?i){reason}") as caught:
            await client.call(body, service="orders.price")
        assert str(caught.value).startswith('{"error":"BadRequest"')
        assert shop.seen == []


@requirement("typed:duplicate-keys", "typed:unknown-keys")
async def test_duplicate_keys_are_refused_and_unknown_ones_ignored() -> None:
    async with served(Shop().service, Shop(version="2", codec="msgpack").service) as client:
        twice = b'{"sku":"a","count":1,"count":2}'
        with pytest.raises(RemoteFailure, match="'count' twice"):
            await client.call(twice, service="orders.price")
        unknown = b'{ "sku": "a", "colour": "red", "count": 2 }'
        assert (await client.call(unknown, service="orders.price")).body == b'{"price":"1"}'
        packed = msgspec.msgpack.encode({"sku": "a", "count": 2})
        twice = b"\x83" + packed[1:] + msgspec.msgpack.encode("count") + b"\x09"
        with pytest.raises(RemoteFailure, match="twice"):
            await client.call(twice, service="orders.v2.price")


async def test_a_message_too_deep_to_be_read() -> None:
    deep = requite.Service("deep")

    @deep.method
    async def echo(value: Any) -> Any:
        return value

    class Deep(Protocol):
        async def echo(self, value: Any) -> Any: ...

    async with served(deep) as client:
        with pytest.raises(RemoteFailure, match="nested too deeply"):
            await client.call(b"[" * 90_000 + b"]" * 90_000, service="deep.echo")
        endless: list[Any] = []
        endless.append(endless)
        with pytest.raises(BadRequest, match="nested too deeply"):
            await client.bind(Deep, "deep").echo(endless)


async def test_messages_that_are_too_large() -> None:
    shop = Shop()
    async with served(shop.service, message_size_max=100_000) as client:
        orders = client.bind(Calls, "orders")
        with pytest.raises(RemoteFailure, match="maximum is 100000"):
            await orders.slow(Order("a", 20_000))
    small = requite.AsyncClient("mdp://127.0.0.1/orders", message_size_max=1000)
    with pytest.raises(ConfigurationError, match="message_size_max"):
        await small.bind(Calls).price(Order("a" * 2000, 1))


@requirement("typed:error-size")
async def test_an_error_that_is_too_large_loses_its_data() -> None:
    big = requite.Service("big")

    @big.method(errors=[OutOfStock])
    async def fail(order: Order) -> None:
        raise OutOfStock(order.sku * 70_000)

    class Big(Protocol):
        @requite.raises(OutOfStock)
        async def fail(self, order: Order) -> None: ...

    async with served(big) as client:
        said = r"^OutOfStock, which cannot be sent: .* maximum is 65536$"
        with pytest.raises(RemoteFailure, match=said):
            await client.bind(Big, "big").fail(Order("a", 1))
