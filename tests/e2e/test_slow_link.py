"""A large body on a slow link takes longer than the liveness timeout, but no peer expires."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

import requite
from requite.core.liveness import HeartbeatPolicy

pytestmark = pytest.mark.e2e

BODY = bytes(4 << 20)
PACE_S = 0.01  # per 32 KiB: 4 MiB take 1.3 s, several times the liveness timeout
BEAT = HeartbeatPolicy(interval_s=0.1, liveness=3)


@requite.service("upload")
async def upload(request: requite.Request) -> bytes:
    return b"%d" % len(request.body)


@requite.service("download")
async def download(_request: requite.Request) -> bytes:
    return BODY


@asynccontextmanager
async def slow_link(port: int) -> AsyncIterator[int]:
    """Relay connections to `port` at a limited pace; yield the port of the relay."""

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while chunk := await reader.read(32 << 10):
                writer.write(chunk)
                await writer.drain()
                await asyncio.sleep(PACE_S * len(chunk) / (32 << 10))
        except ConnectionError:  # either side has closed the connection
            return
        finally:
            writer.close()

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(pump(reader, far_writer), pump(far_reader, writer))

    server = await asyncio.start_server(relay, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


@pytest.mark.parametrize("slow", ["client", "worker"])
@pytest.mark.parametrize("service", ["upload", "download"])
async def test_a_large_body_gets_through_a_slow_link(slow: str, service: str) -> None:
    policy = requite.BrokerPolicy(heartbeat=BEAT)
    async with requite.Broker("tcp://127.0.0.1:0", policy=policy) as broker:
        port = int(broker.endpoints[0].rpartition(":")[2])
        async with slow_link(port) as slow_port:
            client_port, worker_port = (slow_port, port) if slow == "client" else (port, slow_port)
            url = f"mdp://127.0.0.1:{client_port}/{service}"
            async with (
                requite.Worker(f"mdp://127.0.0.1:{worker_port}", upload, download, heartbeat=BEAT),
                requite.AsyncClient(url, heartbeat=BEAT) as client,
            ):
                await client.call(b"", service="upload")  # the broker knows its dialect
                body = BODY if service == "upload" else b""
                reply = await client.call(body, timeout=30)
    assert reply.body == (b"%d" % len(BODY) if service == "upload" else BODY)
    assert reply.attempts == 1
