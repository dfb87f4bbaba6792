"""The HTTP server of a pool manager, at the level of bytes, with a stub for the manager."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, cast

import pytest

from requite.errors import TransportError
from requite.pool.config import HttpSection, PoolConfig, PoolSection
from requite.pool.manager.carrier import State
from requite.pool.manager.endpoints import Endpoints
from requite.pool.manager.managed import Managed

WAIT_S: Final = 20.0
BODY_SIZE_MAX: Final = 1 << 16
CLOSE: Final = "Connection: close"


class Manager:
    """A stub manager without status; its check ends when `may_check` is set."""

    def __init__(self, host: str = "127.0.0.1", port: int = 0) -> None:
        self.config = PoolConfig(PoolSection("core"), http=HttpSection(host, port))
        self.state = State.ACTIVE
        self.workers_max = 8
        self.fed: list[Any] = []
        self.is_checking = asyncio.Event()
        self.may_check = asyncio.Event()

    def feed(self, event: Any) -> None:
        """Record a command."""
        self.fed.append(event)

    async def check(self) -> dict[str, str]:
        """Wait for `may_check`; return a flaw with text that is not ASCII."""
        self.is_checking.set()
        await self.may_check.wait()
        return {"driver": "größer"}

    def poison(self) -> Any:
        """Raise an error that the server does not expect."""
        raise ZeroDivisionError("of the test")


def endpoints_of(manager: Manager) -> Endpoints:
    """Return the HTTP server of a manager, not open yet."""
    return Endpoints(cast(Managed, manager))


@pytest.fixture
def manager() -> Manager:
    """A stub manager whose server listens on a free port."""
    return Manager()


@pytest.fixture
async def endpoints(manager: Manager) -> AsyncIterator[Endpoints]:
    """The open HTTP server of the stub manager."""
    endpoints = endpoints_of(manager)
    await endpoints.open()
    try:
        yield endpoints
    finally:
        await endpoints.close()


Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def connected(endpoints: Endpoints) -> AsyncIterator[Connection]:
    """Connect to the server; close the connection after the block."""
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
    fields = (*fields, "Host: test", CLOSE, f"Content-Length: {len(body)}")
    async with connected(endpoints) as (reader, writer):
        writer.write("\r\n".join((f"{line} HTTP/1.1", *fields, "", "")).encode() + body)
        return await answer_of(reader)


@pytest.mark.parametrize(
    ("line", "body", "status", "content_type", "text"),
    [
        (
            "GET /ready",
            b"",
            200,
            "application/json; charset=utf-8",
            b'{"ready": true, "state": "active"}',
        ),
        (
            "POST /require",
            b'{"key": "a"}',
            202,
            "application/json; charset=utf-8",
            b'{"accepted": true}',
        ),
        (
            "POST /scale",
            b"{",
            400,
            "application/json; charset=utf-8",
            b'{"error": "no JSON: Expecting property name enclosed in double quotes:'
            b' line 1 column 2 (char 1)"}',
        ),
        ("GET /nowhere", b"", 404, "text/plain; charset=utf-8", b"404: Not Found"),
        ("GET /ready/", b"", 404, "text/plain; charset=utf-8", b"404: Not Found"),
        ("POST /ready", b"", 405, "text/plain; charset=utf-8", b"405: Method Not Allowed"),
    ],
)
async def test_responses(
    endpoints: Endpoints, line: str, body: bytes, status: int, content_type: str, text: bytes
) -> None:
    code, fields, said = await ask(endpoints, line, body)
    assert (code, said) == (status, text)
    assert fields["content-type"] == content_type


async def test_a_head_request_gets_header_fields_without_a_body(endpoints: Endpoints) -> None:
    async with asyncio.timeout(WAIT_S), connected(endpoints) as (reader, writer):
        writer.write(f"HEAD /ready HTTP/1.1\r\nHost: test\r\n{CLOSE}\r\n\r\n".encode())
        head = await reader.read()
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert head.endswith(b"\r\n\r\n")


async def test_a_body_over_the_limit_is_not_read_to_its_end(
    manager: Manager, endpoints: Endpoints
) -> None:
    fields = "Host: test\r\nTransfer-Encoding: chunked"
    chunk = b"%x\r\n%s\r\n" % (BODY_SIZE_MAX // 2, b" " * (BODY_SIZE_MAX // 2))
    async with connected(endpoints) as (reader, writer):
        writer.write(f"POST /require HTTP/1.1\r\n{fields}\r\n\r\n".encode())
        writer.write(3 * chunk)  # without the last chunk
        assert (await answer_of(reader))[0] == 413
    assert not manager.fed


async def test_an_unexpected_error_is_500_and_logged(
    endpoints: Endpoints, caplog: pytest.LogCaptureFixture
) -> None:
    status, _, said = await ask(endpoints, "GET /poison")
    assert status == 500
    assert b"of the test" not in said
    assert "ZeroDivisionError: of the test" in caplog.text


async def test_a_client_that_disconnects_within_a_request_is_not_logged(
    manager: Manager, endpoints: Endpoints, caplog: pytest.LogCaptureFixture
) -> None:
    async with connected(endpoints) as (_, writer):
        writer.write(b"POST /require HTTP/1.1\r\nHost: test\r\nContent-Length: 100\r\n\r\n{")
        await writer.drain()
    assert (await ask(endpoints, "GET /ready"))[0] == 200
    await endpoints.close()
    assert not manager.fed
    assert not caplog.records


# --- opening and closing --------------------------------------------------------------------------
async def test_close_answers_pending_requests_and_accepts_no_new_ones(
    manager: Manager, endpoints: Endpoints
) -> None:
    asking = asyncio.create_task(ask(endpoints, "GET /health"))
    async with asyncio.timeout(WAIT_S):
        await manager.is_checking.wait()
        async with connected(endpoints) as (idle, _):  # an idle connection does not delay closing
            closing = asyncio.create_task(endpoints.close())
            assert await idle.read() == b""
        with pytest.raises(OSError):  # noqa: PT011 - refused, or reset
            await ask(endpoints, "GET /ready")
        assert not closing.done()
        manager.may_check.set()
        status, _, said = await asking
        await closing
    flaws = {"driver": "größer"}
    assert (status, json.loads(said)) == (
        503,
        {"healthy": False, "state": "active", "flaws": flaws},
    )
    assert said.isascii()


async def test_close_works_before_open_right_after_it_and_twice(manager: Manager) -> None:
    await endpoints_of(manager).close()
    endpoints = endpoints_of(manager)
    async with asyncio.timeout(WAIT_S):
        await endpoints.open()
        await endpoints.close()
        await endpoints.close()


async def test_opening_leaves_signal_handlers_unchanged(manager: Manager) -> None:
    def handlers() -> list[Any]:
        return [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]

    before = handlers()
    endpoints = endpoints_of(manager)
    await endpoints.open()
    try:
        assert (await ask(endpoints, "GET /ready"))[0] == 200  # the server is running
        assert handlers() == before
    finally:
        await endpoints.close()


async def test_a_port_that_is_taken_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(TransportError) as caught:
            await endpoints_of(Manager(port=port)).open()
    said = str(caught.value)
    assert said.startswith(f"http.port: cannot listen at 127.0.0.1:{port}: ")
    assert "address already in use" in said


async def test_a_host_name_with_two_addresses_is_served() -> None:
    endpoints = endpoints_of(Manager(host="localhost"))
    await endpoints.open()
    try:
        assert (await ask(endpoints, "GET /ready"))[0] == 200
    finally:
        await endpoints.close()


async def test_an_ipv6_address_is_in_brackets() -> None:
    endpoints = endpoints_of(Manager(host="::1"))
    try:
        await endpoints.open()
    except TransportError:
        pytest.skip("no IPv6 here")
    try:
        assert endpoints.url.startswith("http://[::1]:")
        assert (await ask(endpoints, "GET /ready"))[0] == 200
    finally:
        await endpoints.close()
