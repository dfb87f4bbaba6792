"""`AsyncClient` and `Worker` over SP on one event loop, of asyncio and of uvloop."""

from __future__ import annotations

import asyncio
import logging
import os
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.e2e.sp import TRANSPORTS, Echo, place
from tests.e2e.sp_loop import Run, on_loop

from requite.client import AsyncClient
from requite.errors import (
    CallTimeout,
    Cancelled,
    Overloaded,
    TransportError,
)
from requite.request import Request, RetryPolicy
from requite.worker import Worker, service

__all__ = ["on_loop"]

pytestmark = pytest.mark.e2e

TCP = "sp+tcp://127.0.0.1:0"
UNREACHABLE = "sp+tcp://127.0.0.1:1"


# --- calls ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("binds", ["worker", "client"])
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_either_side_may_listen(on_loop: Run, transport: str, binds: str, tmp_path: Path) -> None:
    async def talk(client: AsyncClient) -> None:
        reply = await client.call(b"hello")
        assert (reply.body, reply.attempts) == (b"hello", 1)
        bodies = [b"", b"x", bytes(64 << 10), os.urandom(1 << 20)]
        bodies += [b"%d" % n for n in range(200)]
        replies = await asyncio.gather(*map(client.call, bodies))
        assert [reply.body for reply in replies] == bodies
        mapped = [reply.body async for reply in client.map(bodies, concurrency=7)]
        assert mapped == bodies

    async def scenario() -> None:
        url = place(transport, tmp_path)
        if binds == "worker":
            async with (
                Worker(Echo().service, bind=url) as worker,
                AsyncClient(worker.addresses, timeout=20) as client,
            ):
                await talk(client)
        else:
            async with (
                AsyncClient(bind=url, timeout=20) as client,
                Worker(client.addresses, Echo().service),
            ):
                await talk(client)

    on_loop(scenario())


def test_several_transports_at_once(on_loop: Run, tmp_path: Path) -> None:
    async def scenario() -> None:
        urls = [place(transport, tmp_path) for transport in TRANSPORTS]
        echo = Echo()
        async with Worker(echo.service, bind=urls) as worker:
            assert [url.partition("://")[0] for url in worker.addresses] == [
                "sp+tcp", "sp+ipc", "sp+inproc", "sp+ws",
            ]  # fmt: skip
            for url in worker.addresses:
                async with AsyncClient(url, timeout=20) as client:
                    assert (await client.call(url.encode())).body == url.encode()
        assert len(echo.seen) == len(urls)
        assert worker.addresses == []

    on_loop(scenario())


def test_requests_are_distributed_equally_among_workers(on_loop: Run) -> None:
    async def scenario() -> None:
        echoes = [Echo() for _ in range(3)]
        async with AsyncClient(bind=TCP, timeout=20) as client:
            workers = [Worker(client.addresses, echo.service) for echo in echoes]
            for worker in workers:
                await worker.start()
            while not all(echo.seen for echo in echoes):  # until all are connected
                await client.call(b"warm up")
            for echo in echoes:
                echo.seen.clear()
            await asyncio.gather(*(client.call(b"x") for _ in range(300)))
            assert [len(echo.seen) for echo in echoes] == [100, 100, 100]
            for worker in workers:
                await worker.close()

    on_loop(scenario())


def test_urls_set_priorities_and_weights(on_loop: Run) -> None:
    async def scenario() -> None:
        light, heavy, spare = echoes = [Echo() for _ in range(3)]
        workers = [Worker(echo.service, bind=TCP) for echo in echoes]
        for worker in workers:
            await worker.start()
        options = ("?weight=1", "?weight=3", "?priority=2")
        urls = [worker.addresses[0] + text for worker, text in zip(workers, options, strict=True)]
        async with AsyncClient(urls, timeout=20) as client:
            while not (light.seen and heavy.seen):
                await client.call(b"warm up")
            for echo in echoes:
                echo.seen.clear()
            await asyncio.gather(*(client.call(b"x") for _ in range(400)))
            assert [len(echo.seen) for echo in echoes] == [100, 300, 0]
            await workers[0].close()
            await workers[1].close()
            await client.call(b"now it is needed")
            assert spare.seen == [b"now it is needed"]
        await workers[2].close()

    on_loop(scenario())


