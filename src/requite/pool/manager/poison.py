"""Requests that killed as many workers as allowed: what they are, and how they are tried again."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, NamedTuple

from aiormq.abc import DeliveredMessage

from requite.pool.manager.messages import renewed
from requite.pool.manager.rabbit import Rabbit
from requite.protocols.amqp.topology import Pool
from requite.protocols.amqp.wire import ATTEMPT

_TAKEN_MAX: Final = 1_000
_TAKEN_BYTES_MAX: Final = 64 << 20  # a look holds all of it in memory
_FIRST_DEATH_QUEUE: Final = "x-first-death-queue"


class Poisoned(NamedTuple):
    """A request in the poison queue. `id` names it: a digest of what it is."""

    id: str
    key: str | None
    correlation_id: str | None
    reply_to: str | None
    attempts: int
    size_bytes: int


class Look(NamedTuple):
    """What a look at the queue has shown: the oldest requests, and how many more there are."""

    found: Sequence[Poisoned]
    more: int


class PoisonQueue:
    """The poison queue of a pool. Nobody consumes from it, so that a look takes the oldest requests
    out, and lets them go back.

    It takes a thousand of them at most, and 64 MiB of bodies (and one more). Two looks at a time
    would each see what the other leaves, so there is one.
    """

    def __init__(self, rabbit: Rabbit, pool: str) -> None:
        self._rabbit: Final = rabbit
        self._pool: Final = Pool(pool)

    async def look(self) -> Look:
        """Return what is in there, the oldest first."""
        async with self._taken() as (found, more, _):
            return Look([self._describe(message) for message in found], more)

    async def retry(self, wanted: Callable[[Poisoned], bool]) -> int:
        """Publish those that are wanted as if they were new, of as many as a look shows; return how
        many there were. One that no queue takes stays."""
        tried = 0
        async with self._taken() as (found, _, channel):
            for message in found:
                poisoned = self._describe(message)
                if wanted(poisoned) and await self._publish(poisoned.key, message):
                    await channel.basic_ack(message.delivery_tag)
                    tried += 1
        return tried

    async def _publish(self, key: str | None, message: DeliveredMessage) -> bool:
        if key is None:
            return False
        exchange = self._pool.requests_exchange
        return await self._rabbit.publish(exchange, key, message.body, renewed(message))

    @asynccontextmanager
    async def _taken(self) -> AsyncIterator[tuple[Sequence[DeliveredMessage], int, Any]]:
        """Take requests out for a moment; what is not acknowledged goes back."""
        async with self._rabbit.looking, self._rabbit.own_channel() as channel:
            found: list[DeliveredMessage] = []
            more = size = 0
            while len(found) < _TAKEN_MAX and size < _TAKEN_BYTES_MAX:
                message = await channel.basic_get(self._pool.poison_queue)
                more = message.message_count or 0
                if message.delivery_tag is None:
                    break
                found.append(message)
                size += len(message.body)
            yield found, more, channel

    def _describe(self, message: DeliveredMessage) -> Poisoned:
        properties = message.header.properties
        headers: dict[str, Any] = dict(properties.headers or {})
        attempts = headers.get(ATTEMPT)
        return Poisoned(
            _digest(message),
            self._pool.key_of(str(headers.get(_FIRST_DEATH_QUEUE, ""))),
            properties.correlation_id,
            properties.reply_to,
            attempts if isinstance(attempts, int) else 0,
            len(message.body),
        )


def _digest(message: DeliveredMessage) -> str:
    properties = message.header.properties
    parts = (properties.message_id, properties.correlation_id, properties.reply_to)
    text = "\0".join(part or "" for part in parts).encode() + b"\0" + message.body
    return hashlib.sha256(text).hexdigest()[:16]
