"""A connection to RabbitMQ and its channels, for `async def`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

from requite.errors import TransportError
from requite.framing.amqp import Amqp
from requite.pool.manager.address import ConnectionSettings
from requite.pool.manager.errors import ConnectionRefused, Refused, is_foreign
from requite.protocols.amqp import methods
from requite.protocols.amqp.channels import (
    AmqpChannels,
    Ask,
    Content,
    OpenChannel,
    Opened,
    Publish,
    Say,
)
from requite.protocols.amqp.methods import Cancelled, Closed, Confirmed, Returned, Tuned
from requite.shell.aio import AioShell
from requite.shell.connections import Connections
from requite.shell.link import Link, reason_of_end
from requite.transport.aio import dial

_CLOSE: Final = methods.channel_close(200, "done")

Receive = Callable[[Content], None]


class Connection:
    """A connection; `open` it once. `closed` is done when it has ended, with the reason."""

    def __init__(self, settings: ConnectionSettings) -> None:
        self._settings: Final = settings
        self._link: Link | None = None
        self._begun: Final[asyncio.Future[Tuned | Closed]] = _future()
        self.closed: Final[asyncio.Future[Closed]] = _future()
        self._shell: Final = AioShell(
            AmqpChannels(self._changed),
            Connections(),
            on_change=self._check_link,
            deliver=lambda token, what: token(what),
            logger="requite.pool",
            reports_dials=True,
        )

    async def open(self) -> None:
        """Connect. Raises `ConnectionRefused` and `TransportError`."""
        self._shell.start()
        try:
            await dial(self._settings.address, self._dialled, tls=self._settings.tls)
            answer = await self._begun
            if isinstance(answer, Closed):
                raise _connection_failure(answer)
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Close the connection, and with it all channels."""
        await self._shell.close()
        _settle(self.closed, Closed(0, "closed", b""))

    async def channel(self, *, confirms: bool = False) -> Channel:
        """Open a channel. Raises `TransportError`."""
        channel = Channel(self)
        await channel.open(confirms)
        return channel

    @asynccontextmanager
    async def temporary_channel(self) -> AsyncIterator[Channel]:
        """Open a channel for a `with` block; closing it requeues unacknowledged messages. Raises
        `TransportError`."""
        channel = await self.channel()
        try:
            yield channel
        finally:
            await channel.close()

    def submit(self, event: Any) -> None:
        """Feed an input to the engine."""
        self._shell.submit(event)

    async def answer_to(self, make: Callable[[Callable[[Any], None]], Any]) -> Any:
        """Feed `make(token)` to the engine, and return its answer. Raises `Refused`, and
        `TransportError` if the connection ends first."""
        future: asyncio.Future[Any] = _future()
        self.submit(make(lambda what: _settle(future, what)))
        answer = await future
        if isinstance(answer, Closed):
            raise failure_of(answer)
        return answer

    def _dialled(self, stream: Any) -> None:
        framing = Amqp(self._settings.amqp)
        self._link = self._shell.host.opened(stream, framing=framing, kept=True)

    def _check_link(self) -> None:
        """Detect a connection that ended in its handshake, which the engine does not see."""
        if self._link is not None and self._link.ended:
            _settle(self._begun, Closed(0, reason_of_end(self._link.framing), b""))

    def _changed(self, what: Tuned | Closed) -> None:
        _settle(self._begun, what)
        if isinstance(what, Closed):
            _settle(self.closed, what)


class Channel:
    """A channel. `closed` is done when it has ended; `cancelled`, when RabbitMQ has cancelled one
    of its consumers, because the queue was deleted."""

    def __init__(self, connection: Connection) -> None:
        self._connection: Final = connection
        self._number = b""
        self._receivers: Final[dict[str, Receive]] = {}
        self._opened: Final[asyncio.Future[Opened | Closed]] = _future()
        self.closed: Final[asyncio.Future[Closed]] = _future()
        self.cancelled: Final[asyncio.Future[Cancelled]] = _future()

    @property
    def is_closed(self) -> bool:
        """Whether it has ended."""
        return self.closed.done()

    async def open(self, confirms: bool) -> None:
        """Open the channel; with `confirms`, to publish. Raises `TransportError`."""
        self._connection.submit(OpenChannel(self._hear, confirms))
        opened = await self._opened
        if isinstance(opened, Closed):
            raise failure_of(opened)
        self._number = opened.channel

    async def close(self) -> None:
        """Close the channel; return when RabbitMQ has, or the connection has ended."""
        self.leave()
        await asyncio.wait([self.closed])

    def leave(self) -> None:
        """Start to close the channel."""
        if not self.is_closed:
            self._connection.submit(Ask(_ignore, self._number, _CLOSE))

    async def ask(self, method: bytes) -> Any:
        """Send a method, and return its answer. Raises `Refused`, which ends the channel, and
        `TransportError`."""
        return await self._connection.answer_to(lambda token: Ask(token, self._number, method))

    async def publish(self, exchange: str, routing_key: str, header: bytes, body: bytes) -> bool:
        """Publish, and wait for the confirm; return False if unroutable. `header` is the content
        header. Raises `Refused` and `TransportError`."""
        answer = await self._connection.answer_to(
            lambda token: Publish(token, self._number, exchange, routing_key, header, body)
        )
        if isinstance(answer, Confirmed) and not answer.is_taken:
            raise TransportError("RabbitMQ could not store the message (basic.nack)")
        return not isinstance(answer, Returned)

    async def consume(self, queue: str, receive: Receive, *, no_ack: bool = False) -> str:
        """Consume a queue exclusively; return the consumer tag. Raises `Refused` and
        `TransportError`."""
        self._receivers[queue] = receive
        await self.ask(methods.consume(queue, queue, no_ack=no_ack, exclusive=True))
        return queue

    def say(self, method: bytes) -> None:
        """Send a method without an answer."""
        self._connection.submit(Say(self._number, method))

    def _hear(self, what: Any) -> None:
        match what:
            case Content(heard=methods.Delivered(consumer=consumer)):
                self._receivers[consumer](what)
            case Opened():
                _settle(self._opened, what)
            case Cancelled():
                _settle(self.cancelled, what)
            case Closed():
                _settle(self._opened, what)
                _settle(self.closed, what)


def failure_of(closed: Closed) -> Exception:
    """Return the error for callers that wait on a channel or connection that has ended."""
    return Refused(closed.code, closed.text) if closed.code else TransportError(closed.text)


def _connection_failure(closed: Closed) -> Exception:
    is_refusal = closed.code or is_foreign(closed.text)
    return (
        ConnectionRefused(closed.code, closed.text) if is_refusal else TransportError(closed.text)
    )


def _future() -> asyncio.Future[Any]:
    return asyncio.get_running_loop().create_future()


def _settle(future: asyncio.Future[Any], what: Any) -> None:
    """Set the result of a future, unless it is done or cancelled."""
    if not future.done():
        future.set_result(what)


def _ignore(_what: object) -> None:
    """Ignore an answer."""
