"""The HTTP server of a pool manager: slow requests, and too many connections."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, suppress

import pytest
from tests.pool.http_bench import (
    HOST,
    JSON,
    WAIT_S,
    Manager,
    answer_of,
    ask,
    connected,
    end_of,
)

from requite.pool.manager.endpoints import Endpoints


def get(path: str) -> bytes:
    """Return a request after which the connection stays open."""
    return f"GET {path} HTTP/1.1\r\n{HOST}\r\n\r\n".encode()


def post(path: str, *fields: str) -> bytes:
    """Return the header of a request with a body of 100 bytes."""
    lines = (f"POST {path} HTTP/1.1", *fields, JSON, "Content-Length: 100", "", "")
    return "\r\n".join(lines).encode()


@pytest.mark.parametrize("drips", [False, True])
@pytest.mark.parametrize(
    ("requests", "answers"),
    [
        ([get("/ready")[:-1]], 0),
        ([post("/require", HOST)], 1),
        ([post("/require", "Host: evil.example")], 1),
        ([get("/ready"), b"G"], 1),
        ([get("/ready"), post("/require", HOST)], 2),
        ([get("/ready") + post("/require", HOST)], 2),
    ],
)
async def test_a_slow_request_is_closed_in_time_and_an_idle_connection_is_kept(
    endpoints: Endpoints,
    monkeypatch: pytest.MonkeyPatch,
    requests: list[bytes],
    answers: int,
    drips: bool,
) -> None:
    monkeypatch.setattr("requite.web.connection.REQUEST_S", 0.5)
    async with connected(endpoints) as idle, connected(endpoints) as slow:
        idle[1].write(get("/ready"))
        assert (await answer_of(idle[0]))[0] == 200
        *before, last = requests
        for each in before:
            slow[1].write(each)
            await answer_of(slow[0])
        slow[1].write(last)
        received = bytearray()
        ending = asyncio.create_task(end_of(slow, received))
        while not ending.done():
            await asyncio.wait([ending], timeout=0.02)
            # A byte after the server has closed makes its system drop an answer that is not read.
            if drips and not received:
                slow[1].write(b"x" if b"\r" in last[:-2] else b"G")
        assert ending.result().count(b"HTTP/1.1 ") == answers - len(before)
        idle[1].write(get("/ready"))
        assert (await answer_of(idle[0]))[0] == 200


async def test_of_too_many_connections_the_one_that_is_idle_for_longest_is_closed(
    manager: Manager, endpoints: Endpoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("requite.web.server.CONNECTIONS_MAX", 3)
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
    monkeypatch.setattr("requite.web.server.CONNECTIONS_MAX", 2)
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
    monkeypatch.setattr("requite.web.server.CONNECTIONS_MAX", 1)
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

    monkeypatch.setattr("requite.web.server.CONNECTIONS_MAX", 1)
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
