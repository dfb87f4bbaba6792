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
from requite.sim.rabbitmq.published import PublishedMessage, published_message
from requite.sim.rabbitmq.queue import Entry, Queue


class Store:
    """The queues, exchanges and bindings. `is_running`: whether RabbitMQ runs. `dead_letter`
    collects the dead letters that are to be answered. All operations on the queues in `forbidden`
    are refused."""

    sample_s: float = inf  # without a management API
    rng: Random  # that of its process

    def __init__(self, world: World, sync_s: float) -> None:
        self.world = world
        self.queues: dict[str, Queue] = {}
        self.exchanges = Exchanges()
        self.forbidden: set[str] = set()
        self.pending_writes: dict[
            int, tuple[list[str], PublishedMessage]
        ] = {}  # being written to disk
        self.dead_letters: list[tuple[PublishedMessage, str]] = []  # to be answered
        self.cancelled: dict[tuple[str, str], None] = {}  # requests that were cancelled
        self.is_running: Callable[[], bool] = lambda: False
        self._sync_s = sync_s
        self._unsynced_acks: list[tuple[float, Queue, Entry]] = []
        self._serial = 0

    # --- queues -----------------------------------------------------------------------------------
    def declare(
        self, name: str, arguments: Mapping[str, Any], owner: Any = None, declared_by: Any = None
    ) -> Queue:
        """Create a queue; with `owner` an exclusive one."""
        queue = self.queues[name] = Queue(self, name, arguments, owner, declared_by)
        return queue

    def delete(self, name: str) -> Queue:
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
        """Hear of a message that no queue takes."""

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

    def ack_pending(self, queue: Queue, entry: Entry) -> None:
        """Record an acknowledgement, which may not be on disk for `sync_s`."""
        if not self._sync_s:
            return
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
                queue.requeue(entry)  # its acknowledgement is lost
        self._unsynced_acks.clear()

    # --- for queues -------------------------------------------------------------------------------
    def dead_letter(self, queue: Queue, entry: Entry, reason: str) -> None:
        """Collect a dead letter, if its queue has a dead letter exchange."""
        published = entry.message
        if "x-dead-letter-exchange" in queue.arguments and published.properties.reply_to:
            self.dead_letters.append((published, reason))

    def queued(self, _name: str, _message: PublishedMessage) -> None:
        """Hear of a message that is added to a queue."""

    def acknowledged(self, _name: str, _message: PublishedMessage) -> None:
        """Hear of a message that is acknowledged."""
