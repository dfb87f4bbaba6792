"""The queues, exchanges and bindings of the server, and which messages survive a crash.

A crash keeps what is durable: the messages of quorum queues, and the persistent messages of durable
classic queues. A message that was being written to disk is kept or lost, at random. An
acknowledgement that was not yet on disk may be lost, so its message is redelivered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import inf
from random import Random
from typing import Any

from requite.sim.kernel.world import World
from requite.sim.rabbitmq.exchanges import Exchanges
from requite.sim.rabbitmq.message import Entry, SimMessage
from requite.sim.rabbitmq.published import PublishedMessage, published_message
from requite.sim.rabbitmq.queue import MessageRecorder, SimQueue


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

    def close(self) -> None:
        """Cancel the consumers of a deleted queue, without requeueing their deliveries."""
        consumers, self.consumers = self.consumers, []
        for consumer in consumers:
            if consumer.takes_more:
                consumer.connection.after_latency(consumer.cancelled)

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
    collects the dead letters that are to be answered. All operations on the queues in `forbidden`
    are refused."""

    sample_s: float = inf  # without a management API
    queue_type: type[StoredQueue] = StoredQueue
    ledger: MessageRecorder
    rng: Random  # that of its process

    def __init__(self, world: World, sync_s: float) -> None:
        self.world = world
        self.ledger = self
        self.queues: dict[str, StoredQueue] = {}
        self.exchanges = Exchanges()
        self.forbidden: set[str] = set()
        self.pending_writes: dict[
            int, tuple[list[str], PublishedMessage]
        ] = {}  # being written to disk
        self.dead_letters: list[tuple[PublishedMessage, str]] = []  # to be answered
        self.cancelled: dict[tuple[str, str], None] = {}  # requests that were cancelled
        self.is_running: Callable[[], bool] = lambda: False
        self._sync_s = sync_s
        self._unsynced_acks: list[tuple[float, StoredQueue, Entry]] = []
        self._serial = 0

    # --- queues -----------------------------------------------------------------------------------
    def declare(
        self, name: str, arguments: Mapping[str, Any], owner: Any = None, declared_by: Any = None
    ) -> StoredQueue:
        """Create a queue; with `owner` an exclusive one."""
        queue = self.queues[name] = self.queue_type(self, name, arguments, owner, declared_by)
        return queue

    def delete(self, name: str) -> StoredQueue:
        """Delete a queue and its messages."""
        self.exchanges.remove(name)
        return self.queues.pop(name)

    def route(self, exchange: str, key: str) -> list[str]:
        """Return the existing queues that a message goes to, if need be by the alternate
        exchange."""
        names = [name for name in self.exchanges.route(exchange, key) if name in self.queues]
        alternate = self.exchanges.alternate(exchange)
        return names if names or alternate is None else self.route(alternate, key)

    def received(
        self, exchange: str, key: str, header: bytes, body: bytes, direct: str
    ) -> PublishedMessage:
        """Return a message that a client published; see `published_message`."""
        return published_message(exchange, key, header, body, direct)

    def unroutable(self, message: PublishedMessage) -> None:
        """Ignored: the client gets the message back."""

    def unbind(self, exchange: str, queue: str, key: str) -> None:
        """Remove a binding, if it exists."""
        self.exchanges.unbind(exchange, queue, key)

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
        self._unsynced_acks = [each for each in self._unsynced_acks if each[0] > now - self._sync_s]
        self._unsynced_acks.append((now, queue, entry))

    def crash(self) -> None:
        """Keep only what is durable."""
        for name, queue in list(self.queues.items()):
            if queue.is_durable:
                queue.crash()
            else:
                self.delete(name)
        for number in list(self.pending_writes):
            if self.rng.random() < 0.5:
                self.commit(number)
        self.pending_writes.clear()
        since = self.world.now - self._sync_s
        for at, queue, entry in self._unsynced_acks:
            is_there = self.queues.get(queue.name) is queue and queue.is_quorum
            if at > since and is_there and self.rng.random() < 0.5:
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
