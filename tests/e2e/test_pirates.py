"""The Pirate patterns on real sockets: clients, queue and workers on one event loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from requite import AsyncClient, LocalViolation, RetryPolicy, Worker, service
from requite.errors import CallTimeout, Cancelled, TransportError
from requite.journal.reader import events
from requite.queue import Queue
from requite.request import Request
from requite.worker import Service

pytestmark = pytest.mark.e2e

ANY = "tcp://127.0.0.1:0"
PATTERNS = pytest.mark.parametrize("protocol", ["simple", "paranoid"])


@service("echo")
async def echo(request: Request) -> list[bytes]:
    return list(request.frames)


@service("size")
def size(request: Request) -> bytes:
    return b"%d" % len(request.body)


@service("count")
async def count(request: Request) -> AsyncIterator[bytes]:
    for number in range(int(request.body)):
        yield b"%d" % number


@service("fail")
async def fail(request: Request) -> bytes:
    raise ValueError("it cannot be")


@pytest.mark.parametrize("bind", ["pirate://127.0.0.1:0", "pirate+ipc://{}/s", "pirate+inproc://*"])
async def test_a_server_over_each_transport(bind: str, tmp_path: Path) -> None:
    async with (
        Worker(echo, bind=bind.format(tmp_path)) as server,
        AsyncClient(server.addresses[0]) as client,
    ):
        bodies = [[b"%d" % n, b"", b"x" * n * 1000] for n in range(50)]
        replies = await asyncio.gather(*(client.call(body) for body in bodies))
        assert [list(reply.frames) for reply in replies] == bodies


@PATTERNS
@pytest.mark.parametrize("served", [echo, size], ids=["coroutine", "function"])
async def test_calls_through_a_queue(protocol: str, served: Service) -> None:
    async with Queue(ANY, ANY, protocol=protocol) as queue:
        assert queue.back_addresses[0].endswith(f"?protocol={protocol}")
        async with (
            Worker(queue.back_addresses[0], served, capacity=3),
            Worker(queue.back_addresses[0], served),
            AsyncClient(queue.front_addresses[0]) as client,
        ):
            replies = await asyncio.gather(*(client.call(b"1234567") for _ in range(100)))
            wanted = b"7" if served is size else b"1234567"
            assert {reply.body for reply in replies} == {wanted}
            seen = queue.snapshot()
            assert (seen.requests, seen.replies, seen.dropped) == (100, 100, {})


@PATTERNS
async def test_a_request_waits_for_the_first_worker(protocol: str) -> None:
    async with (
        Queue(ANY, ANY, protocol=protocol) as queue,
        AsyncClient(queue.front_addresses[0]) as client,
    ):
        call = asyncio.ensure_future(client.call(b"x", timeout=20))
        while not queue.snapshot().waiting:  # noqa: ASYNC110 - there is no event for it
            await asyncio.sleep(0.001)
        async with Worker(queue.back_addresses[0], echo):
            assert (await call).body == b"x"


async def test_partial_replies_are_joined() -> None:
    async with (
        Worker(count, bind="pirate+inproc://count") as server,
        AsyncClient(server.addresses[0]) as client,
    ):
        assert (await client.call(b"4")).body == b"0123"


@PATTERNS
async def test_a_failing_request_is_retried_and_then_reported(
    protocol: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    async with (
        Queue(ANY, ANY, protocol=protocol) as queue,
        Worker(queue.back_addresses[0], fail),
        AsyncClient(queue.front_addresses[0]) as client,
    ):
        with pytest.raises(TransportError, match="sent 3 times") as raised:
            await client.call(b"x", timeout=20)
        assert raised.value.may_have_executed
        with pytest.raises(TransportError, match="not idempotent"):
            await client.call(b"x", timeout=20, idempotent=False)
    assert "it cannot be" in caplog.text


async def test_a_timeout_of_the_call_cancels_its_handler() -> None:
    interrupted = asyncio.Event()

    @service("sleep")
    async def sleep(_request: Request) -> bytes:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            interrupted.set()
            raise
        return b""

    async with (
        Worker(sleep, bind="pirate://127.0.0.1:0") as server,
        AsyncClient(server.addresses[0]) as client,
    ):
        with pytest.raises(CallTimeout, match="sent once"):
            await client.call(b"x", timeout=0.2)
        async with asyncio.timeout(10):
            await interrupted.wait()


async def test_the_second_server_takes_over_from_the_first() -> None:
    async with Worker(echo, bind="pirate://127.0.0.1:0") as second:
        first = Worker(echo, bind="pirate://127.0.0.1:0")
        await first.start()
        places = [url.removeprefix("pirate://") for url in (*first.addresses, *second.addresses)]
        async with AsyncClient(f"pirate://{','.join(places)}") as client:
            assert (await client.call(b"1")).attempts == 1
            await first.close()
            assert (await client.call(b"2", timeout=20)).body == b"2"


async def test_closing_a_client_ends_its_calls() -> None:
    async with Queue(ANY, ANY) as queue:
        client = AsyncClient(queue.front_addresses[0])
        call = asyncio.ensure_future(client.call(b"x"))
        while not queue.snapshot().waiting:  # noqa: ASYNC110 - there is no event for it
            await asyncio.sleep(0.001)
        await client.close()
        with pytest.raises(Cancelled):
            await call


@PATTERNS
async def test_a_queue_and_its_workers_drain(protocol: str) -> None:
    gate = asyncio.Event()
    began = asyncio.Event()

    @service("hold")
    async def hold(request: Request) -> bytes:
        began.set()
        await gate.wait()
        return request.body

    async with Queue(ANY, ANY, protocol=protocol) as queue:
        worker = Worker(queue.back_addresses[0], hold)
        await worker.start()
        async with AsyncClient(queue.front_addresses[0]) as client:
            call = asyncio.ensure_future(client.call(b"x", timeout=20))
            await began.wait()
            draining = [asyncio.ensure_future(each.drain()) for each in (queue, worker)]
            await asyncio.sleep(0)
            gate.set()
            assert (await call).body == b"x"
            await asyncio.gather(*draining)


async def test_a_queue_starts_once() -> None:
    queue = Queue(ANY, ANY)
    assert "paranoid" in repr(queue)
    async with queue:
        with pytest.raises(LocalViolation):
            await queue.start()


@PATTERNS
async def test_calls_are_in_the_journals_of_client_queue_and_workers(
    protocol: str, tmp_path: Path
) -> None:
    async with (
        Queue(ANY, ANY, protocol=protocol, journal=tmp_path) as queue,
        Worker(queue.back_addresses[0], echo, capacity=2, journal=tmp_path),
        AsyncClient(
            queue.front_addresses[0], journal=tmp_path, retry=RetryPolicy(attempts=2)
        ) as client,
    ):
        await asyncio.gather(*(client.call(b"%d" % n) for n in range(20)))
    kinds = [(each.role, each.kind) for each in events(tmp_path)]
    for role, kind in (("client", "answered"), ("broker", "answered"), ("worker", "finished")):
        assert kinds.count((role, kind)) == 20
    ids = {each.request_id for each in events(tmp_path) if each.kind == "finished"}
    assert len(ids) == 20
    workers = {each.worker for each in events(tmp_path) if each.kind == "dispatched"}
    assert workers == {each.worker for each in events(tmp_path) if each.kind == "worker_joined"}