def test_partial_replies_are_joined(on_loop: Run) -> None:
    @service("count")
    async def count(request: Request) -> AsyncIterator[bytes]:
        for number in range(int(request.body)):
            yield b"%d," % number

    async def scenario() -> None:
        async with (
            Worker(count, bind=TCP) as worker,
            AsyncClient(worker.addresses, timeout=20) as client,
        ):
            assert (await client.call(b"4")).frames == (b"0,1,2,3,",)

    on_loop(scenario())


# --- peers that start late, restart or are lost ---------------------------------------------------
@pytest.mark.parametrize("transport", ["tcp", "ipc", "inproc"])
def test_calls_wait_for_a_service_that_starts_later(
    on_loop: Run, transport: str, tmp_path: Path
) -> None:
    async def scenario() -> None:
        async with Worker(Echo().service, bind=place(transport, tmp_path)) as worker:
            [url] = worker.addresses
        async with AsyncClient(url, timeout=20) as client:
            call = asyncio.create_task(client.call(b"early"))
            await asyncio.sleep(0.1)  # several attempts to connect
            async with Worker(Echo().service, bind=url):
                reply = await call
        assert (reply.body, reply.attempts) == (b"early", 1)

    on_loop(scenario())


def test_requests_of_a_lost_worker_are_resent_to_another_at_once(on_loop: Run) -> None:
    async def scenario() -> None:
        lost, left = Echo(), Echo()
        async with Worker(left.service, bind=TCP) as second:
            first = Worker(lost.service, bind=TCP)
            await first.start()
            async with AsyncClient([*first.addresses, *second.addresses], timeout=20) as client:
                while not (lost.seen and left.seen):  # until both are connected
                    await client.call(b"warm up")
                lost.seen.clear()
                lost.gate.clear()
                calls = [client.start(b"%d" % n) for n in range(8)]
                await lost.until(lambda: len(lost.seen) == 4)
                await first.close()
                replies = await asyncio.gather(*calls)
        assert [reply.body for reply in replies] == [b"%d" % n for n in range(8)]
        assert Counter(reply.attempts for reply in replies) == {1: 4, 2: 4}

    on_loop(scenario())


@pytest.mark.parametrize("transport", ["tcp", "ipc", "inproc"])
def test_a_restarted_worker_gets_its_lost_requests_again(
    on_loop: Run, transport: str, tmp_path: Path
) -> None:
    async def scenario() -> None:
        held = Echo(hold=True)
        worker = Worker(held.service, bind=place(transport, tmp_path))
        await worker.start()
        [url] = worker.addresses
        async with AsyncClient(url, timeout=20) as client:
            calls = [client.start(b"%d" % n) for n in range(10)]
            await held.until(lambda: len(held.seen) == 10)
            await worker.close()
            async with Worker(Echo().service, bind=url):
                replies = await asyncio.gather(*calls)
        assert [reply.body for reply in replies] == [b"%d" % n for n in range(10)]
        assert {reply.attempts for reply in replies} == {2}

    on_loop(scenario())


def test_a_worker_reconnects_to_a_restarted_client(on_loop: Run) -> None:
    async def scenario() -> None:
        client = AsyncClient(bind=TCP, timeout=20)
        async with client:
            [url] = client.addresses
            worker = Worker(url, Echo().service)
            await worker.start()
            await client.call(b"one")
        async with AsyncClient(bind=url, timeout=20) as client:
            assert (await client.call(b"two")).body == b"two"
        await worker.close()

    on_loop(scenario())


def test_a_non_idempotent_request_is_not_sent_twice(on_loop: Run) -> None:
    async def scenario() -> None:
        held = Echo(hold=True)
        worker = Worker(held.service, bind=TCP)
        await worker.start()
        async with AsyncClient(worker.addresses, timeout=20) as client:
            call = asyncio.create_task(client.call(b"once", idempotent=False))
            await held.until(lambda: bool(held.seen))
            await worker.close()
            with pytest.raises(TransportError, match="not idempotent") as caught:
                await call
            assert caught.value.may_have_executed
            assert caught.value.attempts == 1

    on_loop(scenario())


