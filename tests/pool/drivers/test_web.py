"""Errors about HTTP services without a proper answer: one line, without secrets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from requite.pool.drivers.base import DriverError
from requite.pool.drivers.web import Web

pytestmark = pytest.mark.e2e

SECRET = "Bearer c2VjcmV0"
GREETING = b"AMQP\x00\x00\x09\x01"  # RabbitMQ's answer to HTTP at its AMQP port


@asynccontextmanager
async def served(words: bytes) -> AsyncIterator[Web]:
    """Run a server that answers each request with `words`; yield a client of it.

    With empty `words`, the server stays silent until the client disconnects.
    """

    ended: list[asyncio.Event] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ended.append(asyncio.Event())
        await reader.readuntil(b"\r\n\r\n")
        writer.write(words)
        if not words:
            await reader.read()
        writer.close()
        await writer.wait_closed()
        ended[-1].set()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    web = Web("the service", "section.setting", f"http://127.0.0.1:{port}")
    try:
        yield web
    finally:
        await web.close()
        server.close()
        await asyncio.gather(*(each.wait() for each in ended))


async def refusal(web: Web, timeout_s: float = 20.0) -> str:
    """Send a request that fails; return the text of the error."""
    with pytest.raises(DriverError) as caught:
        await web.ask(
            "GET", "/", expect=(200,), headers={"Authorization": SECRET}, timeout_s=timeout_s
        )
    return str(caught.value)


async def test_an_answer_that_is_not_http_is_reported_on_one_line_without_the_password() -> None:
    async with served(GREETING) as web:
        message = await refusal(web)
    assert message.startswith("section.setting: no answer from the service: ")
    assert "AMQP" in message
    assert "c2VjcmV0" not in message
    assert "\n" not in message


async def test_a_timeout_is_reported_with_its_length() -> None:
    async with served(b"") as web:
        assert (await refusal(web, 0.05)).endswith("no answer from the service: none within 0.05 s")


async def test_a_closed_port_is_named() -> None:
    async with served(b"") as web:
        pass
    assert "Connect call failed" in await refusal(web)
    await web.close()
