"""Errors name the wrong setting at once; malformed messages do not stop a worker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote

import pytest
from tests.amqp.live import responders, serving, until
from tests.spec.requirement import requirement
from tests.support.amqp_connection import connected, header_of, headers_of, properties_of
from tests.support.rabbit import Rabbit

from requite import AsyncClient, Client, Request, Worker, service
from requite.errors import CallError, RemoteFailure, TransportError
from requite.pool.manager.connection import Channel
from requite.protocols.amqp import methods
from requite.protocols.amqp.channels import Content

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


@service("echo")
async def echo(request: Request) -> bytes:
    return request.body


async def error_of_call(url: str) -> CallError:
    """Return the error of a call that must fail at once, long before its timeout of 100 s."""
    async with AsyncClient(f"{url}?queue=echo", timeout=100) as client:
        with pytest.raises(TransportError) as caught:
            await asyncio.wait_for(client.call(b""), 20)
    assert not caught.value.may_have_executed
    return caught.value


# --- credentials, virtual hosts and permissions ---------------------------------------------------
async def test_a_wrong_password(rabbit: Rabbit) -> None:
    error = await error_of_call(rabbit.url_of(password="wrong"))
    assert "check user and password, in the URL or in `--credentials-file`" in str(error)
    assert "wrong" not in str(error)


async def test_a_user_that_does_not_exist(rabbit: Rabbit) -> None:
    assert "ACCESS_REFUSED" in str(await error_of_call(rabbit.url_of(user="nobody")))


async def test_a_virtual_host_that_does_not_exist(rabbit: Rabbit) -> None:
    error = await error_of_call(rabbit.url_of(vhost="nowhere"))
    assert "the virtual host is the path of the URL" in str(error)
    assert "nowhere" in str(error)


def test_the_blocking_client_raises_the_same_error(rabbit: Rabbit) -> None:
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
async def test_missing_permissions_are_named(
    rabbit: Rabbit, grants: dict[str, str], named: str
) -> None:
    rabbit.permit(rabbit.user, **grants)
    async with AsyncClient(f"{rabbit.url}?queue=echo", timeout=100) as client:
        with pytest.raises(TransportError, match="permissions of the user") as caught:
            await asyncio.wait_for(client.call(b""), 20)
        assert named in str(caught.value)

        rabbit.permit(rabbit.user)  # calls succeed once the permissions are granted
        async with serving(rabbit.url, echo):
            async with asyncio.timeout(20):
                assert await until_answered(client) == b"hi"


async def until_answered(client: AsyncClient) -> bytes:
    """Call until a reply arrives; RabbitMQ caches a user's permissions for a while."""
    while True:
        try:
            return (await client.call(b"hi")).body
        except CallError:
            await asyncio.sleep(0.05)


async def test_direct_replies_need_no_permission_to_declare_queues(rabbit: Rabbit) -> None:
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
        await until(
            lambda: "access to queue 'echo'" in caplog.text, "a log entry about the refusal"
        )
        rabbit.permit(rabbit.user)
        await until(lambda: engine.snapshot().is_consuming, "it serves")


# --- malformed messages from a third-party client -------------------------------------------------
class RawClient:
    """An AMQP client that publishes arbitrary messages, encoded by pamqp, and collects replies."""

    def __init__(self, channel: Channel, replies: str) -> None:
        self.channel = channel
        self.replies = replies
        self.received: asyncio.Queue[Content] = asyncio.Queue()

    async def ask(self, body: bytes, **properties: Any) -> Content:
        await self.publish(body, reply_to=self.replies, **properties)
        return await asyncio.wait_for(self.received.get(), 20)

    async def publish(self, body: bytes, **properties: Any) -> None:
        assert await self.channel.publish("", "echo", header_of(body, **properties), body)


@pytest.fixture
async def client(rabbit: Rabbit) -> AsyncIterator[RawClient]:
    async with connected(rabbit.url) as connection:
        channel = await connection.channel(confirms=True)
        declared = await channel.ask(methods.queue_declare("", exclusive=True))
        client = RawClient(channel, declared.queue)
        await channel.consume(declared.queue, client.received.put_nowait, no_ack=True)
        yield client


@requirement("amqp:reply-to", "amqp:copied")
async def test_a_third_party_client_gets_replies(rabbit: Rabbit, client: RawClient) -> None:
    async with serving(rabbit.url, echo):
        reply = await client.ask(b"hello", correlation_id="any text")
        assert reply.body == b"hello"
        assert properties_of(reply).correlation_id == "any text"
        assert headers_of(reply)["x-status"] == "ok"
        assert properties_of(await client.ask(b"no id")).correlation_id is None


@pytest.mark.parametrize(
    ("properties", "why"),
    [
        ({"headers": {"x-idempotency-key": 5}}, "x-idempotency-key"),
        ({"headers": {"x-idempotency-key": {"a": [1, None]}}}, "x-idempotency-key"),
    ],
)
async def test_malformed_requests_are_answered(
    rabbit: Rabbit, client: RawClient, properties: dict[str, Any], why: str
) -> None:
    async with serving(rabbit.url, echo):
        reply = await client.ask(b"", correlation_id="c", **properties)
        assert headers_of(reply)["x-status"] == "error"
        assert why in reply.body.decode()
        assert properties_of(reply).correlation_id == "c"
        assert (await client.ask(b"on")).body == b"on"


@requirement("amqp:no-reply-to")
async def test_requests_without_reply_to_are_rejected(rabbit: Rabbit, client: RawClient) -> None:
    async with serving(rabbit.url, echo) as worker:
        await client.publish(b"into the void", correlation_id="c")
        assert (await client.ask(b"on")).body == b"on"
        [engine] = responders(worker)
        assert engine.snapshot().dropped == {"without reply-to": 1}


async def test_bodies_over_the_limit(rabbit: Rabbit) -> None:
    """The worker reports its limit to the caller; the caller's limit fails the call."""

    @service("grow")
    async def grow(request: Request) -> bytes:
        return request.body * 10

    async with serving(rabbit.url, grow, message_size_max=10_000):
        async with AsyncClient(f"{rabbit.url}?queue=grow", timeout=20) as client:
            with pytest.raises(RemoteFailure, match="message_size_max of the worker"):
                await client.call(b"x" * 10_001)
            with pytest.raises(RemoteFailure, match="the maximum is 10000"):
                await client.call(b"x" * 1_001)
            assert len((await client.call(b"x" * 100)).body) == 1_000
        url = f"{rabbit.url}?queue=grow"
        async with AsyncClient(url, timeout=20, message_size_max=500) as client:
            with pytest.raises(RemoteFailure, match="message_size_max of this client"):
                await client.call(b"x" * 100)
            assert len((await client.call(b"x" * 10)).body) == 100


@pytest.mark.parametrize("name", ["a/b", "100%", "Köln", "\0\t\x01", "q" * 255])
async def test_queue_names_may_be_any_text(rabbit: Rabbit, name: str) -> None:
    @service("any")
    async def any_name(request: Request) -> bytes:
        return request.body

    url = f"{rabbit.url}?queue={quote(name, safe='')}"
    async with serving(url, any_name), AsyncClient(url, timeout=20) as client:
        assert (await client.call(b"hi")).body == b"hi"
