"""A model of a RabbitMQ queue, with the features that requite uses.

It models two features of quorum queues: they count deliveries and have a delivery limit, and all
their messages survive a restart. Unlike those of RabbitMQ, its expired messages are never
delivered, not even to a consumer that waits. Sources: RabbitMQ's documentation of quorum queues,
time-to-live, queue length limits and dead letter exchanges.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import count
from math import inf
from typing import TYPE_CHECKING, Any, Protocol

from requite.sim.rabbitmq.published import PublishedMessage

if TYPE_CHECKING:
    from requite.sim.kernel.world import World


@dataclass(slots=True, eq=False)
class Entry:
    """A message in a queue. `delivery_count`: its deliveries that ended without a settlement, or
    with a requeue."""

    message: PublishedMessage
    expires_at: float
    delivery_count: int = 0


@dataclass(slots=True, eq=False)
class Consumer:
    """A consumer. `tell` calls a function in the server. `held`: its unacknowledged deliveries, by
    delivery tag."""

    tell: Callable[..., None]
    prefetch: int
    deliver: Callable[[int, Entry], None]
    cancelled: Callable[[], None]
    exclusive: bool = False
    takes_more: bool = True
    held: dict[int, Entry] = field(default_factory=dict)


class QueueStore(Protocol):
    """The store of a queue. It samples the statistics of its queues every `sample_s`."""

    world: World
    sample_s: float
    is_running: Callable[[], bool]

    def queued(self, name: str, message: PublishedMessage, /) -> None:
        """Hear of a message that is added to a queue."""

    def acknowledged(self, name: str, message: PublishedMessage, /) -> None:
        """Hear of a message that is acknowledged."""

    def ack_pending(self, queue: Queue, entry: Entry, /) -> None:
        """Record an acknowledgement, which may not be on disk yet."""

    def dead_letter(self, queue: Queue, entry: Entry, reason: str, /) -> None:
        """Dead-letter a message."""


class Queue:
    """A queue. `declared_by`: the connection that declared it, at `declared_at`. `session`: the
    connection of an exclusive queue, which is deleted with it; the others are durable."""

    def __init__(
        self,
        store: QueueStore,
        name: str,
        arguments: Mapping[str, Any],
        session: Any,
        declared_by: Any,
    ) -> None:
        self.name = name
        self.arguments = dict(arguments)
        self.is_quorum = arguments.get("x-queue-type") == "quorum"
        self.is_durable = session is None
        self.session = session
        self.declared_by = declared_by
        self.declared_at = store.world.now
        self.ready: deque[Entry] = deque()
        self.consumers: list[Consumer] = []
        self._store = store
        self._ttl_s: float = arguments.get("x-message-ttl", inf) / 1000
        self._length_max: float = arguments.get("x-max-length", inf)
        self._deliveries_max: float = arguments.get("x-delivery-limit", inf)
        self._tags = count(1)
        self._expires_at = inf  # no ready message expires before
        self._sample = 0  # the number of the last sample, and its value
        self._sampled = 0

    # --- statistics -------------------------------------------------------------------------------
    @property
    def unacknowledged(self) -> int:
        """The number of unacknowledged deliveries."""
        return sum(len(consumer.held) for consumer in self.consumers)

    def sampled(self) -> int:
        """Return the number of unacknowledged deliveries at the last sample. RabbitMQ's management
        API reports only sampled values."""
        self._maybe_sample()
        return self._sampled

    def _maybe_sample(self) -> None:
        """Take the sample that is due. Call this before the number of unacknowledged deliveries
        changes."""
        sample = int(self._store.world.now / self._store.sample_s)
        if sample > self._sample:
            self._sample, self._sampled = sample, self.unacknowledged

    @property
    def active_consumers(self) -> int:
        """The number of consumers that still receive messages."""
        return sum(consumer.takes_more for consumer in self.consumers)

    @property
    def messages(self) -> list[PublishedMessage]:
        """All messages: the unacknowledged ones, then the ready ones."""
        held = [entry.message for c in self.consumers for entry in c.held.values()]
        return [*held, *(entry.message for entry in self.ready)]

    # --- messages and consumers -------------------------------------------------------------------
    def put(self, message: PublishedMessage) -> None:
        """Append a message. If the queue is too long then, dead-letter the message at its head."""
        store, ttl_s = self._store, message.expires_s
        store.queued(self.name, message)
        expires_at = store.world.now + (self._ttl_s if ttl_s is None else min(ttl_s, self._ttl_s))
        self._expires_at = min(self._expires_at, expires_at)
        self.ready.append(Entry(message, expires_at))
        if len(self.ready) > self._length_max:
            self._dead_letter(self.ready.popleft(), "maxlen")
        if expires_at < inf:
            store.world.at(expires_at, self.expire)
        self._pump()

    def admits(self, consumer: Consumer) -> bool:
        """Return whether no exclusive consumer forbids a new consumer."""
        listening = [other for other in self.consumers if other.takes_more]
        return not (
            any(other.exclusive for other in listening) or (consumer.exclusive and listening)
        )

    def consume(self, consumer: Consumer) -> None:
        """Add a consumer that the queue admits."""
        self.consumers.append(consumer)
        self._pump()

    def acknowledge(self, consumer: Consumer, tag: int) -> None:
        """Remove a message. It returns if RabbitMQ crashes before the acknowledgement is on
        disk."""
        self._maybe_sample()
        entry = consumer.held.pop(tag, None)
        if entry is not None:
            self._store.ack_pending(self, entry)
            self._store.acknowledged(self.name, entry.message)
        self._pump()

    def reject(self, consumer: Consumer, tag: int, *, requeue: bool) -> None:
        """Requeue a rejected message, or dead-letter it."""
        self._maybe_sample()
        entry = consumer.held.pop(tag, None)
        if entry is not None:
            if requeue:
                self.requeue(entry)
            else:
                self._dead_letter(entry, "rejected")
        self._pump()

    def remove_consumer(self, consumer: Consumer) -> None:
        """Remove a consumer whose channel or connection closed; requeue its unacknowledged
        messages."""
        if consumer in self.consumers:
            self._maybe_sample()
            self.consumers.remove(consumer)
            for entry in reversed([*consumer.held.values()]):
                self.requeue(entry)
            consumer.held.clear()
            self._pump()

    def cancel_consumer(self, consumer: Consumer) -> None:
        """Stop deliveries to a consumer; it may still settle those that it holds."""
        consumer.takes_more = False

    def requeue(self, entry: Entry) -> None:
        """Return a message to its place, unless it was delivered too often."""
        entry.delivery_count += 1
        if entry.delivery_count > self._deliveries_max:
            self._dead_letter(entry, "delivery_limit")
        else:
            self._expires_at = min(self._expires_at, entry.expires_at)
            self.ready.appendleft(entry)

    def expire(self) -> None:
        """Dead-letter the expired messages."""
        now = self._store.world.now
        if now < self._expires_at or not self._store.is_running():
            return
        due = [entry for entry in self.ready if entry.expires_at <= now]
        for entry in due:
            self.ready.remove(entry)
        self._expires_at = min((entry.expires_at for entry in self.ready), default=inf)
        for entry in due:
            self._dead_letter(entry, "expired")

    def _dead_letter(self, entry: Entry, reason: str) -> None:
        self._store.dead_letter(self, entry, reason)

    def _pump(self) -> None:
        """Deliver ready messages to consumers in turn, up to their prefetch limits."""
        self.expire()
        while self.ready:
            free = (c for c in self.consumers if c.takes_more and len(c.held) < c.prefetch)
            consumer = next(free, None)
            if consumer is None:
                return
            self.consumers.remove(consumer)
            self.consumers.append(consumer)
            self._maybe_sample()
            tag, entry = next(self._tags), self.ready.popleft()
            consumer.held[tag] = entry
            consumer.tell(consumer.deliver, tag, entry)

    # --- its end, and that of the server ----------------------------------------------------------
    def crash(self) -> None:
        """Remove the consumers and the messages that are not on disk."""
        gone = list(self.consumers)
        for consumer in gone:
            consumer.takes_more = False
        for consumer in gone:
            self.remove_consumer(consumer)
        if not self.is_quorum:
            kept = [entry for entry in self.ready if entry.message.properties.persistent]
            self.ready = deque(kept)

    def close(self) -> None:
        """Cancel the consumers of a deleted queue, without requeueing their deliveries."""
        consumers, self.consumers = self.consumers, []
        for consumer in consumers:
            if consumer.takes_more:
                consumer.tell(consumer.cancelled)
