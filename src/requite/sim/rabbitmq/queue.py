"""A model of one queue of RabbitMQ, as far as pools make use of it.

Of a quorum queue it has the count of deliveries, the delivery limit and that only the first message
expires; what it holds outlives a restart. Sources: RabbitMQ's documentation of quorum queues,
time-to-live, queue length limits and dead letter exchanges.
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
    from requite.sim.world import World


class Line(Protocol):
    """The connection to a consumer."""

    def after_latency(self, act: Callable[..., None], *args: Any) -> None:
        """Call `act` at the consumer's end after the latency, if the connection still stands."""


class Register(Protocol):
    """Records what becomes of messages."""

    def queued(self, queue: str, message: SimMessage) -> None:
        """Record a message that enters a queue."""

    def acknowledged(self, queue: str, message: SimMessage) -> None:
        """Record an acknowledged message."""


class Home(Protocol):
    """The server of a queue. It samples its queues every `sample_s`."""

    @property
    def world(self) -> World:
        """The simulated clock and event queue."""

    @property
    def ledger(self) -> Register:
        """The record of messages."""

    @property
    def sample_s(self) -> float:
        """The sampling interval, in seconds."""

    def bury(self, queue: SimQueue, entry: Entry, reason: str) -> None:
        """Dead-letter a message."""


@dataclass(slots=True, eq=False)
class Consumer:
    """Who takes messages out of a queue; `held` are not acknowledged yet."""

    connection: Line
    prefetch: int
    deliver: Callable[[int, Entry], None]
    cancelled: Callable[[], None]
    exclusive: bool = False
    takes_more: bool = True
    held: dict[int, Entry] = field(default_factory=dict)


class SimQueue:
    """A durable queue; with `owner` an exclusive one, which goes with that connection."""

    def __init__(
        self, home: Home, name: str, arguments: Mapping[str, Any], owner: object = None
    ) -> None:
        self.name = name
        self.arguments = dict(arguments)
        self.owner = owner
        self.ready: deque[Entry] = deque()
        self.consumers: list[Consumer] = []
        self._home = home
        self._tags = count(1)
        self._sample = 0  # the number of the last one, and what consumers held then
        self._sampled = 0

    # --- what is known ----------------------------------------------------------------------------
    @property
    def unacknowledged(self) -> int:
        """How many messages consumers hold."""
        return sum(len(consumer.held) for consumer in self.consumers)

    def sampled(self) -> int:
        """How many messages consumers held when RabbitMQ took its last sample of that, which is all
        that its management API knows."""
        self._maybe_sample()
        return self._sampled

    def _maybe_sample(self) -> None:
        """Note what consumers hold, as of the last sample; to be called before that changes."""
        sample = int(self._home.world.now / self._home.sample_s)
        if sample > self._sample:
            self._sample, self._sampled = sample, self.unacknowledged

    @property
    def listening(self) -> int:
        """How many consumers there are that take more."""
        return sum(consumer.takes_more for consumer in self.consumers)

    @property
    def content(self) -> list[SimMessage]:
        """All messages, whether they wait or are held."""
        held = [entry.message for c in self.consumers for entry in c.held.values()]
        return [*held, *(entry.message for entry in self.ready)]

    # --- messages come and go ---------------------------------------------------------------------
    def put(self, message: SimMessage) -> None:
        """Take a message."""
        self._home.ledger.queued(self.name, message)
        ttls = [message.expires_s, self.arguments.get("x-message-ttl", inf) / 1000]
        expires_at = self._home.world.now + min(ttl for ttl in ttls if ttl is not None)
        self.ready.append(Entry(message, expires_at))
        if len(self.ready) > self.arguments.get("x-max-length", inf):
            self._bury(self.ready.popleft(), "maxlen")
        if expires_at < inf:
            self._home.world.at(expires_at, self._expire)
        self._pump()

    def consume(self, consumer: Consumer) -> bool:
        """Take a consumer; tell whether that is allowed."""
        listening = [other for other in self.consumers if other.takes_more]
        if any(other.exclusive for other in listening) or (consumer.exclusive and listening):
            return False
        self.consumers.append(consumer)
        self._pump()
        return True

    def acknowledge(self, consumer: Consumer, tag: int) -> None:
        """Forget a message that was served."""
        self._maybe_sample()
        entry = consumer.held.pop(tag, None)
        if entry is not None:
            self._home.ledger.acknowledged(self.name, entry.message)
        self._pump()

    def reject(self, consumer: Consumer, tag: int, *, requeue: bool) -> None:
        """Take a message back, or bury it."""
        self._maybe_sample()
        entry = consumer.held.pop(tag, None)
        if entry is not None:
            if requeue:
                self._give_back(entry)
            else:
                self._bury(entry, "rejected")
        self._pump()

    def lose(self, consumer: Consumer) -> None:
        """Take back what a consumer holds that has gone."""
        if consumer in self.consumers:
            self._maybe_sample()
            self.consumers.remove(consumer)
            for entry in reversed([*consumer.held.values()]):
                self._give_back(entry)
            consumer.held.clear()
            self._pump()

    def stop(self, consumer: Consumer) -> None:
        """Give a consumer no more; what it holds it may still acknowledge."""
        consumer.takes_more = False

    def _give_back(self, entry: Entry) -> None:
        entry.returns += 1
        if entry.returns > self.arguments.get("x-delivery-limit", inf):
            self._bury(entry, "delivery_limit")
        else:
            self.ready.appendleft(entry)

    def _expire(self) -> None:
        while self.ready and self.ready[0].expires_at <= self._home.world.now:
            self._bury(self.ready.popleft(), "expired")

    def _bury(self, entry: Entry, reason: str) -> None:
        self._home.bury(self, entry, reason)

    def _pump(self) -> None:
        """Deliver to consumers by turns, for as long as they take more."""
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
