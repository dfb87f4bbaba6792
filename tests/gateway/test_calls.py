"""Calls over HTTP: values, failures and options; the client is httpx, without sockets."""

from __future__ import annotations

import asyncio
import json
import re
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from decimal import Decimal
from math import inf, nan
from typing import Any

import httpx
import msgspec
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount
from tests.gateway.rig import Held, events_of, opened
from tests.typed.shop import Order, Shop, served

import requite
from requite.errors import ConfigurationError
from requite.gateway import Gateway, GatewayPolicy

APPLE = {"sku": "apple", "count": 2}


async def test_values_are_json_in_and_out() -> None:
    shop = Shop()
    async with opened(shop.service) as door:
        price = await door.post("orders.price", APPLE)
        assert (price.status, price.said) == (200, {"price": "1"})
        assert price.headers["content-type"] == "application/json"
        assert (await door.post("orders.slow", APPLE)).said == [{"price": "0"}, {"price": "1"}]
        assert (await door.post("orders.ping", b"")).said is None
        assert (await door.post("orders.ping", b"null")).said is None
        raw = await door.post("orders.raw", b"abc", Content_Type="application/octet-stream")
        assert (raw.said, raw.headers["content-type"]) == ("cba", "application/octet-stream")


async def test_partial_replies_are_events() -> None:
    async with opened(Shop().service) as door:
        watched = await door.post("orders.watch", APPLE)
        assert watched.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert events_of(watched.said) == [("", {"price": "0"}), ("", {"price": "1"}), ("end", {})]
        assert watched.said.startswith("id: 0\n")
        failed = await door.post("orders.watch", {"sku": "none", "count": 1})
        (_, first), (kind, problem) = events_of(failed.said)
        assert (first, kind, problem["error"]) == ({"price": "0"}, "error", "OutOfStock")
        assert (problem["data"], problem["may_have_executed"]) == ({"sku": "none", "left": 0}, True)
        refused = await door.post("orders.watch", {"sku": "none", "count": 0})
        assert (refused.status, refused.said["error"]) == (422, "OutOfStock")


async def test_partial_replies_of_bytes_are_base64() -> None:
    files, data = requite.Service("files"), b"\r\n\xff\r\n\n"

    @files.method
    async def read() -> AsyncIterator[bytes]:
        yield data

    async with opened(files) as door:
        [(kind, said), end] = events_of((await door.post("files.read", b"")).said)
        assert (kind, b64decode(said), end) == ("", data, ("end", {}))
        document = (await door.get("/openapi.json")).said
        answer = document["paths"]["/files.read"]["post"]["responses"]["200"]
        shown = answer["content"]["text/event-stream"]["x-data"]
        assert shown == {"type": "string", "contentEncoding": "base64"}


class Picture(msgspec.Struct):
    name: str
    pixels: bytes
    made: datetime
    more: dict[str, list[bytes]] = {}
    inner: Picture | None = None


async def test_a_service_with_messagepack_has_the_same_json() -> None:
    shop, pictures = Shop(codec="msgpack"), requite.Service("pictures", codec="msgpack")

    @pictures.method
    async def turn(picture: Picture) -> Picture:
        picture.pixels = picture.pixels[::-1]
        return picture

    async with opened(shop.service, pictures) as door:
        assert (await door.post("orders.price", APPLE)).said == {"price": "1"}
        assert events_of((await door.post("orders.watch", APPLE)).said)[1] == ("", {"price": "1"})
        made = datetime(2026, 1, 2, tzinfo=UTC)
        deep = Picture("inner", b"\0\1", made)
        sent = Picture("outer", b"ab\xff", made, {"x": [b"yz"]}, deep)
        got = await door.post("pictures.turn", msgspec.json.encode(sent))
        turned = Picture("outer", b"\xffba", made, sent.more, deep)
        assert msgspec.convert(got.said, Picture) == turned
        sent_bad = json.loads(msgspec.json.encode(sent)) | {"pixels": "no base 64!"}
        bad = await door.post("pictures.turn", sent_bad)
        assert (bad.status, bad.said["error"]) == (400, "BadRequest")


