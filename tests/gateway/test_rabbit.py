"""A gateway to typed services at RabbitMQ."""

from __future__ import annotations

import httpx
import pytest
from tests.gateway.rig import WAIT_S, Door, events_of
from tests.support.rabbit import Rabbit
from tests.typed.shop import Shop

import requite
from requite.gateway import Gateway

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


async def test_calls_and_failures(rabbit: Rabbit) -> None:
    shop = Shop()
    worker = requite.Worker(rabbit.url, shop.service)
    await worker.start()
    await worker.until_connected(0)
    async with (
        requite.AsyncClient(rabbit.url) as client,
        Gateway(client, services=["orders", "nowhere"]) as gateway,
        httpx.AsyncClient(
            transport=httpx.ASGITransport(gateway), base_url="http://door", timeout=WAIT_S
        ) as http,
    ):
        door = Door(http, gateway, client)
        order = {"sku": "a", "count": 2}
        assert (await door.post("orders.price", order)).said == {"price": "1"}
        assert events_of((await door.post("orders.watch", order)).said)[0] == ("", {"price": "0"})
        keyed = await door.post("orders.price", order, Idempotency_Key="abc")
        assert (keyed.status, shop.contexts[-1].idempotency_key) == (200, b"abc")
        refused = await door.post("orders.price", {"sku": "none", "count": 1})
        assert (refused.status, refused.said["error"]) == (422, "OutOfStock")
        absent = await door.post("nowhere.price", order)
        assert (absent.status, absent.said["error"]) == (503, "NoService")
        assert (await door.post("elsewhere.price", order)).status == 404
        tags = (await door.get("/openapi.json")).said["tags"]
        assert [tag["name"] for tag in tags] == ["orders"]
        assert (await door.get("/ready")).status == 200
    await worker.close()
