"""Connections and channels, as the server tracks them."""

from __future__ import annotations

from collections import Counter
from typing import Any

from requite.protocols.amqp.methods import Confirmed
from requite.sim.rabbitmq.queue import Consumer, Queue


class UnackedDelivery:
    """A delivery that is not acknowledged: its queue, its consumer, the queue's own tag for it, and
    when it was sent."""

    __slots__ = ("at", "consumer", "queue", "queue_tag")

    def __init__(self, queue: Queue, consumer: Consumer, queue_tag: int, now: float) -> None:
        self.at = now
        self.queue = queue
        self.consumer = consumer
        self.queue_tag = queue_tag


class Channel:
    """One channel. `answered` counts the final replies that were published on it and confirmed, by
    `reply-to` and correlation id of the request; `answers` has those not yet confirmed, by their
    publishing sequence numbers."""

    def __init__(self, id_: bytes) -> None:
        self.id = id_
        self.is_closing = False
        self.prefetch = 0
        self.consumers: dict[str, tuple[Queue, Consumer]] = {}
        self.direct = ""  # the name of its consumer of direct replies
        self.last_queue = ""
        self.tag = 0  # delivery tag of the last delivery
        self.held: dict[int, UnackedDelivery] = {}
        self.confirms = False
        self.published = 0
        self.answers: dict[int, tuple[str, str]] = {}
        self.answered: Counter[tuple[str, str]] = Counter()
        self._waiting: dict[int, None] = {}
        self._settled: dict[int, bool] = {}

    def publish(self) -> int:
        """Count a published message; return its sequence number."""
        self.published += 1
        self._waiting[self.published] = None
        return self.published

    def settle(self, number: int, is_taken: bool) -> bool:
        """Record whether a published message was stored; return whether no other confirm is due.
        `confirms_due` returns the confirms."""
        self._settled[number] = is_taken
        return len(self._settled) == 1

    def confirms_due(self) -> list[Confirmed]:
        """Return the confirms to send. One confirm covers several messages if no earlier one is
        unconfirmed."""
        due: list[Confirmed] = []
        for number in sorted(self._settled):
            is_taken = self._settled[number]
            del self._waiting[number]
            answer = self.answers.pop(number, None)
            if answer is not None and is_taken:
                self.answered[answer] += 1
            is_first = all(other > number for other in self._waiting)
            if due and is_first and due[-1].is_taken is is_taken:
                due[-1] = Confirmed(number, True, is_taken)
            else:
                due.append(Confirmed(number, is_first and not due, is_taken))
        self._settled.clear()
        return due


class Session:
    """One connection. `heard_at`, `spoke_at`: when it last received and sent, for heartbeats.
    `publishes`: the client has published on it."""

    def __init__(self, peer: Any, now: float) -> None:
        self.peer = peer
        self.name: str = peer.stream.other.process.name
        self.channels: dict[bytes, Channel] = {}
        self.heard_at = self.spoke_at = now
        self.publishes = False
        self.is_paused = False
