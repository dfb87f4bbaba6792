"""`Worker` with a real broker: heartbeats and handler timeouts, restarts, drain and close."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest
from tests.e2e.cluster import BRISK, WAIT_S, Cluster, until
from tests.support.live import Process

from requite import (
    Broker,
    BrokerPolicy,
    Reply,
    Request,
    RetryPolicy,
    WorkerLost,
    service,
)
from requite.worker import Service

pytestmark = pytest.mark.e2e


# --- presence -------------------------------------------------------------------------------------
async def test_a_busy_thread_does_not_stop_the_heartbeats(cluster):
    go_on = threading.Event()

    @service("it")
    def slow(request: Request) -> bytes:
        go_on.wait(WAIT_S)
        return b"%d" % request.attempt

    await cluster.worker(slow)
    call = (await cluster.client()).start(b"")
    await asyncio.sleep(3 * BRISK.interval_s * BRISK.liveness)
    assert cluster.workers() == 1
    go_on.set()
    assert (await call).body == b"1"


@pytest.mark.parametrize("dialect", ["0.3", "0.2"])
async def test_a_handler_that_hangs_loses_its_request_to_another_worker(cluster, dialect):
    @service("it")
    async def hang_at_first(request: Request) -> bytes:
        if request.attempt == 1 and dialect == "0.3":
            await asyncio.Event().wait()
        if not taken:
            taken.append(1)
            await asyncio.Event().wait()
        return b"attempt %d" % request.attempt

    taken: list[int] = [1] if dialect == "0.3" else []
    await cluster.worker(hang_at_first, handler_timeout=0.2, dialect=dialect)
    await cluster.worker(hang_at_first, handler_timeout=0.2, dialect=dialect)
    reply = await (await cluster.client()).call(b"")
    assert reply.body == (b"attempt 2" if dialect == "0.3" else b"attempt 1")


@pytest.mark.parametrize("in_thread", [False, True])
async def test_a_handler_that_shows_progress_keeps_its_request(cluster, in_thread):
    def slow(request: Request) -> bytes:
        for _ in range(6):
            threading.Event().wait(0.25)
            request.progress()
        return b"attempt %d" % request.attempt

    async def aslow(request: Request) -> bytes:
        for _ in range(6):
            await asyncio.sleep(0.25)
            request.progress()
        return b"attempt %d" % request.attempt

    handler = service("it")(slow if in_thread else aslow)
    for _ in range(2):
        await cluster.worker(handler, handler_timeout=1.2)
    assert (await (await cluster.client()).call(b"")).body == b"attempt 1"


async def test_the_request_of_a_closed_worker_is_redelivered(cluster):
    started = asyncio.Event()

    @service("it")
    async def patient(request: Request) -> bytes:
        if request.attempt == 1:
            started.set()
            await asyncio.Event().wait()
        return b"attempt %d" % request.attempt

    first = await cluster.worker(patient)
    client = await cluster.client()
    call = client.start(b"")
    once = client.start(b"", idempotent=False)
    await started.wait()
    await cluster.worker(patient)
    await first.close()
    assert (await call).body == b"attempt 2"
    with pytest.raises(WorkerLost):
        await once


@service("it")
async def upper(request: Request) -> bytes:
    return request.body.upper()


async def test_a_worker_registers_again_at_a_restarted_broker(cluster):
    await cluster.worker(upper)
    client = await cluster.client()
    assert (await client.call(b"before")).body == b"BEFORE"
    endpoint = cluster.broker.endpoints[0]
    await cluster.broker.close()
    waiting = client.start(b"meanwhile")
    cluster.broker = Broker(endpoint, policy=BrokerPolicy(heartbeat=BRISK))
    await cluster.stack.enter_async_context(cluster.broker)
    assert (await waiting).body == b"MEANWHILE"
    assert cluster.workers() == 1


async def test_one_worker_serves_several_services(cluster):
    async def name(request: Request) -> bytes:
        return request.service.encode()

    await cluster.worker(*(service(n)(name) for n in ("a", "b", "c")))
    client = await cluster.client("a")
    for n in ("a", "b", "c"):
        assert (await client.call(b"", service=n)).body == n.encode()


async def test_the_attributes_of_a_request(cluster):
    seen: list[Request] = []

    @service("it")
    async def note(request: Request) -> bytes:
        seen.append(request)
        return b""

    await cluster.worker(note)
    client = await cluster.client()
    await client.call([b"two", b"frames"], timeout=5.0, idempotency_key=b"order-17")
    (request,) = seen
    assert (request.service, request.frames, request.attempt) == ("it", [b"two", b"frames"], 1)
    assert request.idempotency_key == b"order-17"
    assert request.remaining_s is not None
    assert 4.0 < request.remaining_s <= 5.0


# --- the end --------------------------------------------------------------------------------------
@pytest.mark.parametrize("dialect", ["0.3", "0.2"])
async def test_a_draining_worker_finishes_its_requests_and_accepts_no_new_ones(cluster, dialect):
    release = asyncio.Event()
    served: list[str] = []

    def make(name: str) -> Service:
        @service("it")
        async def patient(request: Request) -> bytes:
            served.append(name)
            if request.body == b"slow":
                await release.wait()
            return name.encode()

        return patient

    first = await cluster.worker(make("first"), dialect=dialect)
    client = await cluster.client()
    slow = client.start(b"slow")
    await until(lambda: served)
    drain = asyncio.ensure_future(first.drain())
    await until(lambda: dialect != "0.3" or cluster.broker.snapshot().workers[0].draining)
    await cluster.worker(make("second"), dialect=dialect)
    assert {(await client.call(b"quick")).body for _ in range(20)} == {b"second"}
    assert not drain.done()
    release.set()
    assert (await slow).body == b"first"
    await asyncio.wait_for(drain, WAIT_S)
    await until(lambda: cluster.workers() == 1)


async def test_a_drain_has_a_time_limit(cluster):
    @service("it")
    async def hang(request: Request) -> bytes:
        started.set()
        await asyncio.Event().wait()
        return b""

    started = asyncio.Event()
    worker = await cluster.worker(hang, drain_timeout=0.1)
    client = await cluster.client(retry=RetryPolicy(attempts=1))
    call = client.start(b"", idempotent=False)
    await started.wait()
    await asyncio.wait_for(worker.drain(), WAIT_S)
    with pytest.raises(WorkerLost):
        await call


async def test_a_handler_that_ignores_cancellation_does_not_block_close(
    cluster, monkeypatch, caplog
):
    monkeypatch.setattr("requite.worker.lanes.CLOSE_S", 0.1)
    is_ignoring = True

    @service("it")
    async def ignore(request: Request) -> bytes:
        started.set()
        while is_ignoring:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0.05)
        return b""

    started = asyncio.Event()
    worker = await cluster.worker(ignore)
    client = await cluster.client(retry=RetryPolicy(attempts=1))
    call = client.start(b"", idempotent=False)
    await started.wait()
    await asyncio.wait_for(worker.close(), WAIT_S)
    is_ignoring = False
    assert "1 handlers did not end" in caplog.text
    with pytest.raises(WorkerLost):
        await call


SCRIPT = """
import asyncio, sys
import requite

