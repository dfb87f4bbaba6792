"""One connection of a manager to RabbitMQ: what is declared, consumed and published.

Source: AMQP 0.9.1, and RabbitMQ's extensions: publisher confirms, `consumer cancel notify`.

Queues are declared, bound and deleted on channels of their own, since a refusal closes the channel.
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
    """There is no such queue."""


class Rabbit:
    """A connection; `open` it, `take_over`, and use it until `until_closed` returns."""

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
        """Connect, and declare what the pool has besides its groups. Raises `FAILURES`."""
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
        """Wait until the connection, a channel or a consumer has ended; return why."""
        ends = [self._connection.closed, self._consuming.closed, self._publishing.closed]
        cancelled = self._consuming.cancelled
        waits: list[asyncio.Future[Any]] = [*ends, cancelled]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        if cancelled.done():
            return "a queue of the pool was deleted"
        return next(end.result().text for end in ends if end.done())

    async def _declare_all(self) -> None:
        """Declare everything, and the exchange of requests last: whoever finds that finds the way
        to the queue of orphans behind it, and has no request returned."""
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
        """Be the one who consumes; False while another manager is.

        Who consumes is looked up first: of each refusal RabbitMQ writes a line into its log.
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
        """Tell whether somebody consumes orphans."""
        name = self._pool.orphan_queue
        found: Declared = await self._operate(methods.queue_declare(name, passive=True))
        return bool(found.consumers)

    async def stop_consuming(self) -> None:
        """Take nothing more; return when RabbitMQ gives nothing more."""
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
        """Publish, and wait for the confirm; return False where no queue takes it."""
        async with asyncio.timeout(self._timeout_s):
            return await self._publishing.publish(exchange, routing_key, header, body)

    async def tell_workers(self, header: bytes) -> bool:
        """Publish a control message; return False where no worker hears it."""
        return await self.publish(self._pool.control_exchange, "", header, b"")

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
        """Return how many messages wait in a group's queue, and how many consumers it has."""
        queue = self._pool.request_queue(key)
        found: Declared = await self._operate(methods.queue_declare(queue, passive=True))
        return found.messages, found.consumers

    async def check(self) -> None:
        """Ask RabbitMQ something that it has to look up."""
        await self._operate(methods.queue_declare(self._pool.orphan_queue, passive=True))

    async def _operate(self, method: bytes) -> Any:
        """Ask something on a channel of its own. Raises `QueueNotFound`, or `FAILURES`."""
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
        """Take a channel that has done well before, else a new one, and keep it if it does well.

        To open one for each operation, and close it, takes twice the time of the operation itself.
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
        """Return a channel for the length of a `with`; what was got and not acknowledged on it goes
        back to its queue."""
        return self._connection.temporary_channel()


async def _declare(channel: Channel, exchange: Exchange) -> None:
    name, kind, arguments = exchange
    await channel.ask(methods.exchange_declare(name, kind, arguments))
