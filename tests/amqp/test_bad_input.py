"""What is wrong is told at once, by the name of the setting; nothing malformed stops a worker."""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import quote

import aiormq
import pytest
from aiormq.abc import AbstractChannel, DeliveredMessage
from pamqp.commands import Basic
from tests.amqp.live import responders, serving, until
from tests.spec.requirement import requirement
from tests.support.rabbit import Rabbit

from requite import AsyncClient, Client, Request, Worker, service
from requite.errors import CallError, RemoteFailure, TransportError

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


@service("echo")
async def echo(request: Request) -> bytes:
    return request.body


async def refused(url: str) -> CallError:
    """Return the error that a call ends with at once."""
    async with AsyncClient(f"{url}?queue=echo", timeout=100) as client:
        with pytest.raises(TransportError) as caught:
            await asyncio.wait_for(client.call(b""), 20)
    assert not caught.value.may_have_executed
    return caught.value


# --- who asks, and where --------------------------------------------------------------------------
async def test_a_wrong_password(rabbit: Rabbit) -> None:
    error = await refused(rabbit.url_of(password="wrong"))
    assert "user and password are those of the URL or of `--credentials-file`" in str(error)
    assert "wrong" not in str(error)


async def test_a_user_that_does_not_exist(rabbit: Rabbit) -> None:
    assert "ACCESS_REFUSED" in str(await refused(rabbit.url_of(user="nobody")))


async def test_a_virtual_host_that_does_not_exist(rabbit: Rabbit) -> None:
    error = await refused(rabbit.url_of(vhost="nowhere"))
    assert "the virtual host is the path of the URL" in str(error)
    assert "nowhere" in str(error)


def test_plain_threads_are_told_as_well(rabbit: Rabbit) -> None:
    with Client(f"{rabbit.url_of(vhost='nowhere')}?queue=echo", timeout=100) as client:
        for _ in range(2):
            with pytest.raises(TransportError, match="nowhere"):
                client.call(b"")


@pytest.mark.parametrize(
    ("grants", "named"),
    [
        ({"configure": ""}, "access to queue 'requite-reply-"),
        ({"write": ""}, "access to exchange 'amq.default'"),
        ({"read": ""}, "access to queue 'requite-reply-"),
    ],
)
async def test_permissions_that_are_missing(
    rabbit: Rabbit, grants: dict[str, str], named: str
) -> None:
    rabbit.permit(rabbit.user, **grants)
    async with AsyncClient(f"{rabbit.url}?queue=echo", timeout=100) as client:
        with pytest.raises(TransportError, match="permissions of the user") as caught:
            await asyncio.wait_for(client.call(b""), 20)
        assert named in str(caught.value)

        rabbit.permit(rabbit.user)  # and it goes on when they are granted
        async with serving(rabbit.url, echo):
            async with asyncio.timeout(20):
                assert await until_answered(client) == b"hi"


async def until_answered(client: AsyncClient) -> bytes:
    """Call until it works: RabbitMQ remembers a user's permissions for a while."""
    while True:
        try:
            return (await client.call(b"hi")).body
        except CallError:
            await asyncio.sleep(0.05)


async def test_direct_replies_need_no_permission_to_make_queues(rabbit: Rabbit) -> None:
    async with serving(rabbit.url, echo):
        rabbit.make_user("caller")
        rabbit.permit("caller", configure="")
        url = f"{rabbit.url_of(user='caller', password='secret')}?queue=echo&reply=direct"
        async with AsyncClient(url, timeout=20) as client:
            assert (await client.call(b"hi")).body == b"hi"
        rabbit.delete_user("caller")


async def test_a_worker_without_permissions_waits_for_them(
    rabbit: Rabbit, caplog: pytest.LogCaptureFixture
) -> None:
    rabbit.permit(rabbit.user, configure="", write="", read="")
    async with Worker(rabbit.url, echo) as worker:
        [engine] = responders(worker)
        await until(lambda: "access to queue 'echo'" in caplog.text, "it is told of the refusal")
        rabbit.permit(rabbit.user)
        await until(lambda: engine.snapshot().is_consuming, "it serves")


