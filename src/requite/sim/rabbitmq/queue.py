"""A model of a RabbitMQ queue, with the features that requite uses.

It models three features of quorum queues: they count deliveries and have a delivery limit, only the
message at the head expires, and all messages survive a restart. Sources: RabbitMQ's documentation
of quorum queues, time-to-live, queue length limits and dead letter exchanges.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import count
from math import inf
from typing import TYPE_CHECKING, Any, Protocol

from requite.sim.rabbitmq.message import Entry, SimMessage

if TYPE_CHECKING:
    from requite.sim.kernel.world import World


class ConsumerConnection(Protocol):
    """The connection of a consumer."""

    def after_latency(self, act: Callable[..., None], *args: Any) -> None:
        """Call `act` at the consumer after the network latency, if the connection is still open
        then."""


class MessageRecorder(Protocol):
    """Records what happens to messages."""

    def queued(self, queue: str, message: SimMessage) -> None:
        """Record a message that is added to a queue."""

    def acknowledged(self, queue: str, message: SimMessage) -> None:
        """Record an acknowledged message."""


class QueueServer(Protocol):
    """The server of a queue. It samples the statistics of its queues every `sample_s`."""

    @property
    def world(self) -> World:
        """The simulated clock and event queue."""

    @property
    def ledger(self) -> MessageRecorder:
        """The recorder of messages."""

    @property
    def sample_s(self) -> float:
        """The sampling interval, in seconds."""

    def dead_letter(self, queue: SimQueue, entry: Entry, reason: str) -> None:
        """Dead-letter a message."""


@dataclass(slots=True, eq=False)
class Consumer:
    """A consumer. `held`: its unacknowledged deliveries, by delivery tag."""

    connection: ConsumerConnection
    prefetch: int
    deliver: Callable[[int, Entry], None]
    cancelled: Callable[[], None]
    exclusive: bool = False
    takes_more: bool = True
    held: dict[int, Entry] = field(default_factory=dict)


class SimQueue:
    """A durable queue. With `owner` it is exclusive, and is deleted when that connection closes."""

    def __init__(
        self, home: QueueServer, name: str, arguments: Mapping[str, Any], owner: object = None
    ) -> None:
        self.name = name
        self.arguments = dict(arguments)
        self.owner = owner
        self.ready: deque[Entry] = deque()
        self.consumers: list[Consumer] = []
        self._server = home
        self._tags = count(1)
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
        sample = int(self._server.world.now / self._server.sample_s)
        if sample > self._sample:
            self._sample, self._sampled = sample, self.unacknowledged

    @property
    def active_consumers(self) -> int:
        """The number of consumers that still receive messages."""
        return sum(consumer.takes_more for consumer in self.consumers)

    @property
    def messages(self) -> list[SimMessage]:
        """All messages: the unacknowledged ones, then the ready ones."""
        held = [entry.message for c in self.consumers for entry in c.held.values()]
        return [*held, *(entry.message for entry in self.ready)]

    # --- messages and consumers -------------------------------------------------------------------
    def put(self, message: SimMessage) -> None:
        """Append a message. If the queue is too long then, dead-letter the message at its head."""
        self._server.ledger.queued(self.name, message)
        ttls = [message.expires_s, self.arguments.get("x-message-ttl", inf) / 1000]
        expires_at = self._server.world.now + min(ttl for ttl in ttls if ttl is not None)
        self.ready.append(Entry(message, expires_at))
        if len(self.ready) > self.arguments.get("x-max-length", inf):
            self._dead_letter(self.ready.popleft(), "maxlen")
        if expires_at < inf:
            self._server.world.at(expires_at, self._expire)
        self._pump()

    def admits(self, consumer: Consumer) -> bool:
        """Return whether no exclusive consumer forbids a new consumer."""
        listening = [other for other in self.consumers if other.takes_more]
        return not (
            any(other.exclusive for other in listening) or (consumer.exclusive and listening)
        )

    def consume(self, consumer: Consumer) -> bool:
        """Add a consumer. Return False if an exclusive consumer forbids that."""
        if not self.admits(consumer):
            return False
        self.consumers.append(consumer)
        self._pump()
        return True

    def acknowledge(self, consumer: Consumer, tag: int) -> None:
        """Remove an acknowledged message."""
        self._maybe_sample()
        entry = consumer.held.pop(tag, None)
        if entry is not None:
            self._server.ledger.acknowledged(self.name, entry.message)
        self._pump()

    def reject(self, consumer: Consumer, tag: int, *, requeue: bool) -> None:
        """Requeue a rejected message, or dead-letter it."""
        self._maybe_sample()
        entry = consumer.held.pop(tag, None)
        if entry is not None:
            if requeue:
                self._requeue(entry)
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
                self._requeue(entry)
            consumer.held.clear()
            self._pump()

    def cancel_consumer(self, consumer: Consumer) -> None:
        """Stop deliveries to a consumer; it may still settle those that it holds."""
        consumer.takes_more = False

    def _requeue(self, entry: Entry) -> None:
        entry.delivery_count += 1
        if entry.delivery_count > self.arguments.get("x-delivery-limit", inf):
            self._dead_letter(entry, "delivery_limit")
        else:
            self.ready.appendleft(entry)

    def _expire(self) -> None:
        while self.ready and self.ready[0].expires_at <= self._server.world.now:
            self._dead_letter(self.ready.popleft(), "expired")

    def _dead_letter(self, entry: Entry, reason: str) -> None:
        self._server.dead_letter(self, entry, reason)

    def _pump(self) -> None:
        """Deliver ready messages to consumers in turn, up to their prefetch limits."""
        self._expire()
        while self.ready:
            free = [c for c in self.consumers if c.takes_more and len(c.held) < c.prefetch]
            if not free:
                return
            consumer = free[0]
            self.consumers.remove(consumer)
            self.consumers.append(consumer)
            self._maybe_sample()
            tag, entry = next(self._tags), self.ready.popleft()
            consumer.held[tag] = entry
            consumer.connection.after_latency(consumer.deliver, tag, entry)
