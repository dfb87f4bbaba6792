"""Services that describe themselves badly, answer badly, or change under a gateway."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

import httpx
import msgspec
import pytest
from tests.gateway.rig import Door, events_of, opened
from tests.typed.shop import Order, Shop

import requite
from requite.gateway import Gateway
from requite.typed.described import SIZE_MAX

_places = count()
APPLE = {"sku": "apple", "count": 2}
METHOD = {"name": "do", "address": "bad.do", "input": {}, "output": {}}
GOOD = {
    "requite": 1,
    "service": "bad",
    "version": "1",
    "prefix": "bad",
    "codec": "json",
    "methods": [METHOD],
}


def deep(depth: int) -> Any:
    schema: Any = {}
    for _ in range(depth):
        schema = {"items": schema}
    return schema


def foreign(body: bytes, reply: bytes = b"null") -> list[requite.worker.Service]:
    @requite.service("bad.describe")
    async def describe(request: requite.Request) -> bytes:
        return body

    @requite.service("bad.do")
    async def do(request: requite.Request) -> bytes:
        return reply

    return [describe, do]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "truncated"),
        (b"<html>", "malformed"),
        (b"[]", "expected object"),
        (GOOD | {"requite": 9}, "its format is 9"),
        (GOOD | {"methods": [METHOD, METHOD]}, "two methods have the same name"),
        (GOOD | {"methods": [METHOD | {"address": "orders.price"}]}, "not below 'bad'"),
        (GOOD | {"methods": [METHOD | {"name": "<script>"}]}, "cannot be the name of a method"),
        (GOOD | {"methods": [METHOD | {"input": deep(100)}]}, "nested more than 64 deep"),
        (GOOD | {"$defs": {"../x": {}}}, "cannot be the name of a definition"),
        (GOOD | {"$defs": {"x": deep(100)}}, "nested more than 64 deep"),
        (b'{"requite":1,"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "too deeply"),
        (GOOD | {"version": "x" * SIZE_MAX}, f"the maximum is {SIZE_MAX}"),
        (GOOD | {"prefix": "orders", "methods": []}, "describes itself as 'orders'"),
    ],
)
async def test_a_bad_description_is_refused_with_the_reason(body: Any, reason: str) -> None:
    encoded = body if isinstance(body, bytes) else json.dumps(body).encode()
    async with opened(*foreign(encoded), Shop().service) as door:
        answer = await door.post("bad.do", {})
        assert (answer.status, answer.said["error"]) == (502, "BadDescription")
        assert reason.lower() in answer.said["detail"].lower()
        assert answer.said["may_have_executed"] is False
        assert len(answer.said["detail"]) < 1000
        assert (await door.post("orders.price", APPLE)).status == 200
        document = (await door.get("/openapi.json")).said
        assert [tag["name"] for tag in document["tags"]] == ["orders"]


@pytest.mark.parametrize("codec", ["json", "msgpack"])
async def test_a_reply_that_is_no_json_is_a_bad_reply(codec: str) -> None:
    body = json.dumps(GOOD | {"codec": codec}).encode()
    async with opened(*foreign(body, b"\xc1<html>")) as door:
        answer = await door.post("bad.do", {})
        assert (answer.status, answer.said["error"]) == (502, "BadReply")
        assert answer.said["may_have_executed"] is True


async def test_a_service_without_a_codec_that_is_known() -> None:
    body = json.dumps(GOOD | {"codec": "xml"}).encode()
    async with opened(*foreign(body, b"<a/>")) as door:
        answer = await door.post("bad.do", {})
        assert (answer.status, answer.said["error"]) == (502, "BadDescription")
        assert "xml" in answer.said["detail"]


async def test_json_with_line_ends_is_one_event() -> None:
    body = json.dumps(GOOD | {"methods": [METHOD | {"partial": True}]}).encode()

    @requite.service("bad.describe")
    async def describe(request: requite.Request) -> bytes:
        return body

    @requite.service("bad.do")
    async def do(request: requite.Request) -> Any:
        yield b'{\r\n"a":\r1,\n\n"b": 2}'

    async with opened(describe, do) as door:
        answer = await door.post("bad.do", {})
        assert events_of(answer.said) == [("", {"a": 1, "b": 2}), ("end", {})]


# --- a service that changes -----------------------------------------------------------------------
class Wanted(msgspec.Struct):
    name: str


def whole(**settings: Any) -> requite.Service:
    service = requite.Service("orders", **settings)

    @service.method
    async def price(order: Order) -> str:
        return f"{order.count} {order.sku}"

    return service


def parts() -> requite.Service:
    service = requite.Service("orders")

    @service.method
    async def price(order: Order) -> AsyncIterator[str]:
        for number in range(order.count):
            yield f"{number} {order.sku}"

    return service


def renamed() -> requite.Service:
    service = requite.Service("orders")

    @service.method
    async def cost(order: Order) -> str:
        return "new"

    return service


def other() -> requite.Service:
    service = requite.Service("orders")

    @service.method
    async def price(wanted: Wanted) -> str:
        return wanted.name

    return service


@asynccontextmanager
async def restarted(
    before: requite.Service, after: requite.Service, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Door]:
    """Yield a client of a gateway that knows a service which was replaced by another one."""
    monkeypatch.setattr("requite.gateway.catalog.FETCHED_S", 0.0)
    place = f"inproc://restarted-{next(_places)}"
    broker = requite.Broker(place, policy=requite.BrokerPolicy(service_grace_s=0.3))
    await broker.start()
    workers = [requite.Worker(f"mdp+{place}", service) for service in (before, after)]
    await workers[0].start()
    await workers[0].until_connected(0)
    async with (
        requite.AsyncClient(f"mdp+{place}") as client,
        Gateway(client) as gateway,
        httpx.AsyncClient(
            transport=httpx.ASGITransport(gateway), base_url="http://door", timeout=20
        ) as http,
    ):
        door = Door(http, gateway, client)
        assert (await door.post("orders.price", APPLE)).status == 200
        await workers[0].close()
        await workers[1].start()
        await workers[1].until_connected(0)
        yield door
    await workers[1].close()
    await broker.close()


@pytest.mark.parametrize("codecs", [("json", "msgpack"), ("msgpack", "json")])
async def test_a_changed_codec_is_noticed_and_the_call_is_made(
    codecs: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before, after = (whole(codec=codec) for codec in codecs)
    async with restarted(before, after, monkeypatch) as door:
        answer = await door.post("orders.price", APPLE)
        assert (answer.status, answer.said) == (200, "2 apple")


async def test_a_method_that_is_gone_and_one_that_is_new(monkeypatch: pytest.MonkeyPatch) -> None:
    async with restarted(whole(), renamed(), monkeypatch) as door:
        gone = await door.post("orders.price", APPLE, X_Request_Timeout="10")
        assert (gone.status, gone.said["may_have_executed"]) == (503, False)
        assert (await door.post("orders.cost", APPLE)).said == "new"
        gone = await door.post("orders.price", APPLE)
        assert (gone.status, gone.said["error"]) == (404, "NoMethod")


async def test_a_changed_schema_is_in_the_refusal_and_in_the_document(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with restarted(whole(), other(), monkeypatch) as door:
        answer = await door.post("orders.price", APPLE)
        assert (answer.status, answer.said["error"]) == (400, "BadRequest")
        assert "name" in answer.said["reason"]
        document = (await door.get("/openapi.json")).said
        assert "orders.Wanted" in document["components"]["schemas"]
        assert (await door.post("orders.price", {"name": "x"})).said == "x"


async def test_a_method_that_has_one_reply_now(monkeypatch: pytest.MonkeyPatch) -> None:
    async with restarted(parts(), whole(), monkeypatch) as door:
        answer = await door.post("orders.price", APPLE)
        assert events_of(answer.said) == [("", "2 apple"), ("end", {})]  # nothing is lost
        await door.get("/openapi.json")
        assert (await door.post("orders.price", APPLE)).said == "2 apple"


async def test_a_method_that_has_partial_replies_now(monkeypatch: pytest.MonkeyPatch) -> None:
    async with restarted(whole(), parts(), monkeypatch) as door:
        answer = await door.post("orders.price", APPLE)
        assert (answer.status, answer.said["error"]) == (502, "BadReply")
        assert (answer.said["may_have_executed"], answer.said["attempts"]) == (True, 1)
        parts_ = events_of((await door.post("orders.price", APPLE)).said)
        assert parts_ == [("", "0 apple"), ("", "1 apple"), ("end", {})]