@requite.service("it")
async def slow(request):
    print("started", flush=True)
    await asyncio.sleep(float(request.body))
    return b"finished"

requite.Worker(sys.argv[1], slow).run(lambda: print("serving", flush=True))
print("through", flush=True)
"""


async def in_thread(function: Callable[..., str], *args: object) -> str:
    return await asyncio.wait_for(asyncio.to_thread(function, *args), WAIT_S)


@pytest.fixture
async def process(cluster: Cluster, processes: list[Process]) -> Process:
    """A worker process that is registered at the broker."""
    processes.append(Process("-c", SCRIPT, cluster.url))
    assert await in_thread(processes[0].line) == "serving"
    await until(lambda: cluster.workers() == 1)
    return processes[0]


async def test_the_first_sigterm_drains(cluster: Cluster, process: Process) -> None:
    call = (await cluster.client()).start(b"0.3")
    assert await in_thread(process.line) == "started"
    process.signal(signal.SIGTERM)
    assert (await call).body == b"finished"
    assert await in_thread(process.line) == "through"
    assert (await asyncio.to_thread(process.ended))[0] == 0


async def test_the_second_sigterm_stops(cluster: Cluster, process: Process) -> None:
    call: Awaitable[Reply] = (await cluster.client()).start(b"60", idempotent=False)
    assert await in_thread(process.line) == "started"
    process.signal(signal.SIGTERM)
    await until(lambda: cluster.broker.snapshot().workers[0].draining)
    process.signal(signal.SIGTERM)
    assert await in_thread(process.line) == "through"
    with pytest.raises(WorkerLost):
        await call
    assert (await asyncio.to_thread(process.ended))[0] == 0
