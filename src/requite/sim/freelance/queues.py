"""Check the queues of servers: I8 and I9. The queues are derived from received requests."""

from __future__ import annotations

from collections import deque
from functools import cached_property
from typing import Any

from requite.sim.freelance.checkers import FlpChecker
from requite.sim.freelance.watch import Hub
from requite.sim.freelance.words import request_body
from requite.sim.kernel.history import History
from requite.sim.majordomo.checkers.fairness import SENTENCE, Turns


class Waiting:
    """The queued requests of a server, by client, and whose turn it is."""

    def __init__(self) -> None:
        self.lines: dict[Any, deque[list[bytes]]] = {}
        self._turns: Turns[Any] = Turns()

    def came(self, peer: Any, message: list[bytes]) -> None:
        """Record a received request."""
        self.lines.setdefault(peer, deque()).append(message)
        self._turns.is_there(peer, True)

    def lost(self, peer: Any) -> None:
        """Forget a client."""
        self.lines.pop(peer, None)
        self._turns.is_there(peer, False)

    def taken(self, peer: Any, message: list[bytes]) -> tuple[bool, Any]:
        """Record that a request starts. Return whether it was its client's first, and the client
        that it passed over, if any."""
        line = self.lines.get(peer)
        if not line or line.popleft() != message:
            return False, None
        passed_over = self._turns.serve(peer)
        self._turns.is_there(peer, False)  # moves it to the end of the queue
        self._turns.is_there(peer, bool(line))
        return True, passed_over


class _Queues(FlpChecker):
    """A checker that follows the queue of each server."""

    def __init__(self, history: History) -> None:
        super().__init__(history)
        self.waiting: dict[Hub, Waiting] = {}

    def hub_started(self, hub: Hub) -> None:
        """Start an empty queue."""
        if hub.kind == "server":
            self.waiting[hub] = Waiting()

    def hub_ended(self, hub: Hub) -> None:
        """Forget the queue."""
        self.waiting.pop(hub, None)

    def request_came(self, hub: Hub, peer: Any, message: list[bytes]) -> None:
        """Record a received request."""
        if request_body(hub.model, message) is not None:
            self.waiting[hub].came(peer, message)

    def channel_lost(self, hub: Hub, peer: Any) -> None:
        """Drop the queued requests of a lost client."""
        if hub in self.waiting:
            self.waiting[hub].lost(peer)

    def request_taken(self, hub: Hub, peer: Any, message: list[bytes]) -> None:
        """Record that a request starts."""
        self.waiting[hub].taken(peer, message)


class FairQueues(_Queues):
    """A server takes clients with queued requests in turn, and each client's requests in order."""

    invariant = "I8"
    sentence = SENTENCE

    def request_taken(self, hub: Hub, peer: Any, message: list[bytes]) -> None:
        """Check that a turn passes no other peer over."""
        is_first, passed_over = self.waiting[hub].taken(peer, message)
        if not is_first:
            self.violate(f"{hub} starts {message[:2]!r} of {hub.names.get(peer)} out of order")
        elif passed_over is not None:
            names = hub.names
            waits = f"{names[passed_over]} waits without one"
            self.violate(f"{names[peer]} has two turns at {hub} while {waits}")


class Bounded(_Queues):
    """No party has more requests in hand than allowed; a server stops reading a client whose queue
    is full."""

    invariant = "I9"
    sentence = "bounded memory: every table is back at its baseline after a drain"

    @cached_property
    def _queue_max(self) -> dict[str, int]:
        return {server.name: server.queue_max for server in self.knobs.servers}

    @cached_property
    def _in_hand_max(self) -> dict[str, int]:
        slots = {client.name: client.slots for client in self.knobs.clients}
        return slots | {server.name: server.capacity for server in self.knobs.servers}

    def rested(self, hub: Hub) -> None:
        """Check, after each input, the queues and the requests in hand."""
        state: Any = hub.snapshot()
        is_client = hub.kind == "client"
        in_hand = state.held + state.sent if is_client else state.running + state.abandoned
        if in_hand > self._in_hand_max[hub.name]:
            self.violate(f"{hub} has {in_hand} requests in hand, more than its limit")
        if hub in self.waiting:
            for peer, line in self.waiting[hub].lines.items():
                if len(line) > self._queue_max[hub.name] and peer not in hub.unread:
                    name = hub.names[peer]
                    self.violate(
                        f"{len(line)} requests of {name} wait at {hub}, which still reads it"
                    )
