"""Requirements of the SP draft that need a complete endpoint: types, random ids, fairness between
real connections.

The peers are plain sockets.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, closing, suppress

import pytest
from tests.spec.requirement import requirement

import requite
from requite.client import AsyncClient
from requite.framing import Limits
from requite.protocols.scalability.calls import ReqSnapshot
from requite.protocols.scalability.rep import ScalabilityWorker
from requite.protocols.scalability.req import ScalabilityClient
from requite.sp import Device
from requite.speaks.plans import ClientSettings, WorkerSettings
from requite.speaks.registry import client_plan, parse_url, read_endpoints
from requite.speaks.sp import SpRole, service_plans, to_dial
from requite.worker import Worker

SETTINGS = ClientSettings(None, 16, None, None, 1, 1 << 20)
WORKER_SETTINGS = WorkerSettings(None, None, None, None, None, None, 1 << 20, bytes(8), None)
STRAY = (8).to_bytes(8, "big") + b"\x80\0\0\0\0\0\0\0"  # a reply to request 0


@requite.service("echo")
async def echo(request: requite.Request) -> bytes:
    return request.body


def header(endpoint_type: int) -> bytes:
    return b"\0SP\0" + endpoint_type.to_bytes(2, "big") + bytes(2)


async def dial(url: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, _, port = url.partition("://")[2].rpartition(":")
    return await asyncio.open_connection(host, int(port))


def snapshot_of(client: AsyncClient) -> ReqSnapshot:
    return client._shell.host.engine.snapshot()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - the condition has no event to wait for
            await asyncio.sleep(0.005)


# --- types ----------------------------------------------------------------------------------------
@requirement("sp:peers:incompatible", "sp:peers:closed")
@pytest.mark.parametrize("announced", [16, 17, 32, 49, 98, 0, 65535])
async def test_a_worker_accepts_only_req(announced: int) -> None:
    async with Worker(echo, bind="sp+tcp://127.0.0.1:0") as worker:
        reader, writer = await dial(worker.addresses[0])
        writer.write(header(announced) + STRAY)
        assert await reader.read() == header(49)  # and the end of the stream
        writer.close()


@requirement("sp:peers:incompatible", "sp:peers:closed")
@pytest.mark.parametrize("announced", [16, 17, 48, 80])
async def test_a_client_accepts_only_rep(announced: int) -> None:
    async with AsyncClient((), bind="sp+tcp://127.0.0.1:0") as client:
        call = client.start(b"hi", timeout=30)
        reader, writer = await dial(client.addresses[0])
        writer.write(header(announced))
        assert await reader.read() == header(48)
        assert not call.done()
        call.cancel()
        writer.close()


@requirement("sp:types:draft")
def test_the_numbers_of_the_draft_are_used_on_request() -> None:
    assert [role.types(draft=True) for role in (SpRole.REQ, SpRole.REP)] == [(16, 17), (17, 16)]
    for query, own in (("", 48), ("?ids=draft", 16)):
        url = parse_url(f"sp+tcp://127.0.0.1:1{query}")
        (endpoint,) = to_dial([url], SpRole.REQ, Limits())
        assert endpoint.make_framing().opening() == header(own)


# --- ids ------------------------------------------------------------------------------------------
@requirement("sp:client:first-id")
def test_the_first_request_id_is_random() -> None:
    plan = client_plan(read_endpoints("sp+tcp://127.0.0.1:1"), SETTINGS)
    first_ids = set()
    for _ in range(4):
        engine = plan.make_engine(bytes(8), None)
        assert isinstance(engine, ScalabilityClient)
        first_ids.add(engine._next_id)
    assert len(first_ids) == 4


@requirement("sp:rep:first-id")
def test_the_first_channel_id_is_random() -> None:
    first_ids = set()
    for _ in range(4):
        [part] = service_plans(read_endpoints("sp+tcp://127.0.0.1:1"), [echo], WORKER_SETTINGS)
        assert isinstance(part.engine, ScalabilityWorker)
        first_ids.add(part.engine._paths._next_id)
        device = Device(connect_front="sp+tcp://127.0.0.1:1", connect_back="sp+tcp://127.0.0.1:1")
        first_ids.add(device._engine._paths._next_id)
    assert len(first_ids) == 8


# --- turns ----------------------------------------------------------------------------------------
Peer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def _flood(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Send stray replies as fast as the client reads them, and answer nothing."""
    while True:
        writer.write(STRAY * 4096)
        await writer.drain()


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer every request with its own body."""
    while True:
        size = await reader.readexactly(8)
        writer.write(size + await reader.readexactly(int.from_bytes(size, "big")))


def accepting(peer: Peer) -> Peer:
    """Return a peer that first exchanges the REP's handshake, and closes its connection at the
    end."""

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with closing(writer), suppress(asyncio.IncompleteReadError, ConnectionError):
            writer.write(header(49))
            assert await reader.readexactly(8) == header(48)
            await peer(reader, writer)

    return accept


@requirement("sp:req:fair-queue", "sp:req:fair-queue-changes")
async def test_a_flood_of_stray_replies_does_not_delay_valid_ones() -> None:
    async with AsyncExitStack() as stack:
        urls = []
        for peer in (_flood, _serve):
            server = await asyncio.start_server(accepting(peer), "127.0.0.1", 0)
            stack.callback(server.close)
            urls.append(f"sp+tcp://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        client = await stack.enter_async_context(AsyncClient(urls))
        await until(lambda: snapshot_of(client).channels == 2)
        for _ in range(20):  # in turn: one of two calls reaches the peer that answers
            calls = {client.start(b"hi", timeout=30) for _ in range(2)}
            done, left = await asyncio.wait(calls, timeout=10, return_when="FIRST_COMPLETED")
            assert [call.result().body for call in done] == [b"hi"]
            for call in left:
                call.cancel()
        assert snapshot_of(client).stray > 10_000
