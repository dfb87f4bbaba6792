"""A pool manager's connection to RabbitMQ, under a test's control.

pamqp, an independent implementation of AMQP, encodes and decodes the message headers.
"""

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
    """Open a connection, and close it at the end of the `with` block."""
    connection = Connection(
        ConnectionSettings(PoolConfig(PoolSection("tests"), rabbitmq=RabbitSection(url)))
    )
    await connection.open()
    try:
        yield connection
    finally:
        await connection.close()


def header_of(body: bytes, **properties: Any) -> bytes:
    """Return the payload of the content header frame for a body with these properties."""
    given = Basic.Properties(**properties)
    return bytes(ContentHeader(body_size=len(body), properties=given).marshal())


def properties_of(message: Content) -> Basic.Properties:
    """Return the properties of a message."""
    header = ContentHeader()
    header.unmarshal(message.header)
    return header.properties


def headers_of(message: Content) -> dict[str, Any]:
    """Return the application headers of a message: its `headers` property."""
    return dict(properties_of(message).headers or {})


async def take(channel: Channel, queue: str) -> Content:
    """Consume one message from a queue and return it, unacknowledged."""
    arrived: asyncio.Queue[Content] = asyncio.Queue()
    tag = await channel.consume(queue, arrived.put_nowait)
    async with asyncio.timeout(WAIT_S):
        message = await arrived.get()
    await channel.ask(methods.cancel(tag))
    return message
