"""Open pages: a thousand of them while calls go on, and those that read nothing."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from tests.page.rig import WAIT_S, Shown, serving, shown

from requite import AsyncClient
from requite.page.home import HomeView
from requite.page.streams import STREAMS_MAX, Stream, Streams, streams_max
from requite.page.views import View
from requite.web.server import HttpServer

pytestmark = pytest.mark.e2e

REQUEST = b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n"
SIZE = 1 << 22


@pytest.fixture
def many_files() -> Iterator[None]:
    """A limit of descriptors that lets a broker have all its streams."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    if before[1] < 4096:
        pytest.skip("the limit of descriptors is too low")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(before[0], 4096), before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


async def opened(broker: Shown, stack: AsyncExitStack) -> tuple[bytes, asyncio.StreamReader]:
    """Open a stream; return the first line of the answer, and what follows it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
    stack.callback(writer.close)
    writer.write(REQUEST)
    async with asyncio.timeout(WAIT_S):
        return await reader.readline(), reader


async def event(reader: asyncio.StreamReader) -> Any:
    """Return the next event of a stream."""
    async with asyncio.timeout(WAIT_S):
        while not (line := await reader.readline()).strip().startswith(b"data: "):
            assert line, "the stream has ended"
    return json.loads(line.strip().removeprefix(b"data: "))


@pytest.mark.slow
async def test_a_thousand_while_calls_go_on(many_files: None) -> None:
    with shown() as broker, serving(broker, "echo"):
        async with AsyncClient(broker.url, service="echo", timeout=WAIT_S) as client:
            async with AsyncExitStack() as stack:
                readers = []
                for number in range(STREAMS_MAX):
                    status, reader = await opened(broker, stack)
                    assert b" 200 " in status, number
                    readers.append(reader)
                    if number % 10 == 0:
                        assert (await client.call(b"x")).body == b"x"
                status, reader = await opened(broker, stack)
                assert b" 503 " in status
                text = await reader.readuntil(b"</html>")
                assert b"1,000 pages of this broker are open" in text
                for reader in readers:
                    assert (await event(reader)).keys() == {"state", "charts", "services"}
                calls = [client.call(b"%d" % number) for number in range(500)]
                replies = await asyncio.gather(*calls)
                assert [reply.body for reply in replies] == [b"%d" % n for n in range(500)]
                for reader in readers[::50]:
                    while "echo" not in (await event(reader)).get("services", ""):
                        pass
            async with AsyncExitStack() as stack, asyncio.timeout(WAIT_S):
                while b" 200 " not in (await opened(broker, stack))[0]:
                    pass


async def test_few_files_are_left_to_pages() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (128, before[1]))
    try:
        with shown() as broker:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)
            async with AsyncExitStack() as stack:
                seen = [(await opened(broker, stack))[0] for _ in range(65)]
                assert [b" 200 " in each for each in seen] == 64 * [True] + [False]
                async with AsyncClient(broker.url, service="mmi.ping", timeout=WAIT_S) as client:
                    assert b"pong" in (await client.call(b"")).body
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.parametrize(
    ("allowed", "streams"), [(resource.RLIM_INFINITY, 1000), (1 << 20, 1000), (1024, 512), (64, 32)]
)
def test_streams_leave_descriptors_to_peers(
    monkeypatch: pytest.MonkeyPatch, allowed: int, streams: int
) -> None:
    monkeypatch.setattr("requite.transport.descriptors.limit", lambda: allowed)
    assert streams_max() == streams


async def test_a_stream_holds_the_newest_parts_only() -> None:
    stream = Stream(HomeView(), lambda: True)
    events = stream.events()
    for number in range(1000):
        stream.offer({"state": str(number), "services": "same"})
    assert await anext(events) == 'data: {"state": "999", "services": "same"}\n\n'
    stream.offer({"state": "1000", "services": "same"})
    assert await anext(events) == 'data: {"state": "1000"}\n\n'
    stream.offer(None)
    assert [each async for each in events] == []


class Readings:
    """Readings that take no time."""

    took_s = 0.0

    async def latest(self) -> object:
        return self


@asynccontextmanager
async def streaming() -> AsyncIterator[tuple[HttpServer, Streams]]:
    """Serve streams whose parts are large, and change all the time."""

    def parts_of(_snapshot: object, _view: View) -> dict[str, str]:
        return {"state": os.urandom(SIZE // 2).hex()}

    streams = Streams(Readings(), parts_of)  # type: ignore[arg-type]

    async def answer(_request: Request) -> Response:
        return streams.answer(HomeView(), {}, lambda: True)

    server = HttpServer(Starlette(routes=[Route("/events", answer)]))
    await server.listen("127.0.0.1", 0, "--http")
    publishing = asyncio.create_task(streams.publish_forever())
    try:
        yield server, streams
    finally:
        publishing.cancel()
        streams.close()
        await server.close(0.1)


async def test_a_stalled_reader_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("requite.page.streams.EVERY_S", 0.01)
    monkeypatch.setattr("requite.page.streams.COST", 1)
    monkeypatch.setattr("requite.web.connection.STALLED_S", 0.5)
    async with streaming() as (server, streams), asyncio.timeout(WAIT_S):
        with socket.socket() as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            sock.setblocking(False)
            loop = asyncio.get_running_loop()
            await loop.sock_connect(sock, ("127.0.0.1", int(server.url.rpartition(":")[2])))
            await loop.sock_sendall(sock, REQUEST)
            largest, is_over = 0, False
            while not is_over:
                largest = max([largest, *(each.unsent_size for each in server._open)])
                await asyncio.sleep(0.005)
                is_over = largest > 0 and not streams._open and not server._open
            assert 0 < largest < 2 * SIZE
