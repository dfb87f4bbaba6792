"""Kills of RabbitMQ, workers and clients: each call ends once, with its reply or a typed error."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.amqp.live import is_consuming, responders, serving, until
from tests.spec.requirement import requirement
from tests.support.patience import failure_on_loop
from tests.support.rabbit import Rabbit

from requite import AsyncClient, Client, Request, RetryPolicy, Worker, service
from requite.errors import CallTimeout, NoService, Poisoned, TransportError
from requite.request import Reply

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

_WORKER = Path(__file__).with_name("serving_echo.py")


@service("echo")
async def echo(request: Request) -> bytes:
    return request.body


@contextmanager
def worker_process(url: str) -> Iterator[subprocess.Popen[str]]:
    """Run a worker process that can be killed; yield it once it has printed `started`."""
    process = subprocess.Popen(
        [sys.executable, str(_WORKER), url], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "started\n"
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


async def until_served(client: AsyncClient, name: str) -> None:
    """Wait until a service answers.

    RabbitMQ may lose a request while it creates the quorum queue, so each call times out after 2 s.
    """
    while True:
        try:
            await client.call(b"", service=name, timeout=2)
        except (NoService, CallTimeout):
            await asyncio.sleep(0.05)
        else:
            return


def close_connections(rabbit: Rabbit) -> None:
    """Make RabbitMQ close all connections of the test's user."""
    rabbit.api("DELETE", f"/connections/username/{rabbit.user}")


async def until_started(process: subprocess.Popen[str], bodies: set[str]) -> None:
    """Wait until the worker has started all requests with these bodies."""
    assert process.stdout is not None
    missing = set(bodies)
    while missing:
        line = await asyncio.to_thread(process.stdout.readline)
        assert line, "the worker has ended"
        missing.discard(line.removeprefix("began ").rstrip("\n"))


# --- RabbitMQ -------------------------------------------------------------------------------------
@pytest.mark.timeout(240)
async def test_calls_survive_a_kill_of_rabbitmq(rabbit: Rabbit) -> None:
    """Client and worker reconnect, and the client resends outstanding requests."""
    answered: list[tuple[bytes, Reply]] = []
    over = asyncio.Event()

    async def ask(client: AsyncClient, name: int) -> None:
        number = 0
        while not over.is_set():
            body = b"%d of %d" % (number, name)
            answered.append((body, await client.call(body)))
            number += 1

    async with (
        serving(rabbit.url, echo) as worker,
        AsyncClient(f"{rabbit.url}?queue=echo", timeout=150) as client,
    ):
        asking = asyncio.gather(*(ask(client, name) for name in range(16)))
        await until(lambda: len(answered) > 200, "calls are answered")
        await asyncio.to_thread(rabbit.kill)
        before = len(answered)
        await asyncio.to_thread(rabbit.start)
        await until(lambda: len(answered) > before + 200, "calls are answered again")
        over.set()
        await asking
        assert is_consuming(worker)

    assert all(reply.body == body for body, reply in answered)
    assert max(reply.attempts for _, reply in answered) > 1


@pytest.mark.timeout(240)
async def test_client_and_worker_wait_until_rabbitmq_has_started(rabbit: Rabbit) -> None:
    await asyncio.to_thread(rabbit.stop)
    # A quorum queue that is declared while RabbitMQ starts may lose the first messages.
    again = RetryPolicy(attempts=10, attempt_timeout=10.0)
    async with (
        Worker(rabbit.url, echo),
        AsyncClient(f"{rabbit.url}?queue=echo", timeout=90, retry=again) as client,
    ):
        early = await failure_on_loop(
            CallTimeout, "cannot connect", lambda timeout: client.call(b"early", timeout=timeout)
        )
        assert not early.may_have_executed
        assert early.attempts == 0

        starting = asyncio.create_task(asyncio.to_thread(rabbit.start))
        try:
            reply = await client.call(b"patient")
        except NoService:  # the client connected before the worker declared the queue
            await until_served(client, "echo")
            reply = await client.call(b"patient")
        await starting

    assert reply.body == b"patient"


async def test_a_non_idempotent_request_fails_when_its_connection_is_lost(
    rabbit: Rabbit,
) -> None:
    began = asyncio.Event()

    @service("hold")
    async def hold(_request: Request) -> bytes:
        began.set()
        await asyncio.Event().wait()
        return b""

    async with serving(rabbit.url, hold), AsyncClient(f"{rabbit.url}?queue=hold") as client:
        call = asyncio.ensure_future(client.call(b"", timeout=100, idempotent=False))
        await asyncio.wait_for(began.wait(), 30)
        await asyncio.to_thread(close_connections, rabbit)
        with pytest.raises(TransportError, match="not idempotent") as caught:
            await call

    assert caught.value.may_have_executed


