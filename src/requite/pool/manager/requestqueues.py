"""Effects on request queues: declared and inspected over AMQP, listed and read back by the
management API."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, Final

from requite.pool.drivers.base import DriverError
from requite.pool.effects import (
    BindQueue,
    DeclareQueue,
    DeleteQueue,
    InspectQueue,
    ListQueues,
    UnbindQueue,
)
from requite.pool.inputs import (
    QueueAbsent,
    QueueDone,
    QueueFailed,
    QueueInspected,
    QueueListFailed,
    QueuesListed,
)
from requite.pool.manager.errors import PRECONDITION_FAILED, Refused
from requite.pool.manager.management import Management
from requite.pool.manager.rabbit import QueueNotFound, Rabbit
from requite.pool.manager.verification import Flaw, UnsafeQueue

_log = logging.getLogger("requite.pool")
_READ_BACK_S: Final = 2.0  # how long a request waits for its queue to be read back


class RequestQueues:
    """Performs the engine's effects on request queues; `feed` takes the results.

    `messages` and `flaws` are the message counts and the flaws of queues at the last listing, by
    key.
    """

    def __init__(self, management: Management, feed: Callable[[Any], None]) -> None:
        self._management: Final = management
        self._feed: Final = feed
        self.messages: Mapping[str, int] = {}
        self.flaws: Final[dict[str, list[str]]] = {}

    def work(self, effect: Any, rabbit: Rabbit) -> Coroutine[Any, Any, None]:
        """Return a coroutine that performs an effect."""
        match effect:
            case ListQueues(ticket):
                return self._list(ticket)
            case InspectQueue(key):
                return self._on_queue(key, partial(self._inspect, key, rabbit))
            case DeclareQueue(key, arguments):
                return self._on_queue(key, partial(self._declare, key, dict(arguments), rabbit))
            case BindQueue(key):
                return self._on_queue(key, partial(rabbit.bind, key))
            case UnbindQueue(key):
                return self._on_queue(key, partial(rabbit.unbind, key))
            case DeleteQueue(key):
                return self._on_queue(key, partial(rabbit.delete, key))
        raise AssertionError(f"{effect!r} is not an effect for RabbitMQ")

    async def _list(self, ticket: int) -> None:
        try:
            found = await self._management.list_queues()
        except Exception as error:  # as below
            self._feed(QueueListFailed(ticket, str(error)))
            return
        self.messages = {key: seen.messages for key, seen in found.items()}
        for key in self.flaws.keys() - found.keys():
            del self.flaws[key]
        # A queue that loses requests counts as missing: its declaration fails with the reason.
        sound = {key: seen for key, seen in found.items() if not self._note(key, seen.flaws)}
        self._feed(QueuesListed(ticket, {key: seen.bound for key, seen in sound.items()}))

    async def _on_queue(self, key: str, work: Callable[[], Awaitable[Any]]) -> None:
        try:
            found = await work()
        except QueueNotFound:
            self._feed(QueueAbsent(key))
        except Exception as error:  # the engine needs a result in any case
            self._feed(QueueFailed(key, str(error) or repr(error)))
        else:
            is_seen = isinstance(found, QueueInspected)
            self._feed(found if is_seen else QueueDone(key))

    async def _declare(self, key: str, arguments: dict[str, Any], rabbit: Rabbit) -> None:
        """Declare a group's queue, and read it back. An existing queue with other limits is used;
        one that loses requests raises `UnsafeQueue`."""
        try:
            await rabbit.declare(key, arguments)
        except Refused as error:
            if error.code != PRECONDITION_FAILED:
                raise
            if fatal := self._note(key, await self._management.flaws(key)):
                raise UnsafeQueue(f"{fatal}: {error}") from error
        else:
            await self._read_back(key)

    async def _read_back(self, key: str) -> None:
        """Compare the queue with its declaration. If the management API does not answer in time,
        the next listing does so."""
        try:
            async with asyncio.timeout(_READ_BACK_S):
                flaws = await self._management.flaws(key)
        except (DriverError, TimeoutError) as error:
            _log.warning("cannot verify the queue of %r: %s", key, error)
            return
        if fatal := self._note(key, flaws):
            raise UnsafeQueue(fatal)

    def _note(self, key: str, flaws: Sequence[Flaw]) -> str:
        """Store a queue's flaws, and log each new one; return the fatal ones as a message."""
        texts = [flaw.text for flaw in flaws]
        for text in texts:
            if text not in self.flaws.get(key, ()):
                _log.warning("%s", text)
        if texts:
            self.flaws[key] = texts
        else:
            self.flaws.pop(key, None)
        return "; ".join(flaw.text for flaw in flaws if flaw.fatal)

    async def _inspect(self, key: str, rabbit: Rabbit) -> QueueInspected:
        unacknowledged = await self._management.unacknowledged(key)
        waiting, consumers = await rabbit.count(key)
        return QueueInspected(key, waiting, unacknowledged, consumers)
