"""Clients that ask for large replies and read nothing: how long they are kept, and how much."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
from tests.gateway.rig import WAIT_S, Listening, listening

import requite

pytestmark = pytest.mark.e2e

SIZE = 8 << 20
REQUEST = b"POST /big.reply HTTP/1.1\r\nHost: localhost\r\n"
REQUEST += b"Content-Type: application/octet-stream\r\nContent-Length: 0\r\n\r\n"

calls: list[int] = []
big = requite.Service("big")


@big.method
async def reply(_data: bytes) -> bytes:
    """Return 8 MiB."""
    calls.append(1)
    return bytes(SIZE)


async def connected(door: Listening, stack: AsyncExitStack) -> socket.socket:
    """Return a connection with a small receive buffer, which has sent a request."""
    sock = stack.enter_context(socket.socket())
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(sock, ("127.0.0.1", door.port))
    await loop.sock_sendall(sock, REQUEST)
    return sock


async def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition."""
    async with asyncio.timeout(WAIT_S):
        while not condition():  # noqa: ASYNC110 - the sockets have no event for it
            await asyncio.sleep(0.01)


@asynccontextmanager
async def stalled(count: int, drain_timeout: float = 30.0) -> AsyncIterator[Listening]:
    """Yield a gateway with connections whose replies wait for their clients."""
    async with listening(big, drain_timeout=drain_timeout) as door, AsyncExitStack() as stack:
        for _ in range(count):
            await connected(door, stack)
        await until(lambda: len(unsent_of(door)) == count and min(unsent_of(door)) > SIZE // 2)
        yield door


def unsent_of(door: Listening) -> list[int]:
    """Return the unsent bytes of each open connection."""
    return [each.unsent_size for each in door.server._server._open]


async def test_they_hold_the_exit_for_no_longer_than_the_drain() -> None:
    async with stalled(6, drain_timeout=0.2) as door:
        await asyncio.wait_for(door.server.drain(), WAIT_S)
        assert not unsent_of(door)


async def test_their_connections_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("requite.web.connection.STALLED_S", 0.3)
    async with stalled(2) as door:
        await until(lambda: not unsent_of(door))


async def test_a_client_that_reads_slowly_gets_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("requite.web.connection.STALLED_S", 0.5)
    async with listening(big) as door, AsyncExitStack() as stack:
        sock = await connected(door, stack)
        loop, size, began = asyncio.get_running_loop(), 0, asyncio.get_running_loop().time()
        while size < SIZE:
            if size < SIZE // 2 and loop.time() < began + 2.0:
                await asyncio.sleep(0.02)  # slowly, for several times the limit
            chunk = await asyncio.wait_for(loop.sock_recv(sock, 64 << 10), WAIT_S)
            assert chunk, "the connection ended before the reply"
            size += len(chunk)


async def test_their_replies_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("requite.web.server.UNSENT_MAX", SIZE)
    async with listening(big) as door, AsyncExitStack() as stack:
        calls.clear()
        first, second = await connected(door, stack), await connected(door, stack)
        await until(lambda: len(calls) == 2 and len(unsent_of(door)) == 1)
        assert 0 < sum(unsent_of(door)) <= SIZE
        first.close()
        second.close()
        await until(lambda: not unsent_of(door))
        assert (await door.http.get("/health")).is_success
