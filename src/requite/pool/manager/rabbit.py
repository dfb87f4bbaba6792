"""One connection of a manager to RabbitMQ: declares, consumes and publishes.

Source: AMQP 0.9.1, and RabbitMQ's extensions: publisher confirms, `consumer cancel notify`.

Operations on queues have separate channels, since a refusal closes its channel.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final

from requite.pool.config import PoolConfig
from requite.pool.manager.address import ConnectionSettings
from requite.pool.manager.connection import Channel, Connection
from requite.pool.manager.errors import FAILURES, NOT_FOUND, Refused, is_taken
from requite.pool.manager.messages import Delivery, delivery_of
from requite.protocols.amqp import methods
from requite.protocols.amqp.channels import Content
from requite.protocols.amqp.methods import Declared
from requite.protocols.amqp.topology import Exchange, Pool

_CHANNELS_MAX: Final = 16  # channels for operations on queues

Receive = Callable[[Delivery], None]


class QueueNotFound(Exception):
    """The queue does not exist."""


class Rabbit:
    """A connection: `open` it, `take_over`, and use it until `until_closed` returns."""

    def __init__(self, config: PoolConfig) -> None:
        self._settings: Final = ConnectionSettings(config)
        self._timeout_s: Final = config.rabbitmq.publish_timeout_s
        self._prefetch: Final = config.limits.orphans
        self._pool: Final = Pool(config.pool.name)
        self._channel_slots: Final = asyncio.Semaphore(_CHANNELS_MAX)
        self._idle: Final[list[Channel]] = []
        self._consumers: Final[list[str]] = []
        self._stopping: Final = asyncio.Lock()
        self.poison_lock: Final = asyncio.Lock()
        self._connection: Connection
        self._consuming: Channel
        self._publishing: Channel

    # --- the connection ---------------------------------------------------------------------------
    async def open(self) -> None:
        """Connect, and declare the pool's exchanges and own queues. Raises `FAILURES`."""
        self._connection = Connection(self._settings)
        async with asyncio.timeout(self._timeout_s):
            await self._connection.open()
            try:
                await self._declare_all()
                self._publishing = await self._connection.channel(confirms=True)
            except BaseException:
                await self._connection.close()
                raise

    async def close(self) -> None:
        """Close the connection."""
        await self._connection.close()

    async def until_closed(self) -> str:
        """Wait until the connection, a channel or a consumer has ended; return the reason."""
        ends = [self._connection.closed, self._consuming.closed, self._publishing.closed]
        cancelled = self._consuming.cancelled
        waits: list[asyncio.Future[Any]] = [*ends, cancelled]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        if cancelled.done():
            return "a queue of the pool was deleted"
        return next(end.result().text for end in ends if end.done())

    async def _declare_all(self) -> None:
        """Declare the topology, the exchange of requests last: once clients can publish to it,
        orphans have a queue, and no request is returned."""
        requests = self._pool.requests_exchange
        exchanges = sorted(self._pool.exchanges(), key=lambda each: each.name == requests)
        async with self._connection.temporary_channel() as channel:
            for exchange in exchanges[:-1]:
                await _declare(channel, exchange)
            for name, arguments in self._pool.queues():
                await channel.ask(methods.queue_declare(name, arguments, durable=True))
            for source, queue, routing_key in self._pool.bindings():
                await channel.ask(methods.queue_bind(queue, source, routing_key))
            await _declare(channel, exchanges[-1])

    # --- consuming --------------------------------------------------------------------------------
    async def take_over(self, orphan: Receive, dead_letter: Receive, report: Receive) -> bool:
        """Start to consume exclusively; return False if another manager does.

        Checks for another consumer first, since RabbitMQ logs each refusal.
        """
        if await self.is_taken():
            return False
        self._consuming = await self._connection.channel()
        await self._consuming.ask(methods.qos(self._prefetch))
        pool = self._pool
        try:
            await self._consume(pool.orphan_queue, orphan)
            await self._consume(pool.dead_letter_queue, dead_letter)
            await self._consume(pool.activity_queue, report, no_ack=True)
        except FAILURES as error:
            if not is_taken(error):
                raise
            self._consumers.clear()
            return False
        return True

    async def is_taken(self) -> bool:
        """Whether another manager consumes orphans."""
        name = self._pool.orphan_queue
        found: Declared = await self._operate(methods.queue_declare(name, passive=True))
        return bool(found.consumers)

    async def stop_consuming(self) -> None:
        """Cancel all consumers; return when RabbitMQ has confirmed it."""
        async with self._stopping:
            while self._consumers:
                async with asyncio.timeout(self._timeout_s):
                    await self._consuming.ask(methods.cancel(self._consumers[-1]))
                self._consumers.pop()

    async def ack(self, delivery_tag: int) -> None:
        """Acknowledge a delivery."""
        self._consuming.say(methods.ack(delivery_tag))

    async def _consume(self, queue: str, receive: Receive, *, no_ack: bool = False) -> None:
        def arrived(content: Content) -> None:
            receive(delivery_of(content))

        async with asyncio.timeout(self._timeout_s):
            tag = await self._consuming.consume(queue, arrived, no_ack=no_ack)
        self._consumers.append(tag)

    # --- publishing -------------------------------------------------------------------------------
    async def publish(self, exchange: str, routing_key: str, header: bytes, body: bytes) -> bool:
        """Publish, and wait for the confirm; return False if unroutable."""
        async with asyncio.timeout(self._timeout_s):
            return await self._publishing.publish(exchange, routing_key, header, body)

    async def tell_workers(self, header: bytes) -> bool:
        """Publish a drain; return False if no worker receives it.

        Older workers receive drains over the exchange of cancels only; the others ignore them
        there, since callers may write to it.
        """
        exchanges = (self._pool.drain_exchange, self._pool.control_exchange)
        return any([await self.publish(each, "", header, b"") for each in exchanges])

    # --- queues -----------------------------------------------------------------------------------
    async def declare(self, key: str, arguments: dict[str, Any]) -> None:
        """Declare a group's queue."""
        queue = self._pool.request_queue(key)
        await self._operate(methods.queue_declare(queue, arguments, durable=True))

    async def bind(self, key: str) -> None:
        """Bind a group's queue."""
        queue, exchange = self._pool.request_queue(key), self._pool.requests_exchange
        await self._operate(methods.queue_bind(queue, exchange, key))

    async def unbind(self, key: str) -> None:
        """Unbind a group's queue."""
        queue, exchange = self._pool.request_queue(key), self._pool.requests_exchange
        await self._operate(methods.queue_unbind(queue, exchange, key))

    async def delete(self, key: str) -> None:
        """Delete a group's queue."""
        await self._operate(methods.queue_delete(self._pool.request_queue(key)))

    async def count(self, key: str) -> tuple[int, int]:
        """Return the counts of ready messages and consumers of a group's queue."""
        queue = self._pool.request_queue(key)
        found: Declared = await self._operate(methods.queue_declare(queue, passive=True))
        return found.messages, found.consumers

    async def check(self) -> None:
        """Test the connection with a passive declaration."""
        await self._operate(methods.queue_declare(self._pool.orphan_queue, passive=True))

    async def _operate(self, method: bytes) -> Any:
        """Send a method on a pooled channel. Raises `QueueNotFound`, or `FAILURES`."""
        async with (
            self._channel_slots,
            asyncio.timeout(self._timeout_s),
            self._pooled_channel() as channel,
        ):
            try:
                return await channel.ask(method)
            except Refused as error:
                if error.code == NOT_FOUND:
                    raise QueueNotFound(str(error)) from error
                raise

    @asynccontextmanager
    async def _pooled_channel(self) -> AsyncIterator[Channel]:
        """Take an idle channel, or open one, and return it to the pool after success.

        Opening and closing a channel takes twice the time of an operation.
        """
        while self._idle and self._idle[-1].is_closed:
            self._idle.pop()
        channel = self._idle.pop() if self._idle else await self._connection.channel()
        try:
            yield channel
        except BaseException:
            channel.leave()
            raise
        self._idle.append(channel)

    def own_channel(self) -> AbstractAsyncContextManager[Channel]:
        """Return a channel for a `with` block; closing it requeues unacknowledged messages."""
        return self._connection.temporary_channel()


async def _declare(channel: Channel, exchange: Exchange) -> None:
    name, kind, arguments = exchange
    await channel.ask(methods.exchange_declare(name, kind, arguments))
