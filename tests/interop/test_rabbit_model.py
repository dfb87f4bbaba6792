"""Checks of a real RabbitMQ for the assumptions of the simulator's model."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from pamqp.commands import Queue
from tests.support.amqp_connection import connected, header_of, headers_of, properties_of, take
from tests.support.amqp_engines import method
from tests.support.rabbit import Rabbit

from requite.errors import TransportError
from requite.pool.manager.connection import Channel
from requite.pool.manager.errors import PRECONDITION_FAILED, Refused
from requite.protocols.amqp import methods
from requite.protocols.amqp.channels import Content
from requite.protocols.amqp.topology import Pool, RequestQueueLimits

pytestmark = [pytest.mark.interop, pytest.mark.e2e]

CORE = Pool("core")
QUEUE = CORE.request_queue("42")


@pytest.fixture
async def channel(rabbit: Rabbit) -> AsyncIterator[Channel]:
    """A channel with the topology of the pool declared."""
    async with connected(rabbit.url) as connection:
        channel = await connection.channel(confirms=True)
        for name, kind, arguments in CORE.exchanges():
            await channel.ask(methods.exchange_declare(name, kind, arguments))
        for queue in CORE.queues():
            await channel.ask(methods.queue_declare(queue.name, queue.arguments, durable=True))
        for exchange, name, key in CORE.bindings():
            await channel.ask(methods.queue_bind(name, exchange, key))
        yield channel


async def make_queue(channel: Channel, **limits: Any) -> None:
    """Declare and bind the request queue of a key."""
    queue = CORE.request_queue_to_declare("42", RequestQueueLimits(**limits))
    await channel.ask(methods.queue_declare(queue.name, queue.arguments, durable=True))
    await channel.ask(methods.queue_bind(queue.name, CORE.requests_exchange, "42"))


async def publish(channel: Channel, key: str = "42", expiration: str | None = None) -> None:
    """Publish a request, and wait for its confirm."""
    header = header_of(
        b"body", delivery_mode=2, correlation_id="c1", reply_to="replies", expiration=expiration
    )
    assert await channel.publish(CORE.requests_exchange, key, header, b"body")


def told(message: Content) -> tuple[Any, ...]:
    """Return the fields of a dead letter that a manager reads."""
    properties = properties_of(message)
    reason = headers_of(message)["x-first-death-reason"]
    return reason, properties.correlation_id, properties.reply_to


@pytest.mark.parametrize("condition", ["if_empty", "if_unused"])
async def test_quorum_queues_are_not_deleted_upon_conditions(
    channel: Channel, condition: str
) -> None:
    await make_queue(channel)
    with pytest.raises(TransportError, match="not supported by quorum queues"):  # fatal
        await channel.ask(method(Queue.Delete(queue=QUEUE, **{condition: True})))


async def test_what_is_not_bound_becomes_an_orphan_with_its_key(channel: Channel) -> None:
    await publish(channel, "a/b")
    message = await take(channel, CORE.orphan_queue)
    assert message.heard.routing_key == "a/b"
    assert "x-first-death-reason" not in headers_of(message)


async def test_orphans_that_expire_are_dead_letters(channel: Channel) -> None:
    await publish(channel, expiration="50")
    message = await take(channel, CORE.dead_letter_queue)
    assert told(message) == ("expired", "c1", "replies")
    assert message.heard.routing_key == "42"


async def test_requests_that_expire_are_dead_letters(channel: Channel) -> None:
    await make_queue(channel, ttl_s=0.05)
    await publish(channel)
    assert told(await take(channel, CORE.dead_letter_queue)) == ("expired", "c1", "replies")


async def test_requests_that_come_back_too_often_are_dead_letters(channel: Channel) -> None:
    await make_queue(channel, delivery_limit=2)
    await publish(channel)
    counts = []
    for _ in range(3):
        message = await take(channel, QUEUE)
        counts.append(headers_of(message).get("x-delivery-count", 0))
        channel.say(methods.reject(message.heard.tag, requeue=True))
    assert counts == [0, 1, 2]
    message = await take(channel, CORE.dead_letter_queue)
    assert told(message) == ("delivery_limit", "c1", "replies")


async def test_rejected_requests_are_dead_letters(channel: Channel) -> None:
    await make_queue(channel)
    await publish(channel)
    message = await take(channel, QUEUE)
    channel.say(methods.reject(message.heard.tag, requeue=False))
    assert told(await take(channel, CORE.dead_letter_queue)) == ("rejected", "c1", "replies")


async def test_of_a_full_queue_the_oldest_is_a_dead_letter(channel: Channel) -> None:
    await make_queue(channel, length_max=1)
    await publish(channel)
    await publish(channel)
    assert told(await take(channel, CORE.dead_letter_queue)) == ("maxlen", "c1", "replies")


async def test_unbinding_what_is_not_bound_is_no_error(channel: Channel) -> None:
    done = await channel.ask(methods.queue_unbind(CORE.orphan_queue, CORE.requests_exchange, "42"))
    assert done == methods.Done(methods.QUEUE_UNBIND_OK)


async def test_a_limit_that_changes_is_refused(channel: Channel) -> None:
    await make_queue(channel, delivery_limit=2)
    with pytest.raises(Refused, match="x-delivery-limit") as caught:
        await make_queue(channel, delivery_limit=3)
    assert caught.value.code == PRECONDITION_FAILED
