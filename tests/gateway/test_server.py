"""A gateway that listens: draining, limits, disconnected and slow clients, many streams."""

from __future__ import annotations

import asyncio
import json
import resource
from contextlib import AsyncExitStack
from typing import Any

import httpx
import psutil
import pytest
from tests.gateway.rig import WAIT_S, Held, events_of, listening, request
from tests.typed.shop import Shop

import requite
from requite.errors import ConfigurationError, TransportError
from requite.gateway import GatewayPolicy
from requite.gateway.server import GatewayServer
from requite.web.place import Place, parse_place

pytestmark = pytest.mark.e2e

ORDER = {"sku": "a", "count": 3}


async def taken(queue: asyncio.Queue[Any]) -> Any:
    return await asyncio.wait_for(queue.get(), WAIT_S)


async def status_of(reader: asyncio.StreamReader) -> tuple[int, dict[str, Any]]:
    """Read an answer; return its status and its body."""
    head = (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), WAIT_S)).decode().lower()
    body = b""
    if "content-length" in head:
        size = int(head.partition("content-length: ")[2].partition("\r\n")[0])
        body = await reader.readexactly(size)
    return int(head.split()[1]), json.loads(body or b"{}")


# --- draining -------------------------------------------------------------------------------------
async def test_a_draining_gateway_finishes_what_it_has_and_refuses_the_rest() -> None:
    held = Held()
    async with listening(held.service) as door:
        posting = asyncio.ensure_future(door.http.post("/held.wait", json=ORDER))
        ticking = asyncio.ensure_future(door.http.post("/held.tick", json=ORDER))
        await taken(held.started)
        await taken(held.started)
        assert (await door.http.get("/ready")).status_code == 200
        draining = asyncio.ensure_future(door.server.drain())
        ready = await door.http.get("/ready")
        assert (ready.status_code, ready.json()["ready"]) == (503, False)
        assert (await door.http.get("/health")).status_code == 200
        refused = await door.http.post("/held.wait", json=ORDER)
        assert (refused.status_code, refused.json()["error"]) == (503, "Draining")
        assert refused.headers["retry-after"] == "1"
        assert not draining.done()
        held.gate.set()
        assert (await posting).json() == {"price": 3}
        assert events_of((await ticking).text)[-2:] == [("", 3), ("end", {})]
        await asyncio.wait_for(draining, WAIT_S)
        with pytest.raises(httpx.ConnectError):
            await door.http.get("/ready")


async def test_calls_that_outlast_the_drain_are_cancelled() -> None:
    held = Held()
    async with listening(held.service, drain_timeout=0.2) as door:
        posting = asyncio.ensure_future(door.http.post("/held.wait", json=ORDER))
        ticking = asyncio.ensure_future(door.http.post("/held.tick", json=ORDER))
        await taken(held.started)
        await taken(held.started)
        await asyncio.wait_for(door.server.drain(), WAIT_S)
        answer = await posting
        assert (answer.status_code, answer.json()["error"]) == (503, "Cancelled")
        assert answer.json()["may_have_executed"] is True
        assert "retry-after" not in answer.headers
        kind, problem = events_of((await ticking).text)[-1]
        assert (kind, problem["error"]) == ("error", "Cancelled")


async def test_a_late_request_that_no_worker_had_has_not_run() -> None:
    held = Held()
    async with listening(held.service, capacity=1) as door:
        first = asyncio.ensure_future(door.http.post("/held.wait", json=ORDER))
        await taken(held.started)
        late = await door.http.post("/held.wait", json=ORDER, headers={"X-Request-Timeout": "4"})
        assert (late.status_code, late.json()["error"]) == (504, "CallTimeout")
        assert late.json()["may_have_executed"] is False
        held.gate.set()
        assert (await first).is_success


# --- clients that go away, or are slow ------------------------------------------------------------
@pytest.mark.parametrize("method", ["wait", "tick"])
@pytest.mark.parametrize("how", ["closed", "half-closed", "reset"])
async def test_a_client_that_goes_away_cancels_its_call(method: str, how: str) -> None:
    held = Held()
    async with listening(held.service) as door:
        reader, writer = await door.raw(request(f"held.{method}"))
        await taken(held.started)
        if method == "tick":
            await asyncio.wait_for(reader.readuntil(b"data: 2\n\n"), WAIT_S)
        if how == "half-closed":
            writer.write_eof()
        elif how == "reset":
            writer.transport.abort()
        else:
            writer.close()
        assert await taken(held.cancelled) == method
        await asyncio.wait_for(door.server.gateway.drain(), WAIT_S)  # its place is free
        metrics = (await door.http.get("/metrics")).text
        answered = [line for line in metrics.splitlines() if "gateway_answered_total{" in line]
        assert answered == ['requite_gateway_answered_total{code="499"} 1.0']
        writer.close()


