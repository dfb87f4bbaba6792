"""Calls over a real RabbitMQ: the cases of "RPC over AMQP" and requite's extensions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.amqp.live import control_listeners, serving, until
from tests.spec.requirement import requirement
from tests.support.rabbit import Rabbit

from requite import AsyncClient, Client, RemoteFailure, Request, service
from requite.errors import CallTimeout, NoService
from requite.protocols.amqp.topology import CONTROL_EXCHANGE
from requite.request import Partial, Reply

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


@service("increment.requests")
async def increment(request: Request) -> bytes:
    return b"%d" % (int(request.body) + 1)


@service("count")
async def count(request: Request) -> AsyncIterator[bytes]:
    for number in range(int(request.body)):
        yield b"%d" % number


@requirement("amqp:one-of-each")
async def test_one_client_and_one_servant(rabbit: Rabbit) -> None:
    async with (
        serving(rabbit.url, increment),
        AsyncClient(f"{rabbit.url}?queue=increment.requests") as client,
    ):
        reply = await client.call(b"5", timeout=30)

    assert reply.body == b"6"
    assert reply.attempts == 1


@requirement("amqp:many-servants", "amqp:reply-queue")
async def test_many_clients_and_many_servants(rabbit: Rabbit) -> None:
    url = f"{rabbit.url}?queue=increment.requests"
    async with serving(rabbit.url, increment), serving(rabbit.url, increment):
        clients = [AsyncClient(url) for _ in range(3)]

        async def ask(client: AsyncClient, first: int) -> list[Any]:
            async with client:
                bodies = [b"%d" % number for number in range(first, first + 50)]
                return [reply.body async for reply in client.map(bodies, timeout=20)]

        answers = await asyncio.gather(*(ask(each, 100 * n) for n, each in enumerate(clients)))

    for n, answer in enumerate(answers):
        assert answer == [b"%d" % (number + 1) for number in range(100 * n, 100 * n + 50)]


def test_the_blocking_client(rabbit: Rabbit) -> None:
    async def serve_while(act: Any) -> None:
        async with serving(rabbit.url, increment):
            await asyncio.to_thread(act)

    def act() -> None:
        with Client(f"{rabbit.url}?queue=increment.requests") as client:
            assert client.call(b"1", timeout=30).body == b"2"
            assert [reply.body for reply in client.map([b"1", b"2", b"3"])] == [b"2", b"3", b"4"]

    asyncio.run(serve_while(act))


@requirement("amqp:negative")
async def test_a_negative_reply_fails_the_call(rabbit: Rabbit) -> None:
    @service("divide")
    async def divide(request: Request) -> bytes:
        raise RemoteFailure("division by zero")

    async with serving(rabbit.url, divide), AsyncClient(f"{rabbit.url}?queue=divide") as client:
        with pytest.raises(RemoteFailure, match="division by zero") as caught:
            await client.call(b"0", timeout=30)

    assert caught.value.may_have_executed


async def test_partial_replies(rabbit: Rabbit) -> None:
    async with serving(rabbit.url, count), AsyncClient(f"{rabbit.url}?queue=count") as client:
        parts = [part async for part in client.stream(b"3", timeout=30)]
        whole = await client.call(b"4", timeout=30)

    assert [part.body for part in parts if isinstance(part, Partial)] == [b"0", b"1", b"2"]
    assert isinstance(parts[-1], Reply)
    assert whole.body == b"0123"


@pytest.mark.parametrize("option", ["reply=queue", "reply=direct", "confirm=yes"])
async def test_reply_options(rabbit: Rabbit, option: str) -> None:
    url = f"{rabbit.url}?queue=increment.requests&{option}"
    async with serving(rabbit.url, increment), AsyncClient(url) as client:
        replies = [reply.body async for reply in client.map([b"1"] * 20, timeout=20)]

    assert replies == [b"2"] * 20


async def test_a_missing_queue_raises_no_service(rabbit: Rabbit) -> None:
    async with AsyncClient(f"{rabbit.url}?queue=nowhere") as client:
        with pytest.raises(NoService, match="nowhere") as caught:
            await client.call(b"", timeout=30)

    assert not caught.value.may_have_executed


async def test_a_missing_pool_raises_no_service(rabbit: Rabbit) -> None:
    async with AsyncClient(f"{rabbit.url}?pool=core&key=42") as client:
        for _ in range(2):
            with pytest.raises(NoService, match="core-req-xchg") as caught:
                await client.call(b"", timeout=30)

    assert not caught.value.may_have_executed


async def test_cancelling_a_call_cancels_its_handler(rabbit: Rabbit) -> None:
    began, ended = asyncio.Event(), asyncio.Event()

    @service("hold")
    async def hold(request: Request) -> bytes:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return b""

    async with serving(rabbit.url, hold), AsyncClient(f"{rabbit.url}?queue=hold") as client:
        call = asyncio.ensure_future(client.call(b"", timeout=60))
        await asyncio.wait_for(began.wait(), 30)
        await until(
            lambda: control_listeners(rabbit, CONTROL_EXCHANGE),
            "a worker bound to the control exchange",
        )
        call.cancel()
        await asyncio.wait_for(ended.wait(), 30)
        assert call.cancelled()


async def test_a_timeout_of_the_call_cancels_its_handler(rabbit: Rabbit) -> None:
    ended = asyncio.Event()

    @service("slow")
    async def slow(request: Request) -> bytes:
        assert request.remaining_s is not None
        assert request.remaining_s <= 3.0
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return b""

    async with serving(rabbit.url, slow), AsyncClient(f"{rabbit.url}?queue=slow") as client:
        with pytest.raises(CallTimeout, match="may have run"):
            await client.call(b"", timeout=3.0)  # includes the time to connect
        await asyncio.wait_for(ended.wait(), 30)


async def test_bodies_of_many_amqp_frames(rabbit: Rabbit) -> None:
    @service("echo")
    async def echo(request: Request) -> bytes:
        return request.body

    body = bytes(range(256)) * 4096  # 1 MiB, in frames of 128 KiB
    async with serving(rabbit.url, echo), AsyncClient(f"{rabbit.url}?queue=echo") as client:
        assert (await client.call(body, timeout=20)).body == body
        assert (await client.call(b"", timeout=20)).body == b""
