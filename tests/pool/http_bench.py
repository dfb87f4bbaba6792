"""A stub for the manager of a pool behind its real HTTP server, and a client of bytes."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE, STDOUT
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, cast

from requite.pool.config import HttpSection, PoolConfig, PoolSection
from requite.pool.manager.carrier import State
from requite.pool.manager.endpoints import Endpoints
from requite.pool.manager.managed import Managed
from requite.pool.tracker import PoolState

WAIT_S: Final = 20.0
BODY_SIZE_MAX: Final = 1 << 16
HOST: Final = "Host: localhost"
JSON: Final = "Content-Type: application/json"
CLOSE: Final = "Connection: close"
TOKEN: Final = "s3cret-of-operators"
REQUIRE: Final = b'{"key": "a"}'


class Manager:
    """A stub manager without status; its checks end when `may_check` is set."""

    def __init__(self, host: str = "127.0.0.1", port: int = 0, **http: Any) -> None:
        self.config = PoolConfig(PoolSection("core"), http=HttpSection(host, port, **http))
        self.state = State.ACTIVE
        self.workers_max = 8
        self.fed: list[Any] = []
        self.checks = 0
        self.is_checking = asyncio.Event()
        self.may_check = asyncio.Event()

    def feed(self, event: Any) -> None:
        """Record a command."""
        self.fed.append(event)

    def snapshot(self) -> Any:
        """Tell of no groups."""
        return SimpleNamespace(state=PoolState(0, {}))

    async def check(self) -> dict[str, str]:
        """Wait for `may_check`; return a flaw with text that is not ASCII."""
        self.checks += 1
        self.is_checking.set()
        await self.may_check.wait()
        return {"driver": "größer"}

    def poison(self) -> Any:
        """Raise an error that the server does not expect."""
        raise ZeroDivisionError("of the test")


def endpoints_of(manager: Manager) -> Endpoints:
    """Return the HTTP server of a manager, not open yet."""
    return Endpoints(cast(Managed, manager))


Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def opened(endpoints: Endpoints) -> AsyncIterator[Endpoints]:
    """A server, for as long as it is needed."""
    await endpoints.open()
    try:
        yield endpoints
    finally:
        await endpoints.close()


@asynccontextmanager
async def connected(endpoints: Endpoints) -> AsyncIterator[Connection]:
    """Connect to the server; close the connection after the block."""
    if endpoints.url.startswith("unix:"):
        reader, writer = await asyncio.open_unix_connection(endpoints.url.removeprefix("unix:"))
    else:
        host, _, port = endpoints.url.removeprefix("http://").rpartition(":")
        reader, writer = await asyncio.open_connection(host.strip("[]"), int(port))
    try:
        yield reader, writer
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


async def answer_of(reader: asyncio.StreamReader) -> tuple[int, dict[str, str], bytes]:
    """Read one response; return its status, header fields and body."""
    async with asyncio.timeout(WAIT_S):
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        line, *lines = head.strip().split("\r\n")
        fields = {
            name.lower(): value for name, _, value in (each.partition(": ") for each in lines)
        }
        body = await reader.readexactly(int(fields.get("content-length", "0")))
    return int(line.split()[1]), fields, body


async def ask(
    endpoints: Endpoints, line: str, body: bytes = b"", *fields: str
) -> tuple[int, dict[str, str], bytes]:
    """Send one request over a new connection; return the response."""
    names = {each.partition(":")[0] for each in fields}
    usual = [each for each in (HOST, JSON) if each.partition(":")[0] not in names]
    fields = (*fields, *usual, CLOSE, f"Content-Length: {len(body)}")
    async with connected(endpoints) as (reader, writer):
        writer.write("\r\n".join((f"{line} HTTP/1.1", *fields, "", "")).encode() + body)
        return await answer_of(reader)


async def end_of(connection: Connection, received: bytearray | None = None) -> bytes:
    """Return what arrives until the server closes the connection; `received` has it at once."""
    received = bytearray() if received is None else received
    async with asyncio.timeout(WAIT_S):
        with suppress(ConnectionError):
            while data := await connection[0].read(1 << 16):
                received += data
    return bytes(received)


def token_file(folder: Path, text: str = TOKEN + "\n", mode: int = 0o600) -> str:
    """Write a file with a token."""
    path = folder / "token"
    path.write_text(text)
    path.chmod(mode)
    return str(path)


async def command(*words: str) -> tuple[int | None, str]:
    """Run `requite pool`; return its exit code, and all that it printed."""
    run = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "requite.cli", "pool", *words, stdout=PIPE, stderr=STDOUT
    )
    async with asyncio.timeout(WAIT_S):
        said, _ = await run.communicate()
    return run.returncode, said.decode()