async def test_a_slow_request_is_closed_and_holds_no_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("requite.web.connection.REQUEST_S", 0.3)
    async with listening(Shop().service) as door:
        reader, writer = await door.raw(request("orders.price")[:30])
        assert await asyncio.wait_for(reader.read(), WAIT_S) == b""
        writer.close()
        await asyncio.wait_for(door.server.gateway.drain(), WAIT_S)


async def test_a_late_body_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("requite.web.connection.REQUEST_S", 0.3)
    shop = Shop()
    async with listening(shop.service) as door:
        reader, writer = await door.raw(request("orders.price")[:-1])
        answer = await asyncio.wait_for(reader.read(), WAIT_S)
        writer.close()
        await asyncio.wait_for(door.server.gateway.drain(), WAIT_S)
        assert not shop.seen
        metrics = (await door.http.get("/metrics")).text
        answered = [line for line in metrics.splitlines() if "gateway_answered_total{" in line]
        assert answered == ['requite_gateway_answered_total{code="408"} 1.0']
    header, _, body = answer.partition(b"\r\n\r\n")
    assert header.startswith(b"HTTP/1.1 408 Request Timeout\r\n")
    assert b"connection: close" in header.lower()
    assert b"content-type: application/problem+json" in header.lower()
    problem = json.loads(body)
    assert (problem["error"], problem["may_have_executed"]) == ("LateBody", False)


async def test_a_client_that_reads_slowly_loses_its_stream_and_not_the_memory() -> None:
    held = Held()
    policy = GatewayPolicy(stream_size_max=256 << 10)
    async with listening(held.service, policy=policy) as door:
        before = psutil.Process().memory_info().rss
        reader, writer = await door.raw(request("held.flood"))
        assert await taken(held.cancelled) == "flood"
        assert psutil.Process().memory_info().rss - before < 64 << 20
        rest = b""
        while not rest.endswith(b"0\r\n\r\n"):
            chunk = await asyncio.wait_for(reader.read(1 << 20), WAIT_S)
            assert chunk, "the stream ended without an end"
            rest = rest[-1000:] + chunk
        assert b"event: error\ndata: " in rest
        assert b'"error":"SlowReader"' in rest
        writer.close()


async def test_a_client_that_reads_nothing_holds_no_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("requite.gateway.streams.STALLED_S", 0.3)
    held = Held()
    async with listening(held.service) as door:
        _, writer = await door.raw(request("held.flood"))
        assert await taken(held.cancelled) == "flood"
        await asyncio.wait_for(door.server.gateway.drain(), WAIT_S)
        writer.transport.abort()


@pytest.mark.slow
async def test_a_thousand_streams_are_open_at_a_time() -> None:
    held, count = Held(), 1000
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 4 * count:
        pytest.skip("too few file descriptors")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 4 * count), hard))
    try:
        async with (
            listening(held.service, policy=GatewayPolicy(concurrency=count)) as door,
            AsyncExitStack() as stack,
        ):
            before = psutil.Process().memory_info().rss
            streams = []
            for _ in range(count):
                reader, writer = await door.raw(request("held.tick"))
                stack.callback(writer.close)
                streams.append(reader)
            for reader in streams:
                await asyncio.wait_for(reader.readuntil(b"data: 2\n\n"), WAIT_S)
            assert door.server.gateway.in_progress == count
            # Both ends of each connection, the broker and the worker are in this process.
            assert psutil.Process().memory_info().rss - before < count * (400 << 10)
            refused = await door.http.post("/held.tick", json=ORDER)
            assert (refused.status_code, refused.json()["error"]) == (503, "Overloaded")
            assert refused.headers["retry-after"] == "1"
            held.gate.set()
            for reader in streams:
                await asyncio.wait_for(reader.readuntil(b"event: end\n"), WAIT_S)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_many_services_are_described_with_few_slots() -> None:
    services = [requite.Service(f"s{number}") for number in range(40)]
    for service in services:
        service.method(Shop().ping)
    async with listening(*services, policy=GatewayPolicy(concurrency=1)) as door:
        document = (await door.http.get("/openapi.json")).json()
        assert len(document["tags"]) == 40


# --- limits ---------------------------------------------------------------------------------------
@pytest.mark.parametrize("is_chunked", [False, True])
async def test_a_body_that_is_too_large_is_refused_before_it_is_read(is_chunked: bool) -> None:
    shop = Shop()
    async with listening(shop.service, policy=GatewayPolicy(body_size_max=1000)) as door:
        head, _, _ = request("orders.price").partition(b"Content-Length")
        size = b"Transfer-Encoding: chunked" if is_chunked else b"Content-Length: 1000000000"
        reader, writer = await door.raw(head + size + b"\r\n\r\n")
        if is_chunked:
            writer.write(b"3e9\r\n" + b" " * 1001 + b"\r\n")
        status, problem = await asyncio.wait_for(_problem(reader), WAIT_S)
        assert (status, problem["error"]) == (413, "TooLarge")
        assert problem["may_have_executed"] is False
        writer.close()
        exact = json.dumps(ORDER).encode().ljust(1000)
        fields = {"Content-Type": "application/json"}
        assert (await door.http.post("/orders.price", content=exact, headers=fields)).is_success
        assert len(shop.seen) == 1


