"""`Worker` with a real broker: concurrency and cancellation of handlers."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator

import pytest
from tests.e2e.cluster import WAIT_S, Cluster, until

from requite import (
    CallTimeout,
    LocalViolation,
    Request,
    service,
)

pytestmark = pytest.mark.e2e


# --- concurrency ----------------------------------------------------------------------------------
@pytest.mark.parametrize("in_thread", [False, True])
async def test_waiting_handlers_run_concurrently_up_to_the_capacity(cluster, in_thread):
    together = 4
    barrier = threading.Barrier(together) if in_thread else asyncio.Barrier(together)

    def meet(request: Request) -> bytes:
        barrier.wait(WAIT_S)  # type: ignore[call-arg,unused-coroutine]
        return b"met"

    async def ameet(request: Request) -> bytes:
        await barrier.wait()  # type: ignore[misc]
        return b"met"

    await cluster.worker(service("it")(meet if in_thread else ameet), capacity=together)
    client = await cluster.client()
    replies = await asyncio.gather(*(client.call(b"") for _ in range(3 * together)))
    assert {reply.body for reply in replies} == {b"met"}


async def test_no_more_handlers_run_at_a_time_than_the_capacity(cluster):
    running, most = 0, 0

    @service("it")
    async def busy(request: Request) -> bytes:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.001)
        running -= 1
        return b""

    await cluster.worker(busy, capacity=3)
    client = await cluster.client()
    await asyncio.gather(*(client.call(b"") for _ in range(50)))
    assert most == 3


async def test_a_handler_runs_in_a_task(cluster):
    seen: list[object] = []

    @service("it")
    async def structured(request: Request) -> bytes:
        seen.append(asyncio.current_task())
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await asyncio.Event().wait()
        async with asyncio.TaskGroup() as group:
            parts = [group.create_task(asyncio.sleep(0, b"%d" % n)) for n in range(3)]
        return b"".join(part.result() for part in parts)

    await cluster.worker(structured)
    client = await cluster.client()
    for _ in range(3):
        assert (await client.call(b"")).body == b"012"
    assert None not in seen


async def test_a_slow_handler_does_not_delay_quick_ones(cluster):
    release = asyncio.Event()

    @service("it")
    async def sometimes_slow(request: Request) -> bytes:
        if request.body == b"slow":
            await release.wait()
        return request.body

    await cluster.worker(sometimes_slow, capacity=2)
    client = await cluster.client()
    slow = client.start(b"slow")
    for _ in range(10):
        assert (await client.call(b"quick")).body == b"quick"
    release.set()
    assert (await slow).body == b"slow"


# --- cancel and deadline --------------------------------------------------------------------------
async def test_a_cancelled_call_cancels_its_handler_and_frees_the_slot(cluster):
    log: list[str] = []

    @service("it")
    async def patient(request: Request) -> bytes:
        if request.body == b"quick":
            return b"quick"
        log.append("began")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            log.append("interrupted")
            raise
        return b""

    await cluster.worker(patient, capacity=1)
    client = await cluster.client()
    for n in range(3):
        call = client.start(b"")
        await until(lambda n=n: len(log) == 2 * n + 1)
        call.cancel()
        await until(lambda n=n: len(log) == 2 * n + 2)
    assert log == ["began", "interrupted"] * 3
    assert (await client.call(b"quick")).body == b"quick"


async def test_a_deadline_cancels_the_handler_and_waiting_requests_never_start(cluster):
    started: list[bytes] = []

    @service("it")
    async def patient(request: Request) -> bytes:
        started.append(request.body)
        if request.body == b"last":
            return b"here"
        await asyncio.Event().wait()
        return b""

    await cluster.worker(patient, capacity=1)
    client = await cluster.client()
    calls = [client.call(b"%d" % n, timeout=1.5) for n in range(3)]
    errors = await asyncio.gather(*calls, return_exceptions=True)
    assert all(isinstance(error, CallTimeout) for error in errors)
    assert (await client.call(b"last")).body == b"here"
    assert started == [b"0", b"last"]


async def test_a_cancelled_handler_may_clean_up(cluster):
    @service("it")
    async def tidy(request: Request) -> bytes:
        if request.body == b"next":
            return b"next"
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.01)
        return b""

    await cluster.worker(tidy, capacity=1)
    client = await cluster.client()
    with pytest.raises(CallTimeout):
        await client.call(b"", timeout=0.1)
    assert (await client.call(b"next")).body == b"next"


async def test_an_abandoned_thread_ends_and_then_serves_again(cluster):
    release = threading.Event()

    @service("it")
    def uncancellable(request: Request) -> bytes:
        if request.body == b"uncancellable":
            release.wait(WAIT_S)
        return request.body

    await cluster.worker(uncancellable, capacity=1)
    client = await cluster.client()
    with pytest.raises(CallTimeout):
        await client.call(b"uncancellable", timeout=0.1)
    following = client.start(b"next")
    await asyncio.sleep(0)
    release.set()
    assert (await following).body == b"next"


async def test_a_request_cancelled_while_it_waits_for_a_thread_never_starts(cluster):
    ran: list[bytes] = []
    release = threading.Event()

    @service("it")
    def note(request: Request) -> bytes:
        ran.append(request.body)
        assert release.wait(WAIT_S)
        return b""

    await cluster.worker(note, capacity=3, threads=1)
    client = await cluster.client()
    first, second, third = (client.start(body) for body in (b"first", b"second", b"third"))
    await until(lambda: ran and cluster.broker.snapshot().services[0].in_progress == 3)
    second.cancel()
    await until(lambda: cluster.broker.snapshot().services[0].in_progress == 2)
    release.set()
    await asyncio.gather(first, third)
    assert ran == [b"first", b"third"]


@pytest.mark.parametrize("in_thread", [False, True])
async def test_an_endless_stream_ends_when_its_client_closes_it(cluster, in_thread):
    ended = threading.Event()

    def endless(request: Request):
        try:
            while True:
                yield b"more"
        finally:
            ended.set()

    async def aendless(request: Request) -> AsyncIterator[bytes]:
        try:
            while True:
                yield b"more"
        finally:
            ended.set()

    await cluster.worker(service("it")(endless if in_thread else aendless), capacity=1)
    client = await cluster.client()
    parts = client.stream(b"")
    for _ in range(10):
        await anext(parts)
    await parts.aclose()
    await until(ended.is_set)
    assert ended.is_set()


# --- limits of threads; a single start ------------------------------------------------------------
async def test_with_a_handler_timeout_the_capacity_is_the_number_of_threads(
    cluster: Cluster,
) -> None:
    """A request that waits for a thread would use up its handler timeout."""

    @service("it")
    def handler(request: Request) -> bytes:
        threading.Event().wait(0.25)
        return b"%d" % request.attempt

    await cluster.open()
    await cluster.worker(handler, threads=1, capacity=8, handler_timeout=1.5)
    client = await cluster.client()
    replies = [reply async for reply in client.map([b""] * 8)]
    assert [reply.body for reply in replies] == [b"1"] * 8
    assert [worker.capacity for worker in cluster.broker.snapshot().workers] == [1]


async def test_a_worker_and_a_broker_start_once(cluster: Cluster) -> None:
    @service("it")
    async def handler(request: Request) -> bytes:
        return request.body

    await cluster.open()
    worker = await cluster.worker(handler)
    await worker.drain()
    with pytest.raises(LocalViolation, match="only once"):
        await worker.start()
    await cluster.broker.close()
    with pytest.raises(LocalViolation, match="only once"):
        await cluster.broker.start()
