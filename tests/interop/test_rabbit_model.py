"""What the simulator's model of RabbitMQ takes for granted, asked of a real one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import aiormq
import pytest
from aiormq.abc import AbstractChannel, DeliveredMessage
from aiormq.exceptions import ConnectionNotImplemented
from pamqp.commands import Basic, Queue
from tests.support.rabbit import Rabbit

from requite.protocols.amqp.topology import Pool, RequestQueueLimits

pytestmark = [pytest.mark.interop, pytest.mark.e2e]

CORE = Pool("core")
QUEUE = CORE.request_queue("42")
WAIT_S = 20.0


@pytest.fixture
async def channel(rabbit: Rabbit) -> AsyncIterator[AbstractChannel]:
    """A channel of a connection, with the pool declared."""
    connection = await aiormq.connect(rabbit.url)
    channel = await connection.channel()
    for name, kind, arguments in CORE.exchanges():
        await channel.exchange_declare(
            name, exchange_type=kind, durable=True, arguments=dict(arguments)
        )
    for queue in CORE.queues():
        await channel.queue_declare(queue.name, durable=True, arguments=dict(queue.arguments))
    for exchange, name, key in CORE.bindings():
        await channel.queue_bind(name, exchange, key)
    yield channel
    await connection.close()


async def make_queue(channel: AbstractChannel, **limits: Any) -> None:
    """Declare and bind the request queue of a key."""
    queue = CORE.request_queue_to_declare("42", RequestQueueLimits(**limits))
    await channel.queue_declare(queue.name, durable=True, arguments=dict(queue.arguments))
    await channel.queue_bind(queue.name, CORE.requests_exchange, "42")


async def publish(channel: AbstractChannel, key: str = "42", expiration: str | None = None) -> None:
    """Publish a request, and wait for its confirm."""
    properties = Basic.Properties(
        delivery_mode=2, correlation_id="c1", reply_to="replies", expiration=expiration
    )
    await channel.basic_publish(
        b"body",
        exchange=CORE.requests_exchange,
        routing_key=key,
        properties=properties,
        mandatory=True,
    )


async def take(channel: AbstractChannel, queue: str) -> DeliveredMessage:
    """Wait for a message in a queue, and take it."""
    arrived: asyncio.Queue[DeliveredMessage] = asyncio.Queue()
    begun = await channel.basic_consume(queue, arrived.put)
    async with asyncio.timeout(WAIT_S):
        message = await arrived.get()
    await channel.basic_cancel(str(begun.consumer_tag))
    return message


def told(message: DeliveredMessage) -> tuple[Any, ...]:
    """Return what a manager reads of a dead letter."""
    properties = message.header.properties
    headers = properties.headers or {}
    return headers["x-first-death-reason"], properties.correlation_id, properties.reply_to


@pytest.mark.parametrize("condition", ["if_empty", "if_unused"])
async def test_quorum_queues_are_not_deleted_upon_conditions(
    channel: AbstractChannel, condition: str
) -> None:
    await make_queue(channel)
    with pytest.raises(ConnectionNotImplemented, match="not supported by quorum queues"):
        await channel.rpc(Queue.Delete(queue=QUEUE, **{condition: True}))


async def test_what_is_not_bound_becomes_an_orphan_with_its_key(channel: AbstractChannel) -> None:
    await publish(channel, "a/b")
    message = await take(channel, CORE.orphan_queue)
    assert message.delivery.routing_key == "a/b"
    assert "x-first-death-reason" not in (message.header.properties.headers or {})


async def test_orphans_that_expire_are_dead_letters(channel: AbstractChannel) -> None:
    await publish(channel, expiration="50")
    message = await take(channel, CORE.dead_letter_queue)
    assert told(message) == ("expired", "c1", "replies")
    assert message.delivery.routing_key == "42"


async def test_requests_that_expire_are_dead_letters(channel: AbstractChannel) -> None:
    await make_queue(channel, ttl_s=0.05)
    await publish(channel)
    assert told(await take(channel, CORE.dead_letter_queue)) == ("expired", "c1", "replies")


async def test_requests_that_come_back_too_often_are_dead_letters(channel: AbstractChannel) -> None:
    await make_queue(channel, delivery_limit=2)
    await publish(channel)
    counts = []
    for _ in range(3):
        message = await take(channel, QUEUE)
        counts.append((message.header.properties.headers or {}).get("x-delivery-count", 0))
        assert message.delivery_tag is not None
        await channel.basic_reject(message.delivery_tag, requeue=True)
    assert counts == [0, 1, 2]
    message = await take(channel, CORE.dead_letter_queue)
    assert told(message) == ("delivery_limit", "c1", "replies")


async def test_rejected_requests_are_dead_letters(channel: AbstractChannel) -> None:
    await make_queue(channel)
    await publish(channel)
    message = await take(channel, QUEUE)
    assert message.delivery_tag is not None
    await channel.basic_reject(message.delivery_tag, requeue=False)
    assert told(await take(channel, CORE.dead_letter_queue)) == ("rejected", "c1", "replies")


async def test_of_a_full_queue_the_oldest_is_a_dead_letter(channel: AbstractChannel) -> None:
    await make_queue(channel, length_max=1)
    await publish(channel)
    await publish(channel)
    assert told(await take(channel, CORE.dead_letter_queue)) == ("maxlen", "c1", "replies")


async def test_unbinding_what_is_not_bound_is_no_error(channel: AbstractChannel) -> None:
    await channel.queue_unbind(CORE.orphan_queue, CORE.requests_exchange, "42")


async def test_a_limit_that_changes_is_refused(channel: AbstractChannel) -> None:
    await make_queue(channel, delivery_limit=2)
    with pytest.raises(aiormq.exceptions.ChannelPreconditionFailed, match="x-delivery-limit"):
        await make_queue(channel, delivery_limit=3)
