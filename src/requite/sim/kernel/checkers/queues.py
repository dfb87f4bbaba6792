"""Check the queues of parties that serve requests: turns, and limits (I8, I9).

Requests are queued by connection. A connection with back-pressure takes no replies and gets no
turns.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from requite.sim.kernel.checkers import limits
from requite.sim.kernel.checkers.turns import SENTENCE, Turns
from requite.sim.kernel.history import Checker, History
from requite.sim.kernel.hub import Hub


class Waiting:
    """The queued requests of a party, by connection, and whose turn it is."""

    def __init__(self, hub: Hub) -> None:
        self.hub = hub
        self.lines: dict[Any, deque[Any]] = {}
        self.turns: Turns[Any] = Turns()

    def came(self, peer: Any, message: Any) -> None:
        """Record a received request."""
        self.lines.setdefault(peer, deque()).append(message)
        self.look(peer)

    def lost(self, peer: Any) -> None:
        """Forget a lost connection and its requests."""
        self.lines.pop(peer, None)
        self.look(peer)

    def give_up(self) -> None:
        """Forget the requests that were held for too long."""
        for peer in self.hub.open:
            self.lost(peer)

    def look(self, peer: Any) -> None:
        """Record whether a connection can get a turn."""
        self.turns.is_there(peer, peer in self.hub.open and bool(self.lines.get(peer)))

    def taken(self, message: Any, peer: Any = None) -> tuple[Any, Any] | None:
        """Record that a request starts. Return its connection, and the one that it passes over, if
        any. None: no such request is queued.

        If only the request is known: intruders may send equal ones, and then a connection whose
        turn is fair counts as its sender.
        """
        if peer is None:
            candidates = [each for each, line in self.lines.items() if message in line]
            fair = [each for each in candidates if self.turns.is_fair(each)]
            peer = next(iter(fair or candidates), None)
        line = self.lines.get(peer, ())
        if message not in line:
            return None
        self.lines[peer].remove(message)
        passed_over = self.turns.serve(peer)
        self.turns.is_there(peer, False)  # moves it to the end of the queue
        self.look(peer)
        return peer, passed_over


class Queues(Checker):
    """A checker that follows the queue of each party that serves requests."""

    def __init__(self, history: History) -> None:
        super().__init__(history)
        self.waiting: dict[Hub, Waiting] = {}

    def hub_started(self, hub: Hub) -> None:
        """Start an empty queue."""
        if hub.kind != "client":
            self.waiting[hub] = Waiting(hub)

    def hub_ended(self, hub: Hub) -> None:
        """Forget the queue."""
        self.waiting.pop(hub, None)

    def request_came(self, hub: Hub, peer: Any, message: Any) -> None:
        """Record a received request."""
        if hub.queues(message):
            self.waiting[hub].came(peer, message)

    def caller_up(self, hub: Hub, peer: Any) -> None:
        """Record that a connection takes replies."""
        self.waiting[hub].look(peer)

    def caller_down(self, hub: Hub, peer: Any) -> None:
        """Record back-pressure against replies."""
        self.waiting[hub].look(peer)

    def channel_lost(self, hub: Hub, peer: Any) -> None:
        """Drop the queued requests of a lost connection."""
        if hub in self.waiting:
            self.waiting[hub].lost(peer)

    def gave_up(self, hub: Hub) -> None:
        """Record that a party drops its queue."""
        self.waiting[hub].give_up()

    def request_taken(self, hub: Hub, peer: Any, message: Any) -> None:
        """Record that a request starts; `peer` is None if only the request is known."""
        self.waiting[hub].taken(message, peer)


class FairQueues(Queues):
    """A party that serves requests takes connections with queued requests in turn."""

    invariant = "I8"
    sentence = SENTENCE

    def request_taken(self, hub: Hub, peer: Any, message: Any) -> None:
        """Check that a turn passes no other peer over, and no earlier request of the same one."""
        line = self.waiting[hub].lines.get(peer)
        if peer is not None and (not line or line[0] != message):
            self.violate(f"{hub} starts {message[:2]!r} of {hub.names.get(peer)} out of order")
        served = self.waiting[hub].taken(message, peer)
        if served is not None and served[1] is not None:
            names = hub.names
            waits = f"{names[served[1]]} waits without one"
            self.violate(f"{names[served[0]]} has two turns at {hub} while {waits}")


class Bounded(limits.Bounded, Queues):
    """No party has more requests in hand than allowed; a party stops reading a connection whose
    queue is full."""

    def __init__(self, history: History) -> None:
        super().__init__(history)
        self._late: dict[Any, None] = {}  # connections that were read once after `StopReading`

    def batch_came(self, hub: Hub, peer: Any) -> None:
        """Check that a stopped connection is not read; one batch may be in flight."""
        if peer not in hub.unread:
            self._late.pop(peer, None)
        elif peer in self._late:
            self.violate(f"{hub} has stopped reading {hub.names[peer]}, but reads it again")
        else:
            self._late[peer] = None

    def rested(self, hub: Hub) -> None:
        """Check, after each input, the queues and the requests in hand."""
        super().rested(hub)
        if hub in self.waiting:
            for peer, line in self.waiting[hub].lines.items():
                if len(line) > hub.process.queue_max and peer not in hub.unread:
                    name = hub.names[peer]
                    self.violate(
                        f"{len(line)} requests of {name} wait at {hub}, which still reads it"
                    )