# --- malformed messages, by a client that is not ours ---------------------------------------------
class Foreign:
    """A client by aiormq: it publishes what it likes, and keeps what comes back."""

    def __init__(self, channel: AbstractChannel, replies: str) -> None:
        self.channel = channel
        self.replies = replies
        self.came: asyncio.Queue[DeliveredMessage] = asyncio.Queue()

    async def ask(self, body: bytes, **properties: Any) -> DeliveredMessage:
        await self.tell(body, reply_to=self.replies, **properties)
        return await asyncio.wait_for(self.came.get(), 20)

    async def tell(self, body: bytes, **properties: Any) -> None:
        await self.channel.basic_publish(
            body, routing_key="echo", properties=Basic.Properties(**properties)
        )


async def foreign(rabbit: Rabbit) -> Foreign:
    connection = await aiormq.connect(rabbit.url)
    channel = await connection.channel()
    declared = await channel.queue_declare(exclusive=True)
    assert declared.queue is not None
    client = Foreign(channel, declared.queue)
    await channel.basic_consume(declared.queue, client.came.put, no_ack=True)
    return client


def headers_of(message: DeliveredMessage) -> dict[str, Any]:
    return dict(message.header.properties.headers or {})


@requirement("amqp:reply-to", "amqp:copied")
async def test_a_client_that_is_not_ours(rabbit: Rabbit) -> None:
    async with serving(rabbit.url, echo):
        client = await foreign(rabbit)
        reply = await client.ask(b"hello", correlation_id="any text")
        assert reply.body == b"hello"
        assert reply.header.properties.correlation_id == "any text"
        assert headers_of(reply)["x-status"] == "ok"
        assert (await client.ask(b"no id")).header.properties.correlation_id is None
        await client.channel.connection.close()


@pytest.mark.parametrize(
    ("properties", "why"),
    [
        ({"headers": {"x-idempotency-key": 5}}, "x-idempotency-key"),
        ({"headers": {"x-idempotency-key": {"a": [1, None]}}}, "x-idempotency-key"),
    ],
)
async def test_malformed_requests_are_answered(
    rabbit: Rabbit, properties: dict[str, Any], why: str
) -> None:
    async with serving(rabbit.url, echo):
        client = await foreign(rabbit)
        reply = await client.ask(b"", correlation_id="c", **properties)
        assert headers_of(reply)["x-status"] == "error"
        assert why in reply.body.decode()
        assert reply.header.properties.correlation_id == "c"
        assert (await client.ask(b"on")).body == b"on"
        await client.channel.connection.close()


@requirement("amqp:no-reply-to")
async def test_requests_without_reply_to_are_rejected(rabbit: Rabbit) -> None:
    async with serving(rabbit.url, echo) as worker:
        client = await foreign(rabbit)
        await client.tell(b"into the void", correlation_id="c")
        assert (await client.ask(b"on")).body == b"on"
        [engine] = responders(worker)
        assert engine.snapshot().dropped == {"without reply-to": 1}
        await client.channel.connection.close()


async def test_bodies_over_the_limit(rabbit: Rabbit) -> None:
    """The worker's limit is told to the caller, the caller's own ends the call; both go on."""

    @service("grow")
    async def grow(request: Request) -> bytes:
        return request.body * 10

    async with serving(rabbit.url, grow, message_size_max=10_000):
        async with AsyncClient(f"{rabbit.url}?queue=grow", timeout=20) as client:
            with pytest.raises(RemoteFailure, match="message_size_max of the worker"):
                await client.call(b"x" * 10_001)
            with pytest.raises(RemoteFailure, match="10000 are allowed"):
                await client.call(b"x" * 1_001)
            assert len((await client.call(b"x" * 100)).body) == 1_000
        url = f"{rabbit.url}?queue=grow"
        async with AsyncClient(url, timeout=20, message_size_max=500) as client:
            with pytest.raises(RemoteFailure, match="message_size_max of this client"):
                await client.call(b"x" * 100)
            assert len((await client.call(b"x" * 10)).body) == 100


@pytest.mark.parametrize("name", ["a/b", "100%", "Köln", "\0\t\x01", "q" * 255])
async def test_names_of_any_text(rabbit: Rabbit, name: str) -> None:
    @service("any")
    async def any_name(request: Request) -> bytes:
        return request.body

    url = f"{rabbit.url}?queue={quote(name, safe='')}"
    async with serving(url, any_name), AsyncClient(url, timeout=20) as client:
        assert (await client.call(b"hi")).body == b"hi"