# --- queues ---------------------------------------------------------------------------------------
async def test_consumers_declare_a_deleted_queue_again(rabbit: Rabbit) -> None:
    async with (
        serving(rabbit.url, echo) as worker,
        AsyncClient(f"{rabbit.url}?queue=echo", timeout=30) as client,
    ):
        assert (await client.call(b"1")).body == b"1"
        await asyncio.to_thread(rabbit.delete_queue, "echo")
        await until_served(client, "echo")
        assert (await client.call(b"2")).body == b"2"
        assert is_consuming(worker)


@requirement("amqp:reply-queue", "amqp:auto-delete")
async def test_a_reply_queue_is_exclusive_to_its_client(rabbit: Rabbit) -> None:
    async with (
        serving(rabbit.url, echo),
        AsyncClient(f"{rabbit.url}?queue=echo", timeout=30) as client,
    ):
        assert (await client.call(b"1")).body == b"1"
        every = await asyncio.to_thread(rabbit.api, "GET", f"/queues/{rabbit.vhost}")
        [mine] = [each for each in every if each["name"].startswith("requite-reply-")]
        assert (mine["exclusive"], mine["auto_delete"], mine["durable"]) == (True, True, False)
        with pytest.raises(RuntimeError, match="exclusive access"):
            await asyncio.to_thread(rabbit.delete_queue, mine["name"])


# --- workers --------------------------------------------------------------------------------------
@pytest.mark.timeout(240)
async def test_a_request_of_a_killed_worker_is_redelivered_to_another(rabbit: Rabbit) -> None:
    async with AsyncClient(rabbit.url, timeout=60) as client:
        with worker_process(rabbit.url) as first:
            await until_served(client, "slow")
            call = asyncio.ensure_future(client.call(b"kept", service="slow"))
            await until_started(first, {"kept"})
            os.kill(first.pid, signal.SIGKILL)
            with worker_process(rabbit.url):
                reply = await call

    assert reply.body == b"kept"
    assert reply.attempts == 2


@pytest.mark.timeout(240)
async def test_a_request_that_kills_three_workers_is_poisoned(rabbit: Rabbit) -> None:
    async with AsyncClient(rabbit.url, timeout=100) as client:
        with worker_process(rabbit.url):
            await until_served(client, "echo")
        call = asyncio.ensure_future(client.call(b"", service="die", idempotent=True))
        for _ in range(3):
            with worker_process(rabbit.url) as victim:
                await asyncio.to_thread(victim.wait, 30)
        with worker_process(rabbit.url):
            with pytest.raises(Poisoned, match="delivered 3 times"):
                await call
            assert (await client.call(b"on", service="echo")).body == b"on"


@pytest.mark.timeout(240)
async def test_a_drained_worker_answers_its_requests(rabbit: Rabbit) -> None:
    async with AsyncClient(rabbit.url, timeout=60) as client:
        with worker_process(rabbit.url) as process:
            await until_served(client, "slow")
            bodies = [b"%d" % number for number in range(4)]
            calls = [asyncio.ensure_future(client.call(body, service="slow")) for body in bodies]
            await until_started(process, {body.decode() for body in bodies})
            process.terminate()
            replies = await asyncio.gather(*calls)
            assert await asyncio.to_thread(process.wait, 20) == 0

    assert [(reply.body, reply.attempts) for reply in replies] == [(body, 1) for body in bodies]


# --- clients --------------------------------------------------------------------------------------
@requirement("amqp:client-gone", "amqp:auto-delete")
async def test_the_reply_queue_of_a_killed_client_is_deleted(rabbit: Rabbit) -> None:
    """RabbitMQ deletes the reply queue of a killed client, and drops replies to it."""
    program = (
        "import sys; from requite import Client; c = Client(sys.argv[1]); c.call(b'', timeout=20);"
        "c.start(b'left behind'); import os; os._exit(1)"
    )
    async with serving(rabbit.url, echo) as worker, AsyncClient(f"{rabbit.url}?queue=echo") as ours:
        url = f"{rabbit.url}?queue=echo"
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", program, url)
        assert await process.wait() == 1
        assert (await ours.call(b"here", timeout=20)).body == b"here"
        [engine] = responders(worker)
        await until(lambda: not engine.snapshot().unconfirmed, "all replies are confirmed")

        def reply_queues() -> list[str]:
            queues = rabbit.api("GET", f"/queues/{rabbit.vhost}?disable_stats=true")
            return [each["name"] for each in queues if "reply" in each["name"]]

        await until(lambda: len(reply_queues()) == 1, "only our reply queue is left")


def test_an_idle_client_reconnects_after_rabbitmq_closed_its_connection(rabbit: Rabbit) -> None:
    async def serve_while(act: object) -> None:
        async with serving(rabbit.url, echo):
            await asyncio.to_thread(act)  # type: ignore[arg-type]

    def act() -> None:
        with Client(f"{rabbit.url}?queue=echo", timeout=30) as client:
            assert client.call(b"1").body == b"1"
            close_connections(rabbit)
            reply = client.call(b"2")
            assert reply.body == b"2"

    asyncio.run(serve_while(act))
