"""The poison queue: lists and retries requests that reached the delivery limit."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final, NamedTuple

from requite.pool.manager.connection import Channel
from requite.pool.manager.messages import Delivery, delivery_of, renewed
from requite.pool.manager.rabbit import Rabbit
from requite.protocols.amqp import methods
from requite.protocols.amqp.channels import Content
from requite.protocols.amqp.fields import AS_IT_IS
from requite.protocols.amqp.topology import Pool
from requite.protocols.amqp.wire import ATTEMPT

_PEEK_MAX: Final = 1_000
_PEEK_BYTES_MAX: Final = 64 << 20  # one `peek` holds them in memory
_FIRST_DEATH_QUEUE: Final = "x-first-death-queue"


class Poisoned(NamedTuple):
    """A request in the poison queue. `id` is a digest of its ids and body."""

    id: str
    key: str | None
    correlation_id: str | None
    reply_to: str | None
    attempts: int
    size_bytes: int


class PoisonListing(NamedTuple):
    """The oldest requests of the queue, and how many more there are."""

    found: Sequence[Poisoned]
    more: int


class PoisonQueue:
    """The poison queue of a pool, which has no consumer: `peek` gets and requeues its oldest
    requests.

    One `peek` gets at most a thousand requests, and stops after 64 MiB of bodies. A lock serializes
    calls, which would hide requests from each other.
    """

    def __init__(self, rabbit: Rabbit, pool: str) -> None:
        self._rabbit: Final = rabbit
        self._pool: Final = Pool(pool)

    async def peek(self) -> PoisonListing:
        """Return the oldest requests, oldest first."""
        async with self._borrowed() as (found, more, _):
            return PoisonListing([self._describe(delivery) for delivery in found], more)

    async def retry(self, selected: Callable[[Poisoned], bool]) -> int:
        """Publish the selected requests of one `peek` as if they were new; return how many.

        A request that no queue takes stays.
        """
        retried = 0
        async with self._borrowed() as (found, _, channel):
            for delivery in found:
                poisoned = self._describe(delivery)
                if selected(poisoned) and await self._publish(poisoned.key, delivery):
                    channel.say(methods.ack(delivery.tag))
                    retried += 1
        return retried

    async def _publish(self, key: str | None, delivery: Delivery) -> bool:
        if key is None:
            return False
        exchange = self._pool.requests_exchange
        return await self._rabbit.publish(exchange, key, renewed(delivery), delivery.body)

    @asynccontextmanager
    async def _borrowed(self) -> AsyncIterator[tuple[Sequence[Delivery], int, Channel]]:
        """Get requests for a `with` block; those not acknowledged are requeued."""
        async with self._rabbit.poison_lock, self._rabbit.own_channel() as channel:
            found: list[Delivery] = []
            more = size = 0
            while len(found) < _PEEK_MAX and size < _PEEK_BYTES_MAX:
                got = await channel.ask(methods.get(self._pool.poison_queue))
                if isinstance(got, methods.Got):
                    continue  # too large: logged by the engine, and requeued
                if not (isinstance(got, Content) and isinstance(got.heard, methods.Got)):
                    more = 0
                    break
                more = got.heard.more
                delivery = delivery_of(got)
                found.append(delivery)
                size += len(delivery.body)
            yield found, more, channel

    def _describe(self, delivery: Delivery) -> Poisoned:
        properties = delivery.properties
        attempts = properties.headers.get(ATTEMPT)
        return Poisoned(
            _digest(delivery),
            self._pool.key_of(str(properties.headers.get(_FIRST_DEATH_QUEUE, ""))),
            _shown(properties.correlation_id) or None,
            _shown(properties.reply_to) or None,
            attempts if isinstance(attempts, int) else 0,
            len(delivery.body),
        )


def _shown(text: str) -> str:
    """Return a text with replacement characters for bytes that are not UTF-8."""
    return text.encode("utf-8", AS_IT_IS).decode("utf-8", "replace")


def _digest(delivery: Delivery) -> str:
    properties = delivery.properties
    parts = (properties.message_id, properties.correlation_id, properties.reply_to)
    text = "\0".join(map(_shown, parts)).encode() + b"\0" + delivery.body
    return hashlib.sha256(text).hexdigest()[:16]
