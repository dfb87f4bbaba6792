"""A connection to RabbitMQ on which tests do what they like, with messages as pamqp, which is not
ours, writes and reads them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from pamqp.commands import Basic
from pamqp.header import ContentHeader

from requite.pool.config import PoolConfig, PoolSection, RabbitSection
from requite.pool.manager.address import ConnectionSettings
from requite.pool.manager.connection import Channel, Connection
from requite.protocols.amqp import methods
from requite.protocols.amqp.channels import Content

WAIT_S: Final = 20.0


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[Connection]:
    """Connect, for the length of a `with`."""
    connection = Connection(
        ConnectionSettings(PoolConfig(PoolSection("tests"), rabbitmq=RabbitSection(url)))
    )
    await connection.open()
    try:
        yield connection
    finally:
        await connection.close()


def header_of(body: bytes, **properties: Any) -> bytes:
    """Return the content header of a body."""
    given = Basic.Properties(**properties)
    return bytes(ContentHeader(body_size=len(body), properties=given).marshal())


def properties_of(message: Content) -> Basic.Properties:
    """Return the properties of a message."""
    header = ContentHeader()
    header.unmarshal(message.header)
    return header.properties


def headers_of(message: Content) -> dict[str, Any]:
    """Return the headers of a message."""
    return dict(properties_of(message).headers or {})


async def take(channel: Channel, queue: str) -> Content:
    """Wait for a message in a queue, and take it; it is not acknowledged."""
    arrived: asyncio.Queue[Content] = asyncio.Queue()
    tag = await channel.consume(queue, arrived.put_nowait)
    async with asyncio.timeout(WAIT_S):
        message = await arrived.get()
    await channel.ask(methods.cancel(tag))
    return message