@pytest.mark.parametrize("number", [inf, -inf, nan])
async def test_a_number_that_json_does_not_have_is_a_bad_reply(number: float) -> None:
    ratios = requite.Service("ratios", codec="msgpack")

    @ratios.method
    async def all() -> dict[str, list[float]]:
        return {"a": [1.5, number]}

    async with opened(ratios) as door:
        bad = await door.post("ratios.all", b"")
        assert (bad.status, bad.said["error"]) == (502, "BadReply")
        assert (bad.said["path"], bad.said["may_have_executed"]) == ("$.a[1]", True)


# --- failures -------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("body", "status", "error", "ran"),
    [
        ({"sku": "apple", "count": "two"}, 400, "BadRequest", False),
        ({"sku": "none", "count": 1}, 422, "OutOfStock", True),
        ({"sku": "closed", "count": 1}, 422, "Closed", True),
        ({"sku": "broken", "count": 1}, 500, "RemoteFailure", True),
        ({"sku": "refused", "count": 1}, 500, "RemoteFailure", True),
        ({"sku": "wrong", "count": 1}, 500, "RemoteFailure", True),
    ],
)
async def test_each_failure_of_a_handler_has_its_status(
    body: Any, status: int, error: str, ran: bool
) -> None:
    async with opened(Shop().service) as door:
        answer = await door.post("orders.price", body)
        assert (answer.status, answer.said["error"]) == (status, error)
        assert answer.said["may_have_executed"] is ran
        assert answer.said["attempts"] == 1
        assert re.fullmatch(r"[0-9a-f]{32}", answer.said["request_id"])


async def test_a_bad_request_says_where_and_why() -> None:
    async with opened(Shop().service) as door:
        said = (await door.post("orders.price", {"sku": "a", "count": "two"})).said
        assert (said["path"], said["reason"]) == ("$.count", "expected int, got str")
        assert said["type"] == "/problems#BadRequest"


async def test_a_declared_error_has_its_data() -> None:
    async with opened(Shop().service) as door:
        said = (await door.post("orders.price", {"sku": "none", "count": 1})).said
        assert said["data"] == {"sku": "none", "left": 3}
        assert said["type"] == "/problems#DeclaredError"
        closed = (await door.post("orders.price", {"sku": "closed", "count": 1})).said
        assert (closed["detail"], "data" in closed) == ("until nine", False)


async def test_what_is_not_there() -> None:
    async with opened(Shop().service) as door:
        for address in ("orders.nothing", "orders.describe", "nowhere.price", "price", "mmi.list"):
            answer = await door.post(address, {})
            assert (answer.status, answer.said["error"]) == (404, "NoMethod")
            assert answer.said["may_have_executed"] is False
        other = await door.get("/orders.price")
        assert (other.status, other.said["error"]) == (405, "BadMethod")
        assert "called with POST /SERVICE.METHOD" in other.said["detail"]
        assert (await door.get("/orders.price")).headers["allow"] == "POST"
        for path in ("/a/b", "/nothing", "/favicon.ico", "/orders.nothing", "/nowhere.price"):
            answer = await door.get(path)
            assert (answer.status, answer.said["error"]) == (404, "NoMethod")
        for method in ("PUT", "DELETE", "OPTIONS"):
            assert (await door.http.request(method, "/orders.price")).status_code == 405
            assert (await door.http.request(method, "/orders.nothing")).status_code == 404


