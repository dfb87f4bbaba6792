"""The queues, exchanges and bindings of the server, and which messages survive a crash.

A crash keeps what is durable: the messages of quorum queues, and the persistent messages of durable
classic queues. A message that was being written to disk is kept or lost, at random. An
acknowledgement that was not yet on disk may be lost, so its message is redelivered.
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
from requite.sim.amqp.published import PublishedMessage
from requite.sim.kernel.world import World
from requite.sim.rabbitmq.exchanges import Exchanges
from requite.sim.rabbitmq.message import Entry, SimMessage
from requite.sim.rabbitmq.queue import SimQueue

POOL: Final = Pool("core")


class StoredQueue(SimQueue):
    """A queue. `declared_by`: the connection that declared it, at `declared_at`. `session`: the
    connection of an exclusive queue."""

    def __init__(
        self, store: Store, name: str, arguments: Mapping[str, Any], owner: Any, declared_by: Any
    ) -> None:
        super().__init__(store, name, arguments, owner)
        self.is_quorum = arguments.get("x-queue-type") == "quorum"
        self.is_durable = owner is None
        self.session = owner
        self.declared_by = declared_by
        self.declared_at = store.world.now
        self._store = store

    def acknowledge(self, consumer: Any, tag: int) -> None:
        """Remove a message. It returns if RabbitMQ crashes before the acknowledgement is on
        disk."""
        entry = consumer.held.get(tag)
        if entry is not None:
            self._store.ack_pending(self, entry)
        super().acknowledge(consumer, tag)

    def crash(self) -> None:
        """Remove the consumers and the messages that are not on disk."""
        gone = list(self.consumers)
        for consumer in gone:
            consumer.takes_more = False
        for consumer in gone:
            self.remove_consumer(consumer)
        if not self.is_quorum:
            kept = [entry for entry in self.ready if _is_persistent(entry)]
            self.ready.clear()
            self.ready.extend(kept)

    def restore(self, entry: Entry) -> None:
        """Requeue a message whose acknowledgement was lost in a crash."""
        self._requeue(entry)

    def expire(self) -> None:
        """Dead-letter the expired messages."""
        self._expire()

    def _expire(self) -> None:
        """Dead-letter all expired messages, not only those at the head: no expired message is ever
        delivered."""
        if not self._store.is_running():
            return
        due = [entry for entry in self.ready if entry.expires_at <= self._store.world.now]
        for entry in due:
            self.ready.remove(entry)
            self._dead_letter(entry, "expired")


class Store:
    """The queues, exchanges and bindings. `is_running`: whether RabbitMQ runs. `dead_letter`
    collects the dead letters that are to be answered."""

    sample_s: Final = inf  # the management API is not simulated here

    def __init__(self, world: World, knobs: AmqpKnobs, rng: Random) -> None:
        self.world = world
        self.ledger = self
        self.queues: dict[str, StoredQueue] = {}
        self.exchanges = Exchanges()
        self.pending_writes: dict[
            int, tuple[list[str], PublishedMessage]
        ] = {}  # being written to disk
        self.dead_letters: list[tuple[PublishedMessage, str]] = []  # to be answered
        self.cancelled: dict[tuple[str, str], None] = {}  # requests that were cancelled
        self.is_running: Callable[[], bool] = lambda: False
        self._knobs = knobs
        self._rng = rng
        self._unsynced_acks: list[tuple[float, StoredQueue, Entry]] = []
        self._serial = 0
        self._declare_fixtures()

    def _declare_fixtures(self) -> None:
        """Declare the exchanges and queues that the engines under test do not declare."""
        if self._knobs.pool:
            self.exchanges.declare(POOL.requests_exchange, "direct")
            self.exchanges.declare(POOL.control_exchange, "fanout")
            self.exchanges.declare(POOL.drain_exchange, "fanout")
            if self._knobs.has_activity:
                self.exchanges.declare(POOL.activity_exchange, "fanout")
        for service in self._knobs.services:
            self.declare_service_queue(service)

    def declare_service_queue(self, service: str) -> None:
        """Declare the queue of a service, unless its workers do that."""
        if self._knobs.pool:
            limits = RequestQueueLimits(delivery_limit=self._knobs.attempts_max - 1)
            queue = POOL.request_queue_to_declare(service, limits)
            self.declare(queue.name, queue.arguments)
            self.exchanges.bind(POOL.requests_exchange, queue.name, service)
        elif self._knobs.classic:
            self.declare(service, {})
        elif self._knobs.lossless:
            self.declare(service, SERVICE_QUEUE_ARGUMENTS)

    def queue_of(self, service: str) -> str:
        """Return the name of the queue of a service."""
        return POOL.request_queue(service) if self._knobs.pool else service

    # --- queues -----------------------------------------------------------------------------------
    def declare(
        self, name: str, arguments: Mapping[str, Any], owner: Any = None, declared_by: Any = None
    ) -> StoredQueue:
        """Create a queue; with `owner` an exclusive one."""
        queue = self.queues[name] = StoredQueue(self, name, arguments, owner, declared_by)
        return queue

    def delete(self, name: str) -> StoredQueue:
        """Delete a queue and its messages."""
        self.exchanges.remove(name)
        return self.queues.pop(name)

    def route(self, exchange: str, key: str) -> list[str]:
        """Return the existing queues that a message goes to."""
        return [name for name in self.exchanges.route(exchange, key) if name in self.queues]

    # --- writes to disk ---------------------------------------------------------------------------
    def begin_write(self, names: list[str], published: PublishedMessage) -> int:
        """Start to write a message to disk; return the number of the write."""
        self._serial += 1
        self.pending_writes[self._serial] = names, published
        return self._serial

    def commit(self, number: int) -> None:
        """Complete a write: add the message to those of its queues that still exist."""
        names, published = self.pending_writes.pop(number)
        self.put(names, published)

    def put(self, names: Iterable[str], published: PublishedMessage) -> None:
        """Add a message to queues."""
        for name in names:
            if name in self.queues:
                self.queues[name].put(published)

    def ack_pending(self, queue: StoredQueue, entry: Entry) -> None:
        """Record an acknowledgement, which may not be on disk for `sync_s`."""
        now = self.world.now
        self._unsynced_acks = [
            each for each in self._unsynced_acks if each[0] > now - self._knobs.sync_s
        ]
        self._unsynced_acks.append((now, queue, entry))

    def crash(self) -> None:
        """Keep only what is durable."""
        for name, queue in list(self.queues.items()):
            if queue.is_durable:
                queue.crash()
            else:
                self.delete(name)
        for number in list(self.pending_writes):
            if self._rng.random() < 0.5:
                self.commit(number)
        self.pending_writes.clear()
        since = self.world.now - self._knobs.sync_s
        for at, queue, entry in self._unsynced_acks:
            is_there = self.queues.get(queue.name) is queue and queue.is_quorum
            if at > since and is_there and self._rng.random() < 0.5:
                queue.restore(entry)
        self._unsynced_acks.clear()

    # --- for queues -------------------------------------------------------------------------------
    def dead_letter(self, queue: SimQueue, entry: Entry, reason: str) -> None:
        """Collect a dead letter, if its queue has a dead letter exchange."""
        published = entry.message
        assert isinstance(published, PublishedMessage)
        if "x-dead-letter-exchange" in queue.arguments and published.reply_to:
            self.dead_letters.append((published, reason))

    def queued(self, _name: str, _message: SimMessage) -> None:
        """Ignored: the checkers inspect the queues."""

    def acknowledged(self, _name: str, _message: SimMessage) -> None:
        """Ignored: the checkers inspect the queues."""


def _is_persistent(entry: Entry) -> bool:
    return isinstance(entry.message, PublishedMessage) and entry.message.is_persistent
