"""Keeps a manager connected to RabbitMQ, and performs the effects of its engine.

Only one manager of a pool consumes; the others stand by, and keep trying to. When the connection
ends, the carrier cancels all operations and feeds `Disconnected`; RabbitMQ redelivers
unacknowledged messages.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final

from requite.backoff import pause_s
from requite.errors import ConfigurationError
from requite.pool.config import PoolConfig
from requite.pool.drivers.base import Driver, DriverError
from requite.pool.effects import (
    Ack,
    Answer,
    Destination,
    Forward,
    HandOver,
    StopConsuming,
)
from requite.pool.inputs import (
    ActivityArrived,
    Connected,
    DeadLetterArrived,
    Disconnected,
    HandedOver,
    OrphanArrived,
    Published,
    PublishFailed,
)
from requite.pool.manager.carrier import State
from requite.pool.manager.errors import FAILURES, refusal, sentence
from requite.pool.manager.management import Management
from requite.pool.manager.messages import (
    Delivery,
    answer_header,
    call_id_of,
    drain_header,
    forwarded,
    remaining_s,
)
from requite.pool.manager.poison import PoisonQueue
from requite.pool.manager.rabbit import QueueNotFound, Rabbit
from requite.pool.manager.requestqueues import RequestQueues
from requite.protocols.amqp.topology import Pool
from requite.protocols.amqp.wire import EVENT

_log = logging.getLogger("requite.pool")
_STANDBY_S: Final = 0.5  # between two attempts to take over
_HAND_OVER_S: Final = 4 * _STANDBY_S  # by then another manager has taken over, or there is none
_DRAIN_REQUEST_S: Final = 2.0  # the driver stops workers in any case


class RabbitCarrier:
    """Carrier at RabbitMQ; `feed` takes the results of effects. `connect` makes its connections.
    `management` is the management API, by default that of the configuration."""

    def __init__(
        self,
        config: PoolConfig,
        feed: Callable[[Any], None],
        on_state: Callable[[State], object],
        *,
        connect: Callable[[PoolConfig], Rabbit] = Rabbit,
        management: Management | None = None,
    ) -> None:
        self._config: Final = config
        self._feed: Final = feed
        self._on_state: Final = on_state
        self._pool: Final = Pool(config.pool.name)
        self._connect: Final = connect
        self._management: Final = management or Management(config)
        self._rabbit: Rabbit | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._tasks: Final[set[asyncio.Task[None]]] = set()
        self._deliveries: dict[int, Delivery] = {}
        self._buffered: list[Any] | None = []  # deliveries before `Connected`
        self.state = State.CONNECTING
        self._queues: Final = RequestQueues(self._management, feed)

    # --- lifecycle --------------------------------------------------------------------------------
    async def start(self) -> None:
        """Connect once, to detect permanent refusals, also by the management API; then keep
        connecting. Raises `ConfigurationError`."""
        rabbit = self._connect(self._config)
        try:
            await rabbit.open()
        except FAILURES as error:
            self._raise_refusal(error)
            _log.warning("%s; retrying", sentence(error, self._config.rabbitmq.url))
        else:
            await rabbit.close()
            await self._check_management()  # it shows what the connection has declared
        self._keeper = asyncio.create_task(self._keep())

    async def close(self) -> None:
        """Close all connections."""
        self._set_state(State.CLOSED)
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.wait((self._keeper,))
        await self._abandon()
        await self._management.close()

    def guarded(self, driver: Driver) -> Driver:
        """Return the driver itself: RabbitMQ admits one consumer, so one manager is active."""
        return driver

    def poison(self) -> PoisonQueue:
        """Return the queue of poisoned requests. Raises `ConnectionError`."""
        return PoisonQueue(self.rabbit(), self._config.pool.name)

    def rabbit(self) -> Rabbit:
        """Return the connection. Raises `ConnectionError` while disconnected."""
        if self._rabbit is None:
            raise ConnectionError("not connected to RabbitMQ; retry later")
        return self._rabbit

    @property
    def messages(self) -> Mapping[str, int]:
        """The number of waiting requests at the last listing, by key."""
        return self._queues.messages

    @property
    def flaws(self) -> Mapping[str, Sequence[str]]:
        """Faults of the request queues at the last listing, by key."""
        return self._queues.flaws

    async def drain_workers(self, key: str | None, worker_id: str | None) -> bool:
        """Ask workers to drain; return whether any received it. Raises `FAILURES`."""
        return await self.rabbit().tell_workers(drain_header(key, worker_id))

    async def tell_to_drain(self, key: str) -> None:
        """Ask the workers of a group to drain, ignoring failures: the driver stops them anyway."""
        with suppress(TimeoutError, *FAILURES):
            async with asyncio.timeout(_DRAIN_REQUEST_S):
                await self.drain_workers(key, None)

    async def check(self) -> dict[str, str]:
        """Test the connections now; return faults by component."""
        flaws = {}
        try:
            await self.rabbit().check()
        except (QueueNotFound, *FAILURES) as error:
            flaws["rabbitmq"] = str(error) or repr(error)
        try:
            await self._management.check()
        except (DriverError, ConfigurationError) as error:
            flaws["management"] = str(error)
        return flaws

    def _raise_refusal(self, error: BaseException) -> None:
        text = refusal(error, self._config.rabbitmq.url)
        if text is not None:
            raise ConfigurationError(text) from error

    async def _check_management(self) -> None:
        try:
            await self._management.check()
        except DriverError as error:
            _log.warning("%s; retrying", error)

    # --- the connection ---------------------------------------------------------------------------
    async def _keep(self) -> None:
        loops = self._config.loops
        failures = 0
        while True:
            try:
                if await self._run_connection():
                    failures = 0
            except Exception as error:  # no failure of a connection may end the manager
                _log.warning("%s", sentence(error, self._config.rabbitmq.url))
            finally:
                await self._abandon()
            failures += 1
            await asyncio.sleep(pause_s(failures, loops.backoff_s, loops.backoff_max_s))

    async def _run_connection(self) -> bool:
        """Run one connection to its end; return whether this manager became active."""
        rabbit = self._connect(self._config)
        await rabbit.open()
        self._rabbit = rabbit
        self._buffered = []
        while not await rabbit.take_over(self._orphan, self._dead_letter, self._report):
            self._set_state(State.STANDBY)
            await asyncio.sleep(_STANDBY_S)
        self._set_state(State.ACTIVE)
        self._feed(Connected())
        buffered, self._buffered = self._buffered, None
        for event in buffered:
            self._feed(event)
        reason = await rabbit.until_closed()
        _log.warning("lost the connection to RabbitMQ: %s", reason)
        return True

    async def _abandon(self) -> None:
        """Close the connection, and cancel its operations."""
        rabbit, self._rabbit = self._rabbit, None
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._deliveries.clear()
        was_active = self.state is State.ACTIVE
        self._set_state(State.CONNECTING)
        if was_active:
            self._feed(Disconnected("lost the connection"))
        if rabbit is not None:
            await rabbit.close()

    def _set_state(self, state: State) -> None:
        if state is not self.state and self.state is not State.CLOSED:
            self.state = state
            self._on_state(state)

    # --- deliveries -------------------------------------------------------------------------------
    def _orphan(self, delivery: Delivery) -> None:
        tag = self._take(delivery)
        self._arrived(OrphanArrived(tag, delivery.key, remaining_s(delivery), call_id_of(delivery)))

    def _dead_letter(self, delivery: Delivery) -> None:
        properties = delivery.properties
        event = DeadLetterArrived(
            self._take(delivery),
            delivery.key,
            properties.headers,
            properties.reply_to or None,
            properties.correlation_id or None,
            call_id_of(delivery),
        )
        self._arrived(event)

    def _report(self, delivery: Delivery) -> None:
        self._arrived(ActivityArrived(delivery.key, str(delivery.properties.headers.get(EVENT))))

    def _arrived(self, event: Any) -> None:
        if self._buffered is None:
            self._feed(event)
        else:
            self._buffered.append(event)

    def _take(self, delivery: Delivery) -> tuple[int, int]:
        """Store a delivery, and return its tag, which is unique across connections."""
        self._deliveries[delivery.tag] = delivery
        return id(self._rabbit), delivery.tag

    # --- effects ----------------------------------------------------------------------------------
    def perform(self, effect: Any) -> None:
        """Start to perform an effect; `Disconnected` replaces its result if the connection ends."""
        if self._rabbit is None:
            return
        task = asyncio.create_task(self._do(effect, self._rabbit))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _do(self, effect: Any, rabbit: Rabbit) -> Coroutine[Any, Any, None]:
        match effect:
            case Forward():
                return self._publishing(effect.ticket, partial(self._forward, effect, rabbit))
            case Answer():
                return self._publishing(effect.ticket, partial(self._answer, effect, rabbit))
            case Ack(tag):
                return self._ack(tag, rabbit)
            case StopConsuming():
                return self._ignoring_failures(rabbit.stop_consuming)
            case HandOver():
                return self._hand_over(rabbit)
        return self._queues.work(effect, rabbit)

    async def _hand_over(self, rabbit: Rabbit) -> None:
        """Stop consuming, and find out whether another manager starts to."""
        taken = False
        with suppress(QueueNotFound, TimeoutError, *FAILURES):
            await rabbit.stop_consuming()
            async with asyncio.timeout(_HAND_OVER_S):
                while not (taken := await rabbit.is_taken()):  # noqa: ASYNC110 - RabbitMQ sends no event
                    await asyncio.sleep(_STANDBY_S / 4)
        self._feed(HandedOver(taken))

    async def _publishing(self, ticket: int, work: Callable[[], Awaitable[bool]]) -> None:
        try:
            routed = await work()
        except Exception as error:  # the engine needs a result in any case
            self._feed(PublishFailed(ticket, str(error) or repr(error)))
        else:
            self._feed(Published(ticket, routed))

    async def _forward(self, effect: Forward, rabbit: Rabbit) -> bool:
        delivery = self._deliveries[effect.tag[1]]  # type: ignore[index]
        exchange, routing_key = self._address_of(effect.to, delivery.key)
        header = forwarded(delivery, effect.expires_s, effect.reason, effect.attempts)
        return await rabbit.publish(exchange, routing_key, header, delivery.body)

    def _address_of(self, to: Destination, key: str) -> tuple[str, str]:
        match to:
            case Destination.REQUESTS:
                return self._pool.requests_exchange, key
            case Destination.ORPHANS:
                return self._pool.orphan_exchange, key
            case Destination.DEAD_LETTERS:
                return self._pool.dead_letter_exchange, key
            case Destination.POISON:
                return "", self._pool.poison_queue

    async def _answer(self, effect: Answer, rabbit: Rabbit) -> bool:
        return await rabbit.publish("", effect.reply_to, answer_header(effect), b"")

    async def _ack(self, tag: Any, rabbit: Rabbit) -> None:
        self._deliveries.pop(tag[1], None)
        await self._ignoring_failures(partial(rabbit.ack, tag[1]))

    async def _ignoring_failures(self, work: Callable[[], Awaitable[Any]]) -> None:
        """Perform an effect without a result: a failure ends the connection anyway."""
        with suppress(*FAILURES):
            await work()
