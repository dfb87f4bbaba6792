"""What RabbitMQ holds: queues, exchanges and bindings, and what of it survives the end.

Queues are those of `requite.sim.rabbitmq.queue`. A crash leaves what is durable: the messages of
quorum queues, and the persistent messages of durable classic queues. A message that was about to
reach the disk has reached it or not; an acknowledgement that has not reached it does not count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import inf
from random import Random
from typing import Any, Final

from requite.protocols.amqp.topology import (
    SERVICE_QUEUE_ARGUMENTS,
    Pool,
    RequestQueueLimits,
)
from requite.sim.amqp.knobs import AmqpKnobs
from requite.sim.amqp.letter import Letter
from requite.sim.rabbitmq.exchanges import Exchanges
from requite.sim.rabbitmq.message import Entry, SimMessage
from requite.sim.rabbitmq.queue import SimQueue
from requite.sim.world import World

POOL: Final = Pool("core")


class HeldQueue(SimQueue):
    """A queue. `maker` is the connection that has made it, at `born_at`, and `session` the one
    whose own it is, if it is exclusive."""

    def __init__(
        self, store: Store, name: str, arguments: Mapping[str, Any], owner: Any, maker: Any
    ) -> None:
        super().__init__(store, name, arguments, owner)
        self.is_quorum = arguments.get("x-queue-type") == "quorum"
        self.is_durable = owner is None
        self.session = owner
        self.maker = maker
        self.born_at = store.world.now
        self._store = store

    def acknowledge(self, consumer: Any, tag: int) -> None:
        """Forget a message; it may come back if RabbitMQ ends before that is on the disk."""
        entry = consumer.held.get(tag)
        if entry is not None:
            self._store.forgets(self, entry)
        super().acknowledge(consumer, tag)

    def crash(self) -> None:
        """Lose the consumers, and what is not on the disk."""
        gone = list(self.consumers)
        for consumer in gone:
            consumer.takes_more = False
        for consumer in gone:
            self.lose(consumer)
        if not self.is_quorum:
            kept = [entry for entry in self.ready if _is_persistent(entry)]
            self.ready.clear()
            self.ready.extend(kept)

    def take_back(self, entry: Entry) -> None:
        """Have a message again that had been acknowledged."""
        self._give_back(entry)

    def look(self) -> None:
        """Let expire what is due."""
        self._expire()

    def _expire(self) -> None:
        """Bury what is due, wherever it stands: none of it is ever delivered."""
        if not self._store.is_awake():
            return
        due = [entry for entry in self.ready if entry.expires_at <= self._store.world.now]
        for entry in due:
            self.ready.remove(entry)
            self._bury(entry, "expired")


class Store:
    """All of it. `is_awake` tells whether RabbitMQ runs, and `bury` takes what dies."""

    sample_s: Final = inf  # nobody asks the management API

    def __init__(self, world: World, knobs: AmqpKnobs, rng: Random) -> None:
        self.world = world
        self.ledger = self
        self.queues: dict[str, HeldQueue] = {}
        self.exchanges = Exchanges()
        self.coming: dict[int, tuple[list[str], Letter]] = {}  # on the way to the disk
        self.dead: list[tuple[Letter, str]] = []  # to be answered
        self.recalled: dict[tuple[str, str], None] = {}  # requests that were cancelled
        self.is_awake: Callable[[], bool] = lambda: False
        self._knobs = knobs
        self._rng = rng
        self._going: list[tuple[float, HeldQueue, Entry]] = []
        self._serial = 0
        self._set_up()

    def _set_up(self) -> None:
        """Declare what others than the engines under test do."""
        if self._knobs.pool:
            self.exchanges.declare(POOL.requests_exchange, "direct")
            self.exchanges.declare(POOL.control_exchange, "fanout")
            if self._knobs.has_activity:
                self.exchanges.declare(POOL.activity_exchange, "fanout")
        for service in self._knobs.services:
            self.make_service(service)

    def make_service(self, service: str) -> None:
        """Make the queue of a service, where it is not its workers who do that."""
        if self._knobs.pool:
            limits = RequestQueueLimits(delivery_limit=self._knobs.attempts_max - 1)
            queue = POOL.request_queue_to_declare(service, limits)
            self.make(queue.name, queue.arguments)
            self.exchanges.bind(POOL.requests_exchange, queue.name, service)
        elif self._knobs.classic:
            self.make(service, {})
        elif self._knobs.lossless:
            self.make(service, SERVICE_QUEUE_ARGUMENTS)

    def queue_of(self, service: str) -> str:
        """Return the name of the queue of a service."""
        return POOL.request_queue(service) if self._knobs.pool else service

    # --- queues -----------------------------------------------------------------------------------
    def make(
        self, name: str, arguments: Mapping[str, Any], owner: Any = None, maker: Any = None
    ) -> HeldQueue:
        """Make a queue; with `owner` an exclusive one."""
        queue = self.queues[name] = HeldQueue(self, name, arguments, owner, maker)
        return queue

    def drop(self, name: str) -> HeldQueue:
        """Delete a queue with all that is in it."""
        self.exchanges.remove(name)
        return self.queues.pop(name)

    def route(self, exchange: str, key: str) -> list[str]:
        """Return the queues that a message goes to."""
        return [name for name in self.exchanges.route(exchange, key) if name in self.queues]

    # --- what is on the way to the disk -----------------------------------------------------------
    def begin(self, names: list[str], letter: Letter) -> int:
        """Begin to write a message; return the number of that."""
        self._serial += 1
        self.coming[self._serial] = names, letter
        return self._serial

    def commit(self, number: int) -> None:
        """Have a message, in what there still is of its queues."""
        names, letter = self.coming.pop(number)
        self.put(names, letter)

    def put(self, names: Iterable[str], letter: Letter) -> None:
        """Put a message into queues."""
        for name in names:
            if name in self.queues:
                self.queues[name].put(letter)

    def forgets(self, queue: HeldQueue, entry: Entry) -> None:
        """Note an acknowledgement."""
        now = self.world.now
        self._going = [each for each in self._going if each[0] > now - self._knobs.sync_s]
        self._going.append((now, queue, entry))

    def crash(self) -> None:
        """Keep what is durable."""
        for name, queue in list(self.queues.items()):
            if queue.is_durable:
                queue.crash()
            else:
                self.drop(name)
        for number in list(self.coming):
            if self._rng.random() < 0.5:
                self.commit(number)
        self.coming.clear()
        since = self.world.now - self._knobs.sync_s
        for at, queue, entry in self._going:
            is_there = self.queues.get(queue.name) is queue and queue.is_quorum
            if at > since and is_there and self._rng.random() < 0.5:
                queue.take_back(entry)
        self._going.clear()

    # --- what queues tell -------------------------------------------------------------------------
    def bury(self, queue: SimQueue, entry: Entry, reason: str) -> None:
        """Take what has died, if its queue has an exchange for that."""
        letter = entry.message
        assert isinstance(letter, Letter)
        if "x-dead-letter-exchange" in queue.arguments and letter.reply_to:
            self.dead.append((letter, reason))

    def queued(self, _name: str, _message: SimMessage) -> None:
        """Take no notice: checkers ask for what is there."""

    def acknowledged(self, _name: str, _message: SimMessage) -> None:
        """Nor of this."""


def _is_persistent(entry: Entry) -> bool:
    return isinstance(entry.message, Letter) and entry.message.is_persistent
