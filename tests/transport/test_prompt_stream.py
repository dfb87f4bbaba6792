"""Writes within a turn of the event loop, on asyncio and uvloop."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.conformance.transport_suite import LOOPS, Tap

from requite.transport.address import TcpAddress
from requite.transport.aio import dial
from requite.transport.base import PromptStream

WAIT_S = 20.0


@pytest.fixture(params=LOOPS)
def run(request: pytest.FixtureRequest) -> Callable[[Any], None]:
    def run(scenario: Any) -> None:
        with asyncio.Runner(loop_factory=LOOPS[request.param]) as runner:
            runner.run(scenario)

    return run


@asynccontextmanager
async def connection() -> AsyncIterator[tuple[Tap, PromptStream, socket.socket]]:
    """Connect a stream to a plain socket, which can be read without an event loop."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        taps: list[Tap] = []
        address = TcpAddress("127.0.0.1", listener.getsockname()[1])
        await dial(address, lambda stream: taps.append(Tap(stream)))
        peer, _ = listener.accept()
    peer.settimeout(WAIT_S)
    with peer:
        stream = taps[0].stream
        assert isinstance(stream, PromptStream)
        yield taps[0], stream, peer
        stream.close()
        await taps[0].until_closed()


def read(peer: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size and (chunk := peer.recv(size - len(data))):
        data += chunk
    return data


def test_write_now_sends_within_the_turn(run: Callable[[Any], None]) -> None:
    async def scenario() -> None:
        async with connection() as (_, stream, peer):
            stream.write_now(b"at once")
            assert read(peer, 7) == b"at once"

    run(scenario())


def test_write_now_does_not_overtake_earlier_writes(run: Callable[[Any], None]) -> None:
    async def scenario() -> None:
        async with connection() as (_, stream, peer):
            stream.write(b"first ")
            stream.write_now(b"second ")
            stream.write(b"third")
            assert await asyncio.to_thread(read, peer, 18) == b"first second third"

    run(scenario())


def test_unsent_bytes_are_buffered_and_reported(run: Callable[[Any], None]) -> None:
    async def scenario() -> None:
        data = bytes(range(256)) * (64 << 10)
        async with connection() as (tap, stream, peer):
            stream.write_now(data)
            stream.write_now(b"the end")
            assert tap.events == ["blocked"]
            arrived = await asyncio.to_thread(read, peer, len(data) + 7)
            assert arrived == data + b"the end"
            await tap.until(lambda: "writable" in tap.events)

    run(scenario())


def test_write_now_on_a_broken_connection_reports_its_end(run: Callable[[Any], None]) -> None:
    async def scenario() -> None:
        async with connection() as (tap, stream, peer):
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # a reset
            peer.close()
            stream.write_now(b"into the void")
            stream.write_now(b"and again")
            await tap.until_closed()
            stream.write_now(b"to nobody")
            assert len(tap.reasons) == 1

    run(scenario())
