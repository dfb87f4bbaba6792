"""The HTTP server of a pool manager, at the level of bytes, with a stub for the manager."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
from pathlib import Path
from typing import Any

import pytest
from tests.pool.http_bench import (
    BODY_SIZE_MAX,
    CLOSE,
    HOST,
    JSON,
    TOKEN,
    WAIT_S,
    Manager,
    answer_of,
    ask,
    command,
    connected,
    endpoints_of,
    opened,
    token_file,
)

from requite.errors import TransportError
from requite.pool.inputs import ScaleGroup, SetVersion
from requite.pool.manager import endpoints as endpoints_module
from requite.pool.manager.endpoints import Endpoints


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


# --- the command ----------------------------------------------------------------------------------
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
