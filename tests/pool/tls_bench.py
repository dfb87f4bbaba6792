"""Clients of the HTTP endpoints over TLS, for tests."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, Final
from urllib.parse import quote

from tests.pool.http_bench import (
    HOST,
    Connection,
    Manager,
    answer_of,
)
from tests.support.certificates import Certificates, Shown

from requite.cli.pool.client import Manager as Where
from requite.cli.pool.client import ask
from requite.pool.manager.endpoints import Endpoints

GET: Final = f"GET /ready HTTP/1.1\r\n{HOST}\r\n\r\n".encode()
READY: Final = {"ready": True, "state": "active"}


def showing(shown: Shown, **http: Any) -> Manager:
    """Return a stub manager whose endpoints show a certificate."""
    return Manager(certificate=shown.certificate, key=shown.key, **http)


def at(endpoints: Endpoints, **options: str) -> Where:
    """Return where the endpoints are, with options of TLS."""
    query = "&".join(f"{name}={quote(value)}" for name, value in options.items())
    return Where(f"{endpoints.url}?{query}")


async def ready(where: Where) -> Any:
    """Ask whether the manager is ready, as `requite pool` asks."""
    return await asyncio.to_thread(ask, where, "/ready")


def trusting(certificates: Certificates) -> ssl.SSLContext:
    """Return a context of the `ssl` module that trusts the authority."""
    return ssl.create_default_context(cafile=certificates.ca)


@asynccontextmanager
async def connected(
    endpoints: Endpoints, context: ssl.SSLContext | None = None
) -> AsyncIterator[Connection]:
    """Connect to the port; with TLS, if there is a context."""
    port = int(endpoints.url.rpartition(":")[2])
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    try:
        yield reader, writer
    finally:
        writer.close()
        with suppress(ConnectionError, ssl.SSLError):
            await writer.wait_closed()


async def exchange(connection: Connection, request: bytes = GET) -> int:
    """Send a request; return the status of its answer."""
    reader, writer = connection
    writer.write(request)
    return (await answer_of(reader))[0]
