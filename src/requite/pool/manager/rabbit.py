"""One connection of a manager to RabbitMQ: what is declared, consumed and published.

Source: AMQP 0.9.1, and RabbitMQ's extensions: publisher confirms, `consumer cancel notify`. aiormq
speaks it, the layer below aio-pika: messages are handed on with all their properties, so what the
upper layer adds, objects for messages and a connection that hides its ends, would be in the way.

Queues are declared, bound and deleted on channels of their own, since a refusal closes the channel.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

import aiormq
from aiormq.abc import AbstractChannel, AbstractConnection, DeliveredMessage
from aiormq.exceptions import ChannelNotFoundEntity, PublishError
from pamqp.commands import Basic, Queue

from requite.errors import ConfigurationError
from requite.pool.config import PoolConfig
from requite.pool.manager.address import Place
from requite.pool.manager.errors import FAILURES, is_taken
from requite.pool.manager.lenient import read_anything
from requite.protocols.amqp.topology import Exchange, Pool

_AT_A_TIME: Final = 16  # channels for operations on queues

Receive = Callable[[DeliveredMessage], None]


class Absent(Exception):
    """There is no such queue."""


class Rabbit:
    """A connection; `open` it, `take_over`, and use it until `until_closed` returns."""

    def __init__(self, config: PoolConfig) -> None:
        self._place: Final = Place(config)
        self._timeout_s: Final = config.rabbitmq.publish_timeout_s
        self._prefetch: Final = config.limits.orphans
        self._pool: Final = Pool(config.pool.name)
        self._free: Final = asyncio.Semaphore(_AT_A_TIME)
        self._idle: Final[list[AbstractChannel]] = []
        self._cancelled: Final = asyncio.Event()
        self._consumers: Final[list[str]] = []
        self._stopping: Final = asyncio.Lock()
        self.looking: Final = asyncio.Lock()  # whoever looks at the poison queue
        self._connection: AbstractConnection
        self._consuming: AbstractChannel
        self._publishing: AbstractChannel

    # --- the connection ---------------------------------------------------------------------------
    async def open(self) -> None:
        """Connect, and declare what the pool has besides its groups. Raises `FAILURES`."""
        read_anything()
        try:
            options = self._place.options
        except ConfigurationError as error:  # a file was there when the manager started
            raise OSError(str(error)) from error
        async with asyncio.timeout(self._timeout_s):
            self._connection = await aiormq.connect(self._place.url, **options)
            try:
                await self._declare_all()
                self._publishing = await self._connection.channel(publisher_confirms=True)
            except BaseException:
                await self._connection.close()
                raise

    async def close(self) -> None:
        """Close the connection."""
        with suppress(*FAILURES):
            await self._connection.close()

    async def until_closed(self) -> str:
        """Wait until the connection, a channel or a consumer has ended; return why."""
        closings = [
            self._connection.closing,
            self._consuming.closing,
            self._publishing.closing,
            asyncio.ensure_future(self._cancelled.wait()),
        ]
        try:
            await asyncio.wait(closings, return_when=asyncio.FIRST_COMPLETED)
        finally:
            closings[-1].cancel()
        if self._cancelled.is_set():
            return "a queue of the pool was deleted"
        ended = next(each for each in closings if each.done())
        return str(ended.exception() or "closed")

    async def _declare_all(self) -> None:
        """Declare everything, and the exchange of requests last: whoever finds that finds the way
        to the queue of orphans behind it, and has no request returned."""
        requests = self._pool.requests_exchange
        exchanges = sorted(self._pool.exchanges(), key=lambda each: each.name == requests)
        async with self._channel() as channel:
            for exchange in exchanges[:-1]:
                await _declare(channel, exchange)
            for name, arguments in self._pool.queues():
                await channel.queue_declare(name, durable=True, arguments=dict(arguments))
            for source, queue, routing_key in self._pool.bindings():
                await channel.queue_bind(queue, source, routing_key)
            await _declare(channel, exchanges[-1])

    # --- consuming --------------------------------------------------------------------------------
    async def take_over(self, orphan: Receive, dead_letter: Receive, report: Receive) -> bool:
        """Be the one who consumes; False while another manager is.

        Who consumes is looked up first: of each refusal RabbitMQ writes a line into its log.
        """
        if await self.is_taken():
            return False
        self._consuming = await self._connection.channel(publisher_confirms=False)
        self._consuming.on_consumer_cancel_callbacks.add(self._on_cancel)
        await self._consuming.basic_qos(prefetch_count=self._prefetch)
        pool = self._pool
        try:
            await self._consume(pool.orphan_queue, orphan)
            await self._consume(pool.dead_letter_queue, dead_letter)
            await self._consume(pool.activity_queue, report, no_ack=True)
        except FAILURES as error:
            if not is_taken(error):
                raise
            return False
        return True

    async def is_taken(self) -> bool:
        """Tell whether somebody consumes orphans."""
        name = self._pool.orphan_queue
        found = await self._operate(lambda on: on.queue_declare(name, passive=True))
        return bool(found.consumer_count)

    async def stop_consuming(self) -> None:
        """Take nothing more; return when RabbitMQ gives nothing more."""
        async with self._stopping:
            while self._consumers:
                await self._consuming.basic_cancel(self._consumers[-1], timeout=self._timeout_s)
                self._consumers.pop()

    async def ack(self, delivery_tag: int) -> None:
        """Acknowledge a delivery."""
        await self._consuming.basic_ack(delivery_tag)

    async def _consume(self, queue: str, receive: Receive, *, no_ack: bool = False) -> None:
        async def on_message(message: DeliveredMessage) -> None:
            receive(message)

        begun = await self._consuming.basic_consume(
            queue, on_message, no_ack=no_ack, exclusive=True, timeout=self._timeout_s
        )
        self._consumers.append(str(begun.consumer_tag))

    def _on_cancel(self, _frame: Any) -> None:
        self._cancelled.set()

    # --- publishing -------------------------------------------------------------------------------
    async def publish(
        self, exchange: str, routing_key: str, body: bytes, properties: Basic.Properties
    ) -> bool:
        """Publish, and wait for the confirm; return False where no queue takes it."""
        try:
            await self._publishing.basic_publish(
                body,
                exchange=exchange,
                routing_key=routing_key,
                properties=properties,
                mandatory=True,
                timeout=self._timeout_s,
            )
        except PublishError:
            return False
        return True

    async def tell_workers(self, properties: Basic.Properties) -> bool:
        """Publish a control message; return False where no worker hears it."""
        return await self.publish(self._pool.control_exchange, "", b"", properties)

    # --- queues -----------------------------------------------------------------------------------
    async def declare(self, key: str, arguments: dict[str, Any]) -> None:
        """Declare a group's queue."""
        await self._on_queue(key, Queue.Declare(durable=True, arguments=arguments))

    async def bind(self, key: str) -> None:
        """Bind a group's queue."""
        exchange = self._pool.requests_exchange
        await self._on_queue(key, Queue.Bind(exchange=exchange, routing_key=key))

    async def unbind(self, key: str) -> None:
        """Unbind a group's queue."""
        exchange = self._pool.requests_exchange
        await self._on_queue(key, Queue.Unbind(exchange=exchange, routing_key=key))

    async def delete(self, key: str) -> None:
        """Delete a group's queue."""
        await self._on_queue(key, Queue.Delete())

    async def count(self, key: str) -> tuple[int, int]:
        """Return how many messages wait in a group's queue, and how many consumers it has."""
        found = await self._on_queue(key, Queue.Declare(passive=True))
        return found.message_count or 0, found.consumer_count or 0

    async def check(self) -> None:
        """Ask RabbitMQ something that it has to look up."""
        name = self._pool.orphan_queue
        await self._operate(lambda on: on.queue_declare(name, passive=True))

    async def _on_queue(self, key: str, frame: Any) -> Any:
        """Do something with a group's queue.

        pamqp refuses names with a `%`, which RabbitMQ takes and all keys but the plainest have; so
        its check of this frame is left out.
        """
        frame.queue = self._pool.request_queue(key)
        frame.validate = _accept
        return await self._operate(lambda on: on.rpc(frame))  # type: ignore[attr-defined]

    async def _operate(self, operation: Callable[[AbstractChannel], Awaitable[Any]]) -> Any:
        """Do something on a channel of its own. Raises `Absent`, or `FAILURES`."""
        async with self._free, asyncio.timeout(self._timeout_s), self._kept_channel() as channel:
            try:
                return await operation(channel)
            except ChannelNotFoundEntity as error:
                raise Absent(str(error)) from error

    @asynccontextmanager
    async def _kept_channel(self) -> AsyncIterator[AbstractChannel]:
        """Take a channel that has done well before, else a new one, and keep it if it does well.

        To open one for each operation, and close it, takes twice the time of the operation itself.
        """
        while self._idle and self._idle[-1].is_closed:
            self._idle.pop()
        if self._idle:
            channel = self._idle.pop()
        else:
            channel = await self._connection.channel(publisher_confirms=False)
        try:
            yield channel
        except BaseException:
            await _close(channel)
            raise
        self._idle.append(channel)

    @asynccontextmanager
    async def _channel(self) -> AsyncIterator[AbstractChannel]:
        channel = await self._connection.channel(publisher_confirms=False)
        try:
            yield channel
        finally:
            await _close(channel)

    def own_channel(self) -> Any:
        """Return a channel for the length of a `with`; what was got and not acknowledged on it goes
        back to its queue."""
        return self._channel()


async def _close(channel: AbstractChannel) -> None:
    if not channel.is_closed:
        with suppress(*FAILURES):
            await channel.close()


async def _declare(channel: AbstractChannel, exchange: Exchange) -> None:
    name, kind, arguments = exchange
    await channel.exchange_declare(
        name, exchange_type=kind, durable=True, arguments=dict(arguments)
    )


def _accept() -> None:
    """Take any name."""
