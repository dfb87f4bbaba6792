"""The HTTP server of a pool manager, at the level of bytes, with a stub for the manager."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import stat
import sys
from asyncio.subprocess import PIPE, STDOUT
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, cast

import pytest

from requite.errors import ConfigurationError, TransportError
from requite.pool.config import HttpSection, PoolConfig, PoolSection
from requite.pool.inputs import ScaleGroup, SetVersion
from requite.pool.manager import endpoints as endpoints_module
from requite.pool.manager import http_connection, http_server
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
            b'{"error": "the body is not JSON: Expecting property name enclosed in double quotes:'
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


@pytest.mark.parametrize(
    ("path", "body", "error"),
    [
        ("/require", b"[" * 60_000, "the body is nested too deeply"),
        ("/poison/retry", b'{"ids": [{}]}', "ids must be a list of strings"),
        ("/poison/retry", b'{"ids": [["a"]]}', "ids must be a list of strings"),
        ("/version", rb'{"version": "\ud800"}', "version cannot be encoded in UTF-8"),
        ("/version", rb'{"version": "\u0000"}', "version must be printable"),
        ("/version", rb'{"version": "1\n2"}', "version must be printable"),
        (
            "/version",
            b'{"version": "%s"}' % (b"x" * 256),
            "version has 256 bytes; the maximum is 255",
        ),
        (
            "/version",
            b'{"version": "%s"}' % (b"\xc3\xbc" * 128),
            "version has 256 bytes; the maximum is 255",
        ),
        ("/release", rb'{"key": "\ud800"}', "key cannot be encoded in UTF-8"),
        ("/release", b'{"key": "%s"}' % (b"x" * 60_000), "key has 60000 bytes; the maximum is 255"),
        ("/drain", rb'{"worker": "\ud800"}', "worker cannot be encoded in UTF-8"),
    ],
)
async def test_a_body_that_makes_no_sense_is_answered_with_a_sentence(
    manager: Manager,
    endpoints: Endpoints,
    caplog: pytest.LogCaptureFixture,
    path: str,
    body: bytes,
    error: str,
) -> None:
    status, _, said = await ask(endpoints, f"POST {path}", body)
    assert (status, json.loads(said)) == (400, {"error": error})
    assert (manager.fed, caplog.records) == ([], [])


async def test_a_version_may_be_as_long_as_a_name_in_rabbitmq(
    manager: Manager, endpoints: Endpoints
) -> None:
    version = "ü" * 127 + "1"
    body = json.dumps({"version": version}).encode()
    assert (await ask(endpoints, "POST /version", body))[0] == 202
    assert manager.fed == [SetVersion(version)]


async def test_requests_of_health_share_a_check(
    manager: Manager, endpoints: Endpoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoints_module, "CHECKED_S", WAIT_S)
    async with asyncio.TaskGroup() as group:
        asking = [group.create_task(ask(endpoints, "GET /health")) for _ in range(20)]
        await manager.is_checking.wait()
        manager.may_check.set()
    assert [each.result()[0] for each in asking] == 20 * [503]
    assert (await ask(endpoints, "GET /health"))[0] == 503
    assert manager.checks == 1
    monkeypatch.setattr(endpoints_module, "CHECKED_S", 0.0)
    assert (await ask(endpoints, "GET /health"))[0] == 503
    assert manager.checks == 2


async def test_a_failed_check_is_not_kept(
    manager: Manager, endpoints: Endpoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail() -> dict[str, str]:
        raise ZeroDivisionError

    with monkeypatch.context() as patch:
        patch.setattr(manager, "check", fail)
        assert (await ask(endpoints, "GET /health"))[0] == 500
    manager.may_check.set()
    assert (await ask(endpoints, "GET /health"))[0] == 503


async def test_a_head_request_gets_header_fields_without_a_body(endpoints: Endpoints) -> None:
    async with asyncio.timeout(WAIT_S), connected(endpoints) as (reader, writer):
        writer.write(f"HEAD /ready HTTP/1.1\r\n{HOST}\r\n{CLOSE}\r\n\r\n".encode())
        head = await reader.read()
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert head.endswith(b"\r\n\r\n")


async def test_a_body_over_the_limit_is_not_read_to_its_end(
    manager: Manager, endpoints: Endpoints
) -> None:
    fields = f"{HOST}\r\n{JSON}\r\nTransfer-Encoding: chunked"
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
        fields = f"{HOST}\r\n{JSON}\r\nContent-Length: 100"
        writer.write(f"POST /require HTTP/1.1\r\n{fields}\r\n\r\n{{".encode())
        await writer.drain()
    assert (await ask(endpoints, "GET /ready"))[0] == 200
    await endpoints.close()
    assert not manager.fed
    assert not caplog.records


# --- who may ask ----------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("line", "field", "status", "text"),
    [
        ("POST /version", "Host: evil.example", 421, "http.hosts"),
        ("POST /version", "Host: evil.example:8670", 421, "evil.example"),
        ("POST /version", "Host: localhost.evil.example", 421, "http.hosts"),
        ("POST /version", "Host: 127.0.0.1.evil.example", 421, "http.hosts"),
        ("POST /version", "Host: 192.0.2.1", 421, "http.hosts"),
        ("POST /version", "Host: localhost:1:2", 421, "http.hosts"),
        ("POST /version", "Host: [::1", 421, "http.hosts"),
        ("POST /version", "Host: ", 421, "http.hosts"),
        ("GET /status", "Host: evil.example", 421, "http.hosts"),
        ("GET /nowhere", "Host: evil.example", 421, "http.hosts"),
        ("POST /version", "Origin: https://evil.example", 403, "evil.example"),
        ("POST /version", "Origin: http://localhost.evil.example", 403, "evil.example"),
        ("POST /version", "Origin: null", 403, "null"),
        ("POST /version", "Origin: localhost", 403, "localhost"),
        ("POST /version", "Origin: ", 403, "http.hosts"),
        ("GET /status", "Origin: https://evil.example", 403, "http.hosts"),
        ("POST /version", "Content-Type: text/plain", 415, "application/json"),
        ("POST /version", "Content-Type: text/plain; application/json", 415, "application/json"),
        ("POST /version", "Content-Type: application/x-www-form-urlencoded", 415, "json"),
        ("POST /version", "Content-Type: ", 415, "application/json"),
    ],
)
async def test_a_web_page_cannot_command_a_manager(
    manager: Manager, endpoints: Endpoints, line: str, field: str, status: int, text: str
) -> None:
    told, _, said = await ask(endpoints, line, b'{"version": "evil"}', field)
    assert (told, manager.fed) == (status, [])
    assert text in json.loads(said)["error"]


async def test_a_request_is_refused_before_its_body_arrives_and_closed_after_it(
    endpoints: Endpoints,
) -> None:
    fields = f"Host: evil.example\r\n{JSON}\r\n{CLOSE}\r\nContent-Length: {len(REQUIRE)}"
    async with connected(endpoints) as (reader, writer):
        writer.write(f"POST /require HTTP/1.1\r\n{fields}\r\n\r\n".encode())
        assert (await answer_of(reader))[0] == 421
        assert (await ask(endpoints, "GET /ready"))[0] == 200
        assert not reader.at_eof()
        writer.write(REQUIRE)
        assert await end_of((reader, writer)) == b""


async def test_a_refused_body_that_is_too_large_is_not_read_to_its_end(
    endpoints: Endpoints,
) -> None:
    fields = f"Host: evil.example\r\n{JSON}\r\nContent-Length: {4 * BODY_SIZE_MAX}"
    async with connected(endpoints) as (reader, writer):
        writer.write(f"POST /require HTTP/1.1\r\n{fields}\r\n\r\n".encode())
        writer.write(b" " * 2 * BODY_SIZE_MAX)  # and no more
        assert (await answer_of(reader))[0] == 421


async def test_a_request_without_a_host_is_refused(endpoints: Endpoints) -> None:
    async with connected(endpoints) as (reader, writer):
        writer.write(b"GET /ready HTTP/1.0\r\n\r\n")
        assert (await answer_of(reader))[0] == 421


@pytest.mark.parametrize(
    "field",
    [
        "Host: LOCALHOST",
        "Host: localhost:1",  # the port of a tunnel
        "Host: 127.0.0.1",
        "Host: [::1]:8670",
        "Host: pool.example:8670",
        "Host: Pool.Example",
        "Origin: http://localhost:8670",
        "Origin: https://pool.example",
        "Content-Type: application/JSON; charset=utf-8",
    ],
)
async def test_loopback_and_listed_hosts_are_served(field: str) -> None:
    manager = Manager(hosts=("pool.example",))
    async with opened(endpoints_of(manager)) as endpoints:
        assert (await ask(endpoints, "POST /require", REQUIRE, field))[0] == 202
    assert manager.fed


def token_file(folder: Path, text: str = TOKEN + "\n", mode: int = 0o600) -> str:
    """Write a file with a token."""
    path = folder / "token"
    path.write_text(text)
    path.chmod(mode)
    return str(path)


@pytest.mark.parametrize(
    "path",
    ["/poison/retry", "/scale", "/require", "/release", "/drain", "/version"],
)
@pytest.mark.parametrize(
    "field",
    ["X-None: x", "Authorization: Bearer wrong", f"Authorization: Basic {TOKEN}"],
)
async def test_with_a_token_every_change_requires_it(tmp_path: Path, path: str, field: str) -> None:
    manager = Manager(token_file=token_file(tmp_path))
    async with opened(endpoints_of(manager)) as endpoints:
        status, fields, said = await ask(endpoints, f"POST {path}", REQUIRE, field)
    assert (status, fields["www-authenticate"], manager.fed) == (401, "Bearer", [])
    assert "--token-file" in json.loads(said)["error"]
    assert TOKEN.encode() not in said


async def test_the_token_admits_changes_and_queries_need_none(tmp_path: Path) -> None:
    manager = Manager(token_file=token_file(tmp_path))
    async with opened(endpoints_of(manager)) as endpoints:
        bearer = f"Authorization: bearer {TOKEN}"
        assert (await ask(endpoints, "POST /require", REQUIRE, bearer))[0] == 202
        assert (await ask(endpoints, "GET /ready"))[0] == 200
    assert len(manager.fed) == 1


@pytest.mark.parametrize(
    ("text", "mode", "complaint"),
    [
        (TOKEN, 0o644, "chmod 600"),
        (TOKEN, 0o640, "chmod 600"),
        ("", 0o600, "is empty"),
        (" \n", 0o600, "is empty"),
        ("two words", 0o600, "one token"),
        ("größer", 0o600, "one token"),
    ],
)
async def test_a_file_that_others_read_or_that_has_no_token_is_refused(
    tmp_path: Path, text: str, mode: int, complaint: str
) -> None:
    path = token_file(tmp_path, text, mode)
    with pytest.raises(ConfigurationError, match=complaint) as caught:
        endpoints_of(Manager(token_file=path))
    assert str(caught.value).startswith(f"http.token_file: {path}")
    assert TOKEN not in str(caught.value)


async def test_a_token_file_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"http.token_file: .*nowhere"):
        endpoints_of(Manager(token_file=str(tmp_path / "nowhere")))


async def test_all_addresses_need_a_token_and_serve_each_by_its_own_name(tmp_path: Path) -> None:
    manager = Manager(host="0.0.0.0", token_file=token_file(tmp_path), insecure=True)
    async with opened(endpoints_of(manager)) as endpoints:
        assert (await ask(endpoints, "GET /ready", b"", "Host: 127.0.0.1"))[0] == 200
        assert (await ask(endpoints, "GET /ready", b"", "Host: evil.example"))[0] == 421


async def test_a_unix_socket_is_for_its_owner_and_leaves_with_the_manager(tmp_path: Path) -> None:
    path = tmp_path / "pool.sock"
    manager = Manager(bind=f"unix:{path}")
    async with opened(endpoints_of(manager)) as endpoints:
        assert endpoints.url == f"unix:{path}"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert (await ask(endpoints, "POST /require", REQUIRE))[0] == 202
        assert (await ask(endpoints, "POST /require", REQUIRE, "Host: evil.example"))[0] == 421
        with pytest.raises(TransportError, match=r"http\.bind: cannot listen at .*pool\.sock"):
            await endpoints_of(Manager(bind=f"unix:{path}")).open()
        assert path.exists()
    assert not path.exists()
    async with opened(endpoints_of(manager)) as endpoints:  # and another one may follow
        assert (await ask(endpoints, "GET /ready"))[0] == 200
    assert len(manager.fed) == 1


# --- slow requests, and too many connections ------------------------------------------------------
def get(path: str) -> bytes:
    """Return a request after which the connection stays open."""
    return f"GET {path} HTTP/1.1\r\n{HOST}\r\n\r\n".encode()


def post(path: str, *fields: str) -> bytes:
    """Return the header of a request with a body of 100 bytes."""
    lines = (f"POST {path} HTTP/1.1", *fields, JSON, "Content-Length: 100", "", "")
    return "\r\n".join(lines).encode()


async def end_of(connection: Connection) -> bytes:
    """Return what arrives until the server closes the connection."""
    async with asyncio.timeout(WAIT_S):
        try:
            return await connection[0].read()
        except ConnectionError:
            return b""


@pytest.mark.parametrize("drips", [False, True])
@pytest.mark.parametrize(
    ("requests", "answers"),
    [
        ([get("/ready")[:-1]], 0),
        ([post("/require", HOST)], 0),
        ([post("/require", "Host: evil.example")], 1),
        ([get("/ready"), b"G"], 1),
        ([get("/ready"), post("/require", HOST)], 1),
        ([get("/ready") + post("/require", HOST)], 1),
    ],
)
async def test_a_slow_request_is_closed_in_time_and_an_idle_connection_is_kept(
    endpoints: Endpoints,
    monkeypatch: pytest.MonkeyPatch,
    requests: list[bytes],
    answers: int,
    drips: bool,
) -> None:
    monkeypatch.setattr(http_connection, "REQUEST_S", 0.5)
    async with connected(endpoints) as idle, connected(endpoints) as slow:
        idle[1].write(get("/ready"))
        assert (await answer_of(idle[0]))[0] == 200
        *before, last = requests
        for each in before:
            slow[1].write(each)
            await answer_of(slow[0])
        slow[1].write(last)
        ending = asyncio.create_task(end_of(slow))
        while not ending.done():
            await asyncio.wait([ending], timeout=0.02)
            if drips:
                slow[1].write(b"x" if b"\r" in last[:-2] else b"G")
        assert ending.result().count(b"HTTP/1.1 ") == answers - len(before)
        idle[1].write(get("/ready"))
        assert (await answer_of(idle[0]))[0] == 200


async def test_of_too_many_connections_the_one_that_is_idle_for_longest_is_closed(
    manager: Manager, endpoints: Endpoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server, "CONNECTIONS_MAX", 3)
    async with AsyncExitStack() as stack:
        first, second, third = [
            await stack.enter_async_context(connected(endpoints)) for _ in range(3)
        ]
        first[1].write(get("/health"))
        await manager.is_checking.wait()
        for reader, writer in (third, second):
            writer.write(get("/ready"))
            assert (await answer_of(reader))[0] == 200
        assert (await ask(endpoints, "GET /ready"))[0] == 200
        assert await end_of(third) == b""
        manager.may_check.set()
        assert (await answer_of(first[0]))[0] == 503
        second[1].write(get("/ready"))
        assert (await answer_of(second[0]))[0] == 200


@pytest.mark.parametrize(("begin", "more"), [(b"GET /re", b"ady"), (post("/require", HOST), b"{")])
async def test_bytes_of_a_request_do_not_make_its_connection_active(
    endpoints: Endpoints, monkeypatch: pytest.MonkeyPatch, begin: bytes, more: bytes
) -> None:
    monkeypatch.setattr(http_server, "CONNECTIONS_MAX", 2)
    async with connected(endpoints) as slow, connected(endpoints) as (reader, writer):
        slow[1].write(begin)
        writer.write(get("/ready"))
        assert (await answer_of(reader))[0] == 200
        slow[1].write(more)
        assert (await ask(endpoints, "GET /ready"))[0] == 200
        assert await end_of(slow) == b""
        writer.write(get("/ready"))
        assert (await answer_of(reader))[0] == 200


async def test_without_an_idle_connection_one_too_many_is_not_accepted(
    manager: Manager, endpoints: Endpoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server, "CONNECTIONS_MAX", 1)
    async with connected(endpoints) as (reader, writer):
        writer.write(get("/health"))
        await manager.is_checking.wait()
        async with connected(endpoints) as another:
            assert await end_of(another) == b""
        manager.may_check.set()
        assert (await answer_of(reader))[0] == 503


async def test_a_peer_that_reads_no_answers_is_closed_for_a_new_connection(
    manager: Manager, endpoints: Endpoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def check() -> dict[str, str]:
        return {"driver": "x" * (1 << 20)}

    monkeypatch.setattr(http_server, "CONNECTIONS_MAX", 1)
    monkeypatch.setattr(manager, "check", check)
    async with connected(endpoints) as (_, writer):
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(get("/health") * 50)
        status = 0
        async with asyncio.timeout(WAIT_S):
            while status != 200:  # until the server has filled the buffers
                with suppress(ConnectionError, asyncio.IncompleteReadError):
                    status, *_ = await ask(endpoints, "GET /ready")
        assert status == 200


# --- the command ----------------------------------------------------------------------------------
async def command(*words: str) -> tuple[int | None, str]:
    """Run `requite pool`; return its exit code, and all that it printed."""
    run = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "requite.cli", "pool", *words, stdout=PIPE, stderr=STDOUT
    )
    async with asyncio.timeout(WAIT_S):
        said, _ = await run.communicate()
    return run.returncode, said.decode()


@pytest.mark.e2e
async def test_the_command_has_the_token_and_reaches_a_unix_socket(tmp_path: Path) -> None:
    token = token_file(tmp_path)
    manager = Manager(bind=f"unix:{tmp_path}/pool.sock", token_file=token)
    scale = ("scale", "a", "2", "--manager", f"unix:{tmp_path}/pool.sock")
    async with opened(endpoints_of(manager)):
        code, said = await command(*scale)
        assert (code, "requires its token" in said, manager.fed) == (2, True, [])
        assert await command(*scale, "--token-file", token) == (0, "")
        assert manager.fed == [ScaleGroup("a", 2)]
    code, said = await command(*scale, "--token-file", token)
    assert (code, f"no pool manager answers at unix:{tmp_path}/pool.sock" in said) == (5, True)
    token_file(tmp_path, mode=0o644)
    code, said = await command(*scale, "--token-file", token)
    assert (code, "chmod 600" in said, TOKEN in said) == (2, True, False)


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