async def test_a_service_whose_workers_are_gone_is_unavailable() -> None:
    shop = Shop()
    broker = requite.Broker("inproc://gone", policy=requite.BrokerPolicy(service_grace_s=0.1))
    await broker.start()
    url = "mdp+inproc://gone"
    worker = requite.Worker(url, shop.service)
    await worker.start()
    await worker.until_connected(0)
    async with requite.AsyncClient(url) as client, Gateway(client) as gateway:
        transport = httpx.ASGITransport(gateway)
        async with httpx.AsyncClient(transport=transport, base_url="http://door") as http:
            assert (await http.post("/orders.price", json=APPLE)).status_code == 200
            await worker.close()
            answer = await http.post("/orders.price", json=APPLE)
            assert (answer.status_code, answer.json()["error"]) == (503, "NoService")
            assert answer.headers["retry-after"] == "1"
            await broker.close()
            headers = {"X-Request-Timeout": "0.2"}
            answer = await http.post("/orders.price", json=APPLE, headers=headers)
            assert (answer.status_code, answer.json()["error"]) == (504, "CallTimeout")
            assert answer.json()["may_have_executed"] is False
            ready = await http.get("/ready")
            assert (ready.status_code, ready.json()["ready"]) == (503, False)
            assert (await http.get("/health")).json() == {"healthy": True}
    await broker.close()


