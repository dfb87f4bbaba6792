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
from requite.protocols.amqp.wire import DELIVERY_COUNT

_LISTED_MAX: Final = 1_000
_FIRST_DEATH_QUEUE: Final = "x-first-death-queue"


class Poisoned(NamedTuple):
    """A request in the poison queue. `id` names it: a digest of what it is."""

    id: str
    key: str | None
    correlation_id: str | None
    reply_to: str | None
    attempts: int
    size_bytes: int


class PoisonQueue:
    """The poison queue of a pool. Nobody consumes from it, so that a look takes everything out,
    and lets it go back."""

    def __init__(self, rabbit: Rabbit, pool: str) -> None:
        self._rabbit: Final = rabbit
        self._pool: Final = Pool(pool)

    async def list(self) -> Sequence[Poisoned]:
        """Return what is in there, the oldest first; at most a thousand."""
        async with self._taken() as (found, _):
            return [self._describe(message) for message in found]

    async def retry(self, wanted: Callable[[Poisoned], bool]) -> int:
        """Publish those that are wanted as if they were new; return how many there were."""
        tried = 0
        async with self._taken() as (found, channel):
            for message in found:
                poisoned = self._describe(message)
                if wanted(poisoned) and poisoned.key is not None:
                    await self._publish(poisoned.key, message)
                    await channel.basic_ack(message.delivery_tag)
                    tried += 1
        return tried

    async def _publish(self, key: str, message: DeliveredMessage) -> None:
        exchange = self._pool.requests_exchange
        await self._rabbit.publish(exchange, key, message.body, renewed(message))

    @asynccontextmanager
    async def _taken(self) -> AsyncIterator[tuple[Sequence[DeliveredMessage], Any]]:
        """Take everything out for a moment; what is not acknowledged goes back."""
        async with self._rabbit.own_channel() as channel:
            found: Any = []
            while len(found) < _LISTED_MAX:
                message = await channel.basic_get(self._pool.poison_queue)
                if message.delivery_tag is None:
                    break
                found.append(message)
            yield found, channel

    def _describe(self, message: DeliveredMessage) -> Poisoned:
        properties = message.header.properties
        headers: dict[str, Any] = dict(properties.headers or {})
        attempts = headers.get(DELIVERY_COUNT)
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
