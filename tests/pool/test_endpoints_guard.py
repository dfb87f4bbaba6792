"""The HTTP server of a pool manager: who may ask it, from where, and with which token."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest
from tests.pool.http_bench import (
    BODY_SIZE_MAX,
    CLOSE,
    JSON,
    REQUIRE,
    TOKEN,
    Manager,
    answer_of,
    ask,
    connected,
    end_of,
    endpoints_of,
    opened,
    token_file,
)

from requite.errors import ConfigurationError, TransportError
from requite.pool.manager.endpoints import Endpoints


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
        ("GET /status", "Sec-Fetch-Site: cross-site", 403, "pages of other sites"),
        ("POST /version", "Sec-Fetch-Site: same-site", 403, "pages of other sites"),
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
