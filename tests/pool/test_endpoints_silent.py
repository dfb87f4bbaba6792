"""The HTTP endpoints over TLS, with peers that stop at each point, and at closing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Final

import pytest
from tests.pool.http_bench import (
    WAIT_S,
    Connection,
    end_of,
    endpoints_of,
    opened,
)
from tests.pool.tls_bench import (
    GET,
    READY,
    at,
    connected,
    exchange,
    ready,
    showing,
    trusting,
)
from tests.support.certificates import Certificates

from requite.cli.pool.client import ask
from requite.errors import NoService, TransportError
from requite.pool.manager.endpoints import Endpoints
from requite.shell.aio import run


def hello_of(certificates: Certificates) -> bytes:
    """Return the first message of a client."""
    session = certificates.to_dial.session_to("localhost")
    session.begin()
    return session.output()


Silent = Callable[[AsyncExitStack, Endpoints, Certificates], Awaitable[Connection]]


async def says_nothing(
    stack: AsyncExitStack, endpoints: Endpoints, _certificates: Certificates
) -> Connection:
    """Open a connection, and send nothing."""
    return await stack.enter_async_context(connected(endpoints))


async def stops_in_its_hello(
    stack: AsyncExitStack, endpoints: Endpoints, certificates: Certificates
) -> Connection:
    """Send a part of the first message of TLS."""
    connection = await says_nothing(stack, endpoints, certificates)
    connection[1].write(hello_of(certificates)[:40])
    return connection


async def stops_after_its_hello(
    stack: AsyncExitStack, endpoints: Endpoints, certificates: Certificates
) -> Connection:
    """Send the first message of TLS, and read the answer."""
    connection = await says_nothing(stack, endpoints, certificates)
    connection[1].write(hello_of(certificates))
    async with asyncio.timeout(WAIT_S):
        assert await connection[0].read(1)
    return connection


async def stops_after_the_handshake(
    stack: AsyncExitStack, endpoints: Endpoints, certificates: Certificates
) -> Connection:
    """Complete the handshake, and send no request."""
    return await stack.enter_async_context(connected(endpoints, trusting(certificates)))


async def stops_in_its_request(
    stack: AsyncExitStack, endpoints: Endpoints, certificates: Certificates
) -> Connection:
    """Send a request without its last byte."""
    connection = await stops_after_the_handshake(stack, endpoints, certificates)
    connection[1].write(GET[:-1])
    return connection


SILENT: Final = [
    says_nothing,
    stops_in_its_hello,
    stops_after_its_hello,
    stops_after_the_handshake,
    stops_in_its_request,
]


@pytest.mark.parametrize("silent", SILENT)
async def test_a_silent_peer_is_closed_in_time_and_blocks_nobody(
    certificates: Certificates, silent: Silent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("requite.web.connection.REQUEST_S", 1.0)
    async with AsyncExitStack() as stack:
        serving = opened(endpoints_of(showing(certificates.server)))
        endpoints = await stack.enter_async_context(serving)
        speaks = await stack.enter_async_context(connected(endpoints, trusting(certificates)))
        assert await exchange(speaks) == 200
        peers = [await silent(stack, endpoints, certificates) for _ in range(5)]
        assert await exchange(speaks) == 200
        assert await ready(at(endpoints, ca=certificates.ca)) == READY
        for peer in peers:
            assert b"HTTP" not in await end_of(peer)
        assert await exchange(speaks) == 200  # with requests it may be idle for longer


@pytest.mark.parametrize("silent", SILENT)
async def test_of_too_many_silent_peers_the_oldest_is_closed(
    certificates: Certificates, silent: Silent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("requite.web.server.CONNECTIONS_MAX", 5)
    async with AsyncExitStack() as stack:
        serving = opened(endpoints_of(showing(certificates.server)))
        endpoints = await stack.enter_async_context(serving)
        speaks = await stack.enter_async_context(connected(endpoints, trusting(certificates)))
        assert await exchange(speaks) == 200
        peers = [await silent(stack, endpoints, certificates) for _ in range(4)]
        assert await exchange(speaks) == 200  # later than all the others
        assert await ready(at(endpoints, ca=certificates.ca)) == READY  # in place of the oldest
        assert b"HTTP" not in await end_of(peers[0])
        assert not any(peer[0].at_eof() for peer in peers[1:])
        peers += [await silent(stack, endpoints, certificates) for _ in range(2)]
        assert b"HTTP" not in await end_of(peers[1])
        assert await exchange(speaks) == 200


async def test_silent_peers_do_not_delay_closing(certificates: Certificates) -> None:
    async with AsyncExitStack() as stack:
        endpoints = endpoints_of(showing(certificates.server))
        await endpoints.open()
        peers = [await silent(stack, endpoints, certificates) for silent in SILENT]
        async with asyncio.timeout(WAIT_S):
            await endpoints.close()
        for peer in peers:
            assert b"HTTP" not in await end_of(peer)


async def test_close_answers_a_pending_request(certificates: Certificates) -> None:
    manager = showing(certificates.server)
    endpoints = endpoints_of(manager)
    await endpoints.open()
    asking = asyncio.create_task(
        asyncio.to_thread(ask, at(endpoints, ca=certificates.ca), "/health")
    )
    async with asyncio.timeout(WAIT_S):
        await manager.is_checking.wait()
        async with connected(endpoints, trusting(certificates)) as idle:
            closing = asyncio.create_task(endpoints.close())
            assert await end_of(idle) == b""
        assert not closing.done()
        manager.may_check.set()
        with pytest.raises(NoService, match="503"):
            await asking
        await closing


def test_uvloop_makes_no_difference(certificates: Certificates) -> None:
    async def scenario() -> None:
        manager = showing(certificates.server, ca=certificates.ca)
        options = {name: getattr(certificates.client, name) for name in ("certificate", "key")}
        async with AsyncExitStack() as stack:
            endpoints = await stack.enter_async_context(opened(endpoints_of(manager)))
            for silent in (says_nothing, stops_in_its_hello, stops_after_its_hello):
                await silent(stack, endpoints, certificates)
            where = at(endpoints, ca=certificates.ca, **options)
            assert await ready(where) == READY
            with pytest.raises(TransportError):
                await ready(at(endpoints, ca=certificates.ca))

    run(scenario(), use_uvloop=True)