@pytest.mark.parametrize("how", ["url", "policy"])
def test_resending_can_be_disabled(on_loop: Run, how: str) -> None:
    async def scenario() -> None:
        held = Echo(hold=True)
        worker = Worker(held.service, bind=TCP)
        await worker.start()
        [url] = worker.addresses
        client = (
            AsyncClient(f"{url}?resend=off", timeout=20)
            if how == "url"
            else AsyncClient(url, timeout=20, retry=RetryPolicy(attempts=1))
        )
        async with client:
            call = asyncio.create_task(client.call(b"once"))
            await held.until(lambda: bool(held.seen))
            await worker.close()
            with pytest.raises(TransportError, match="connection that had the request was lost"):
                await call

    on_loop(scenario())


@pytest.mark.parametrize("how", ["url", "policy"])
def test_requests_are_resent_after_the_resend_time(on_loop: Run, how: str) -> None:
    async def scenario() -> None:
        held = Echo(hold=True)
        async with Worker(held.service, bind=TCP) as worker:
            [url] = worker.addresses
            client = (
                AsyncClient(f"{url}?resend=0.05", timeout=20)
                if how == "url"
                else AsyncClient(url, timeout=20, retry=RetryPolicy(9, attempt_timeout=0.05))
            )
            async with client:
                call = asyncio.create_task(client.call(b"again"))
                await held.until(lambda: len(held.seen) >= 3)
                held.gate.set()
                reply = await call
                assert (reply.body, reply.attempts >= 3) == (b"again", True)

    on_loop(scenario())


def test_a_handler_that_fails_sends_no_reply(
    on_loop: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with (
            Worker(Echo().service, bind=TCP) as worker,
            AsyncClient(worker.addresses) as client,
        ):
            await client.call(b"connected", timeout=20)
            for body in (b"fail", b"refuse"):
                with pytest.raises(CallTimeout) as caught:
                    await client.call(body, timeout=0.1)
                assert caught.value.may_have_executed
            assert (await client.call(b"next", timeout=20)).body == b"next"

    with caplog.at_level(logging.WARNING):
        on_loop(scenario())
    assert "a request failed, so it gets no reply: ValueError: it does not work" in caplog.text


def test_a_cancelled_call_does_not_affect_others(on_loop: Run) -> None:
    async def scenario() -> None:
        held = Echo(hold=True)
        async with (
            Worker(held.service, bind=TCP) as worker,
            AsyncClient(worker.addresses, timeout=20, slots=2) as client,
        ):
            lost, kept = (asyncio.create_task(client.call(body)) for body in (b"a", b"b"))
            await held.until(lambda: len(held.seen) == 2)
            with pytest.raises(Overloaded):
                await client.call(b"one too many")
            lost.cancel()
            with pytest.raises(asyncio.CancelledError):
                await lost
            held.gate.set()
            assert (await kept).body == b"b"
            assert (await client.call(b"next")).body == b"next"

    on_loop(scenario())


def test_closing_ends_outstanding_calls(on_loop: Run) -> None:
    async def scenario() -> None:
        held = Echo(hold=True)
        async with Worker(held.service, bind=TCP) as worker:
            client = AsyncClient(worker.addresses, timeout=20)
            sent = asyncio.create_task(client.call(b"sent"))
            await held.until(lambda: bool(held.seen))
            await client.close()
            with pytest.raises(Cancelled, match="closed"):
                await sent
            with pytest.raises(Cancelled, match="closed"):
                await client.call(b"later")

    on_loop(scenario())


def test_a_draining_worker_finishes_its_requests(on_loop: Run) -> None:
    async def scenario() -> None:
        held = Echo(hold=True)
        worker = Worker(held.service, bind=TCP)
        await worker.start()
        async with AsyncClient(worker.addresses, timeout=20) as client:
            calls = [client.start(b"%d" % n) for n in range(5)]
            await held.until(lambda: len(held.seen) == 5)
            draining = asyncio.create_task(worker.drain())
            await asyncio.sleep(0)
            held.gate.set()
            replies = await asyncio.gather(*calls)
            assert {reply.attempts for reply in replies} == {1}
            await draining

    on_loop(scenario())