async def test_a_failure_of_the_gateway_itself_is_a_problem(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with served(Shop().service) as client, Gateway(client) as gateway:
        monkeypatch.setattr("requite.gateway.calls.payload_of", lambda *_: 1 / 0)
        transport = httpx.ASGITransport(gateway, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://door") as http:
            answer = await http.post("/orders.price", json=APPLE)
            assert (answer.status_code, answer.json()["error"]) == (500, "Internal")
            assert "division" not in answer.text
            monkeypatch.undo()
            assert (await http.post("/orders.price", json=APPLE)).is_success


# --- options --------------------------------------------------------------------------------------
async def test_the_deadline_reaches_the_worker_and_ends_the_call() -> None:
    held = Held()
    async with opened(held.service) as door:
        late = await door.post("held.wait", APPLE, X_Request_Timeout="0.3")
        assert (late.status, late.said["error"]) == (504, "CallTimeout")
        assert late.said["may_have_executed"] is True
        remaining = await held.started.get()
        assert remaining is not None
        assert 0 < remaining <= 0.3
        assert await asyncio.wait_for(held.cancelled.get(), 20) == "wait"


@pytest.mark.parametrize("field", ["0", "-1", "1e3", "nan", "inf", "301", "1,5", "soon", "9" * 400])
async def test_a_bad_deadline_is_refused(field: str) -> None:
    async with opened(Shop().service) as door:
        answer = await door.post("orders.price", APPLE, X_Request_Timeout=field)
        assert (answer.status, answer.said["error"]) == (400, "BadRequest")
        assert "at most 300" in answer.said["detail"]


async def test_an_idempotency_key_reaches_the_worker() -> None:
    shop = Shop()
    async with opened(shop.service) as door:
        for field in ("abc-1", '"abc-1"', '"a b"'):
            assert (await door.post("orders.price", APPLE, Idempotency_Key=field)).status == 200
        await door.post("orders.price", APPLE)
        keys = [context.idempotency_key for context in shop.contexts]
        assert keys == [b"abc-1", b"abc-1", b"a b", b""]
        for field in ("", "a b", '"a"b"', "x" * 129, '""'):
            answer = await door.post("orders.price", APPLE, Idempotency_Key=field)
            assert (answer.status, answer.said["error"]) == (400, "BadRequest")
        assert len(shop.seen) == 4


async def test_one_value_is_one_message_however_it_is_written() -> None:
    bank, paid = requite.Service("bank"), list[Order]()

    @bank.method(idempotent=requite.Dedup())
    async def pay(order: Order) -> int:
        paid.append(order)
        return len(paid)

    async with opened(bank) as door:
        for body in (b'{"sku": "a", "count": 2}', b'{"count":2.0,\n"sku":"\\u0061"}'):
            answer = await door.post("bank.pay", body, Idempotency_Key="1")
            assert (answer.status, answer.said) == (200, 1)
        other = await door.post("bank.pay", {"sku": "a", "count": 3}, Idempotency_Key="1")
        assert (other.status, other.said["error"]) == (400, "BadRequest")
        assert "key" in other.said["reason"]
    assert paid == [Order("a", 2)]


@pytest.mark.parametrize("key", ["", "again"])
async def test_only_a_request_with_a_key_is_sent_to_a_second_worker(key: str) -> None:
    url, first, second = f"mdp+inproc://again-{key}", Held(), Held()
    broker = requite.Broker(f"inproc://again-{key}")
    await broker.start()
    workers = [requite.Worker(url, held.service) for held in (first, second)]
    await workers[0].start()
    await workers[0].until_connected(0)
    async with requite.AsyncClient(url) as client, Gateway(client) as gateway:
        transport = httpx.ASGITransport(gateway)
        async with httpx.AsyncClient(transport=transport, base_url="http://door") as http:
            headers = {"Idempotency-Key": key} if key else {}
            posting = asyncio.ensure_future(http.post("/held.wait", json=APPLE, headers=headers))
            await first.started.get()
            second.gate.set()
            await workers[1].start()
            await workers[1].until_connected(0)
            await workers[0].close()
            answer = await posting
    await workers[1].close()
    await broker.close()
    if key:
        assert (answer.status_code, answer.json()) == (200, {"price": 2})
    else:
        assert (answer.status_code, answer.json()["error"]) == (502, "WorkerLost")
        assert answer.json()["may_have_executed"] is True


# --- mounting -------------------------------------------------------------------------------------
async def test_a_gateway_is_mounted_in_another_application() -> None:
    async with served(Shop().service) as client, Gateway(client) as gateway:
        app = Starlette(routes=[Mount("/rpc", gateway)])
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://door") as http:
            answer = await http.post("/rpc/orders.price", json=APPLE)
            assert answer.json() == {"price": "1"}
            assert (await http.post("/rpc/orders.no", json=1)).json()["type"] == (
                "/rpc/problems#NoMethod"
            )
            document = (await http.get("/rpc/openapi.json")).json()
            assert document["servers"] == [{"url": "/rpc"}]
            assert "page.js" in (await http.get("/rpc/")).text


async def test_named_services_are_the_only_ones() -> None:
    other = requite.Service("other")

    @other.method
    async def double(number: int) -> Decimal:
        return Decimal(2 * number)

    async with opened(Shop().service, other, services=["other"]) as door:
        assert (await door.post("other.double", 4)).said == "8"
        assert (await door.post("orders.price", APPLE)).status == 404
        assert [tag["name"] for tag in (await door.get("/openapi.json")).said["tags"]] == ["other"]


@pytest.mark.parametrize(
    ("url", "options", "text"),
    [
        ("sp+tcp://127.0.0.1:1", {}, "service names"),
        ("mdp://127.0.0.1:1", {"dialect": "0.2"}, "MDP 0.3"),
        ("mdp://127.0.0.1:1?pool=a&key=b", {}, "without a pool"),
        ("amqp://127.0.0.1:1", {}, "name them"),
        ("mdp://127.0.0.1:1/orders", {}, r"services=\['orders'\]"),
        ("mdp://127.0.0.1:1", {"service": "orders"}, "after the URL: `URL orders`"),
    ],
)
async def test_a_client_that_cannot_be_used(url: str, options: Any, text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        Gateway(requite.AsyncClient(url, **options))


def test_a_client_of_a_service_that_the_gateway_names_can_be_used() -> None:
    assert Gateway(requite.AsyncClient("mdp://127.0.0.1:1/orders"), services=["orders"])


@pytest.mark.parametrize(
    "limits",
    [{"concurrency": 0}, {"body_size_max": 0}, {"timeout": 0}, {"timeout": 2, "timeout_max": 1}],
)
def test_limits_that_cannot_work(limits: Any) -> None:
    with pytest.raises(ConfigurationError):
        GatewayPolicy(**limits)


def test_base64_of_the_tests_is_that_of_msgspec() -> None:
    assert json.loads(msgspec.json.encode(b"\xff\xfe")) == b64encode(b"\xff\xfe").decode()