async def _problem(reader: asyncio.StreamReader) -> tuple[int, dict[str, Any]]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    size = int(head.partition("content-length: ")[2].partition("\r\n")[0])
    return int(head.split()[1]), json.loads(await reader.readexactly(size))


async def test_the_bodies_of_all_requests_are_limited_together() -> None:
    policy = GatewayPolicy(body_size_max=1000, bodies_size_max=1500)
    async with listening(Shop().service, policy=policy) as door:
        first = request("orders.price", b" " * 1000)
        _, writer = await door.raw(first[:-1])
        answers = set()
        while 503 not in answers:  # until the first one has arrived
            other = await door.http.post(
                "/orders.price",
                content=json.dumps(ORDER).encode().ljust(900),
                headers={"Content-Type": "application/json"},
            )
            answers.add(other.status_code)
        assert other.json()["error"] == "Overloaded"
        writer.close()


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "the body is empty"),
        (b"{", "truncated"),
        (b"\xff", "malformed"),
        (b'{"sku": "a", "count": 1} 2', "trailing"),
        (b'{"sku": "\xff", "count": 1}', "UTF-8"),
        (b'{"sku": "a", "count": NaN}', "malformed"),
        (b'{"sku": "a", "count": 1, "count": 2}', "'count' twice"),
        (b'{"sku": {"x": {"y": 1, "y": 1}}, "count": 1}', "'y' twice"),
        (b"[" * 100_000 + b"]" * 100_000, "too deeply"),
        (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "too deeply"),
        (b"[" * 900 + b"]" * 900, "expected object"),
        (b'{"sku": "a", "count": 1e400}', "out of range"),
        (b'{"sku": "a", "count": ' + b"9" * 100_000 + b"}", "out of range"),
        (b'{"sku": 1, "count": 2}', "expected str, got int"),
        (b'{"sku": "a"}', "missing required field count"),
        (b"[]", "expected object, got array"),
    ],
)
async def test_a_bad_body_is_refused_with_the_reason(body: bytes, reason: str) -> None:
    shop = Shop()
    async with listening(shop.service) as door:
        fields = {"Content-Type": "application/json"}
        answer = await door.http.post("/orders.price", content=body, headers=fields)
        assert answer.status_code == 400
        problem = answer.json()
        assert (problem["error"], problem["may_have_executed"]) == ("BadRequest", False)
        assert reason.lower() in problem["reason"].lower()
        assert not shop.seen
        assert (await door.http.post("/orders.price", json=ORDER)).is_success


async def test_a_compressed_body_is_refused() -> None:
    shop = Shop()
    async with listening(shop.service) as door:
        fields = {"Content-Type": "application/octet-stream", "Content-Encoding": "gzip"}
        refused = await door.http.post("/orders.raw", content=b"\x1f\x8b", headers=fields)
        assert (refused.status_code, refused.json()["error"]) == (415, "BadType")
        assert not refused.json()["may_have_executed"]
        assert not shop.seen
        fields["Content-Encoding"] = "identity"
        assert (await door.http.post("/orders.raw", content=b"a", headers=fields)).is_success


async def test_peers_that_do_not_speak_http_cannot_fill_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with listening(Shop().service) as door:
        for _ in range(50):
            reader, writer = await door.raw(b"what is this?\r\n\r\n")
            assert (await asyncio.wait_for(reader.read(), WAIT_S)).startswith(b"HTTP/1.1 400 ")
            writer.close()
        upgrade = ("Connection: Upgrade", "Upgrade: h2c")
        reader, writer = await door.raw(request("orders.price", b'{"sku":"a","count":1}', *upgrade))
        assert (await status_of(reader))[0] == 200
        writer.close()
    lines = [(each.name, each.getMessage()) for each in caplog.records]
    assert 1 <= len(lines) < 25  # at most one per second
    assert {name for name, _ in lines} == {"requite.gateway"}
    assert lines[0][1].startswith("malformed request: tcp://127.0.0.1:")
    assert "not HTTP" in lines[0][1]


