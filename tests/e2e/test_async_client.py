"""Tests of `AsyncClient` only: tasks, asynchronous inputs, back-pressure."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest
from tests.e2e.serving import Serving, eventually

from requite.client import AsyncClient
from requite.errors import CallTimeout, Cancelled, LocalViolation, RemoteFailure
from requite.framing import SocketType, Zmtp
from requite.request import Reply
from requite.shell.aio import run

pytestmark = pytest.mark.e2e


@pytest.fixture
def served() -> Iterator[Serving]:
    serving = Serving()
    serving.start_worker()
    yield serving
    serving.close()


@pytest.fixture
async def client(served: Serving) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(served.url("echo"), timeout=20) as client:
        yield client


async def seen(served: Serving, n: int) -> None:
    await asyncio.to_thread(
        eventually, lambda: len(served.handlers.seen) >= n, f"{n} requests are at the worker"
    )


async def interrupted(served: Serving, *bodies: bytes) -> None:
    await asyncio.to_thread(
        eventually,
        lambda: sorted(served.handlers.interrupted) == sorted(bodies),
        "the handlers are interrupted",
    )


# --- tasks ----------------------------------------------------------------------------------------
async def test_cancelling_the_task_cancels_the_call(client: AsyncClient, served: Serving) -> None:
    task = asyncio.create_task(client.call(b"x", service="hold"))
    await seen(served, 1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await interrupted(served, b"x")
    assert (await client.call(b"next")).body == b"next"


async def test_a_surrounding_timeout_cancels_the_call(client: AsyncClient, served: Serving) -> None:
    await client.call(b"connected")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1.0):
            await client.call(b"x", service="hold")
    await interrupted(served, b"x")


async def test_many_tasks_share_a_client(client: AsyncClient, served: Serving) -> None:
    async def lane(number: int) -> None:
        for turn in range(20):
            body = b"%d-%d" % (number, turn)
            assert (await client.call(body)).body == body

    await asyncio.gather(*(lane(number) for number in range(100)))
    assert served.snapshot.clients == 1


async def test_a_reply_that_crosses_a_cancel_is_dropped(client: AsyncClient) -> None:
    await client.call(b"connected")
    for turns in range(30):
        task = asyncio.create_task(client.call(b"crossing"))
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
    assert (await client.call(b"next")).body == b"next"


async def test_close_ends_all_calls_and_streams(client: AsyncClient, served: Serving) -> None:
    calls = [asyncio.create_task(client.call(b"%d" % n, service="hold")) for n in range(3)]
    stream = client.stream(b"1?", service="count")
    assert (await anext(stream)).body == b"0"
    await seen(served, 4)
    await client.close()
    for call in calls:
        with pytest.raises(Cancelled, match="closed"):
            await call
    with pytest.raises(Cancelled, match="closed"):
        await anext(stream)
    with pytest.raises(Cancelled, match="closed"):
        await client.call(b"x")
    await client.close()  # no effect on a closed client


async def test_a_client_that_was_never_used_closes() -> None:
    client = AsyncClient("mdp://localhost:1/echo")
    await client.close()
    with pytest.raises(Cancelled, match="closed"):
        await client.call(b"x")


def test_a_client_stays_on_its_loop(served: Serving) -> None:
    client = AsyncClient(served.url("echo"), timeout=20)

    async def use() -> None:
        await client.call(b"x")

    async def use_and_close() -> None:
        await client.call(b"x")
        await client.close()

    with asyncio.Runner() as runner:
        runner.run(use())
        with pytest.raises(LocalViolation, match="loop"):
            run(use())
        runner.run(use_and_close())


# --- asynchronous inputs --------------------------------------------------------------------------
async def numbers(n: int, every_s: float = 0.0) -> AsyncIterator[bytes]:
    for number in range(n):
        await asyncio.sleep(every_s)
        yield b"%d" % number


async def consume(replies: AsyncIterator[object]) -> None:
    async for _ in replies:
        pass


@pytest.mark.parametrize("as_completed", [False, True])
async def test_map_takes_an_asynchronous_input(client: AsyncClient, as_completed: bool) -> None:
    replies = client.map(numbers(500), concurrency=20, as_completed=as_completed)
    got = [int(reply.body) async for reply in replies]
    assert (sorted(got) if as_completed else got) == list(range(500))


async def test_replies_do_not_wait_for_a_slow_input(client: AsyncClient) -> None:
    released = asyncio.Event()

    async def bodies() -> AsyncIterator[bytes]:
        yield b"first"
        await released.wait()
        yield b"second"

    replies = client.map(bodies())
    assert (await anext(replies)).body == b"first"
    released.set()
    assert [reply.body async for reply in replies] == [b"second"]


async def test_map_of_an_asynchronous_input_waits_for_slots(served: Serving) -> None:
    async with AsyncClient(served.url("echo"), slots=5, timeout=10) as client:
        held = [client.start(b"held", service="hold") for _ in range(3)]
        replies = client.map(numbers(200), concurrency=100)
        assert [int((await anext(replies)).body) for _ in range(200)] == list(range(200))
        served.handlers.gate.set()
        assert [(await call).body for call in held] == [b"held"] * 3


async def test_a_future_of_the_caller_gets_the_result_once(
    client: AsyncClient, served: Serving
) -> None:
    answered: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
    client.start_for(answered, b"hello")
    assert (await answered).body == b"hello"
    given_up: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
    client.start_for(given_up, b"held", service="hold")
    await seen(served, 2)
    client.cancel_for(given_up)
    client.cancel_for(answered)
    with pytest.raises(Cancelled):
        await given_up


async def test_an_input_that_raises_ends_the_map(client: AsyncClient) -> None:
    async def bodies() -> AsyncIterator[bytes]:
        yield b"first"
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await consume(client.map(bodies()))
    with pytest.raises(TypeError, match="bytes"):
        await consume(client.map(["text"]))  # type: ignore[list-item]


async def test_closing_a_map_does_not_close_its_input(client: AsyncClient) -> None:
    """The rest of the input can still be read, as with a synchronous iterator."""
    bodies = numbers(100)
    replies = client.map(bodies, concurrency=3)
    assert (await anext(replies)).body == b"0"
    await replies.aclose()  # type: ignore[attr-defined]
    await asyncio.sleep(0)
    rest = [int(body) async for body in bodies]
    assert rest == list(range(rest[0], 100))
    assert 3 <= rest[0] <= 8


async def test_map_sends_requests_while_its_user_is_slow(
    client: AsyncClient, served: Serving
) -> None:
    """The pipeline stays full: `map` sends requests before the user reads earlier replies."""
    replies = client.map([b"%d" % number for number in range(10)], concurrency=3)
    await anext(replies)
    await seen(served, 4)  # the first, whose reply was read, and three more
    assert len(served.handlers.seen) >= 4
    await replies.aclose()  # type: ignore[attr-defined]


async def test_errors_end_a_map_and_cancel_the_rest(client: AsyncClient, served: Serving) -> None:
    with pytest.raises(RemoteFailure):
        await consume(client.map([b"x", b"y"], service="fail", as_completed=True))
    await asyncio.to_thread(
        eventually, lambda: served.snapshot.pending == 0, "nothing is left at the broker"
    )


# --- a broker that does not read ------------------------------------------------------------------
async def test_calls_wait_while_the_broker_does_not_read() -> None:
    """The client buffers no more data; a call that waits for this times out at its own deadline."""
    writers: list[asyncio.StreamWriter] = []
    readers: list[asyncio.StreamReader] = []

    async def finish_the_handshake_and_stop_reading(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        framing = Zmtp(SocketType.ROUTER)
        writer.write(framing.opening())
        while not framing.ready:
            framing.receive(await reader.read(1000))
            writer.write(framing.output())
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writers.append(writer)
        readers.append(reader)
        connected.set()

    connected = asyncio.Event()
    server = await asyncio.start_server(finish_the_handshake_and_stop_reading, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with AsyncClient(f"mdp://127.0.0.1:{port}/echo", timeout=20) as client:
        large = client.start(b"x" * (16 << 20))
        await connected.wait()
        async with asyncio.timeout(10):
            while client._gate.is_open:  # noqa: ASYNC110 - the gate has no event for it
                await asyncio.sleep(0.001)
        with pytest.raises(CallTimeout, match="accepted no more data") as caught:
            await client.call(b"small", timeout=0.2)
        assert caught.value.may_have_executed is False
        waiting = asyncio.create_task(client.call(b"another"))
        await asyncio.sleep(0)
        writers[0].transport.resume_reading()  # type: ignore[attr-defined]
        async with asyncio.timeout(10):
            while b"another" not in await readers[0].read(1 << 20):
                pass
        large.cancel()
        waiting.cancel()
        await asyncio.wait([large, waiting])
    writers[0].close()
    server.close()