async def test_an_exception_of_the_gateway_is_logged_each_time(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("requite.gateway.calls.payload_of", lambda *_: 1 / 0)
    async with listening(Shop().service) as door:
        for _ in range(2):
            assert (await door.http.post("/orders.price", json=ORDER)).status_code == 500
    names = [each.name for each in caplog.records if each.exc_info]
    assert names == 2 * ["requite.gateway.uvicorn"]


async def test_a_body_of_another_type_is_refused() -> None:
    shop = Shop()
    async with listening(shop.service) as door:
        for kind in ("text/plain", "application/x-www-form-urlencoded", "", "multipart/form-data"):
            answer = await door.http.post(
                "/orders.price", content=b"{}", headers={"Content-Type": kind}
            )
            assert (answer.status_code, answer.json()["error"]) == (415, "BadType")
        raw = await door.http.post("/orders.raw", json="x")
        assert raw.status_code == 415
        assert not shop.seen


async def test_a_method_without_input_takes_an_empty_body_without_a_type() -> None:
    async with listening(Shop().service) as door:
        for content in (b"", None):
            answer = await door.http.post("/orders.ping", content=content)
            assert "content-type" not in answer.request.headers
            assert (answer.status_code, answer.content) == (200, b"null")
        own = {"Origin": str(door.http.base_url).rstrip("/")}
        for fields, body in ((own, b""), ({}, b"null"), ({"Content-Type": "text/plain"}, b"")):
            refused = await door.http.post("/orders.ping", content=body, headers=fields)
            assert (refused.status_code, refused.json()["error"]) == (415, "BadType")
        assert (await door.http.post("/orders.raw", content=b"")).status_code == 415


# --- pages of other sites -------------------------------------------------------------------------
async def test_pages_of_other_sites_cannot_make_calls() -> None:
    shop = Shop()
    async with listening(shop.service, hosts=["door.example"]) as door:
        foreign = await door.http.post(
            "/orders.price", json=ORDER, headers={"Host": "evil.example"}
        )
        assert (foreign.status_code, foreign.json()["error"]) == (421, "ForeignHost")
        page = {"Origin": "https://evil.example"}
        refused = await door.http.post("/orders.price", json=ORDER, headers=page)
        assert (refused.status_code, refused.json()["error"]) == (403, "ForeignPage")
        assert not shop.seen
        known = {"Host": "door.example", "Origin": "https://door.example"}
        assert (await door.http.post("/orders.price", json=ORDER, headers=known)).is_success


LINK = {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
async def test_pages_of_other_sites_cannot_load_anything(site: str) -> None:
    shop = Shop()
    async with listening(shop.service) as door:
        for fetched in ({"Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "script"}, {}):
            for path in ("/", "/page.js", "/openapi.json", "/metrics", "/orders.price"):
                answer = await door.http.get(path, headers={"Sec-Fetch-Site": site, **fetched})
                assert (answer.status_code, answer.json()["error"]) == (403, "ForeignPage")
        form = {"Sec-Fetch-Site": site, **LINK}
        answer = await door.http.post("/orders.price", json=ORDER, headers=form)
        assert (answer.status_code, answer.json()["error"]) == (403, "ForeignPage")
        assert not shop.seen
        for path in ("/", "/problems", "/openapi.json"):
            assert (await door.http.get(path, headers={"Sec-Fetch-Site": site, **LINK})).is_success


@pytest.mark.parametrize("site", ["same-origin", "none"])
async def test_its_own_page_and_its_user_may_do_all(site: str) -> None:
    async with listening(Shop().service) as door:
        for path in ("/", "/page.js", "/openapi.json", "/metrics"):
            assert (await door.http.get(path, headers={"Sec-Fetch-Site": site})).is_success
        answer = await door.http.post("/orders.price", json=ORDER, headers={"Sec-Fetch-Site": site})
        assert answer.is_success


# --- settings -------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("text", "place"),
    [
        (":8080", ("127.0.0.1", 8080)),
        ("0.0.0.0:0", ("0.0.0.0", 0)),
        ("[::1]:80", ("::1", 80)),
        ("localhost:1", ("localhost", 1)),
    ],
)
def test_places(text: str, place: tuple[str, int]) -> None:
    assert parse_place(text) == place


@pytest.mark.parametrize(
    "text",
    ["", "8080", "a:", "::1:80", "a:65536", "a:0000099999", "a:-1", "http://a:1", "a:²"],
)
def test_what_is_no_place(text: str) -> None:
    with pytest.raises(ConfigurationError, match="HOST:PORT"):
        parse_place(text)


async def test_other_machines_need_an_access_file() -> None:
    url = "mdp://127.0.0.1:1"
    with pytest.raises(ConfigurationError, match="--access"):
        GatewayServer(url, Place("0.0.0.0", 0))
    GatewayServer(url, Place("0.0.0.0", 0), insecure=True)


async def test_an_address_in_use() -> None:
    async with listening(Shop().service) as door:
        other = GatewayServer("mdp://127.0.0.1:1", Place("127.0.0.1", door.port))
        with pytest.raises(TransportError, match="--http"):
            await other.start()
        await other.close()
