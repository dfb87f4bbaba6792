"""Check the queues of workers and devices: I8, I9 and I15 ("REP endpoint").

The queues are derived from received requests; a worker's `Deliver`, or a request that a device
forwards, removes one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from functools import cached_property
from typing import Any

from requite.sim.kernel.history import Call, Checker, History
from requite.sim.majordomo.checkers.fairness import SENTENCE, Turns
from requite.sim.scalability.stack import TAG_SIZE, parse
from requite.sim.scalability.watch import Hub
from requite.sim.scalability.workload import call_in


class Waiting:
    """The queued requests of a worker or device, by channel, and whose turn it is.

    A channel with back-pressure (it is not in `open`) is not served.
    """

    def __init__(self, hub: Hub, hops: int) -> None:
        self.hub = hub
        self.lines: dict[Any, deque[bytes]] = {}
        self.turns: Turns[Any] = Turns()
        self.open: dict[Any, None] = {}
        self._hops = hops if hub.kind == "worker" else hops - 1  # a device adds a tag

    def came(self, peer: Any, payload: bytes) -> None:
        """Record a received request, unless it must be dropped."""
        parsed = parse(payload)
        if parsed is not None and parsed.depth <= self._hops:
            self.lines.setdefault(peer, deque()).append(payload)
            self._look(peer)

    def takes_replies(self, peer: Any, takes: bool) -> None:
        """Record whether a channel accepts replies."""
        if takes:
            self.open[peer] = None
        else:
            self.open.pop(peer, None)
        self._look(peer)

    def lost(self, peer: Any) -> None:
        """Forget a lost channel and its requests."""
        self.lines.pop(peer, None)
        self.takes_replies(peer, False)

    def give_up(self) -> None:
        """Forget the requests that a device held for too long."""
        for peer in self.open:
            self.lines.pop(peer, None)
            self._look(peer)

    def _look(self, peer: Any) -> None:
        self.turns.is_there(peer, peer in self.open and bool(self.lines.get(peer)))

    def taken(self, payload: bytes) -> tuple[Any, Any] | None:
        """Record that a request starts. Return its channel, and the channel that it passed over, if
        any. None: no such request is queued.

        Intruders may send equal requests; then a channel whose turn is fair counts as its sender.
        """
        candidates = [peer for peer, line in self.lines.items() if payload in line]
        if not candidates:
            return None
        fair = [peer for peer in candidates if self.turns.is_fair(peer)]
        peer = (fair or candidates)[0]
        self.lines[peer].remove(payload)
        passed_over = self.turns.serve(peer)
        self.turns.is_there(peer, False)  # moves it to the end of the queue
        self._look(peer)
        return peer, passed_over


class _Queues(Checker):
    """A checker that follows the queue of each hub."""

    def __init__(self, history: History) -> None:
        super().__init__(history)
        self.waiting: dict[Hub, Waiting] = {}

    def hub_started(self, hub: Hub) -> None:
        """Start an empty queue."""
        if hub.kind != "client":
            self.waiting[hub] = Waiting(hub, self.knobs.hops)

    def hub_ended(self, hub: Hub) -> None:
        """Forget the queue."""
        self.waiting.pop(hub, None)

    def request_came(self, hub: Hub, peer: Any, payload: bytes) -> None:
        """Record a received request."""
        self.waiting[hub].came(peer, payload)

    def caller_up(self, hub: Hub, peer: Any) -> None:
        """Record that a channel accepts replies."""
        self.waiting[hub].takes_replies(peer, True)

    def caller_down(self, hub: Hub, peer: Any) -> None:
        """Record back-pressure of a channel against replies."""
        self.waiting[hub].takes_replies(peer, False)

    def channel_lost(self, hub: Hub, peer: Any) -> None:
        """Drop the queued requests of a lost channel."""
        if hub in self.waiting:
            self.waiting[hub].lost(peer)

    def gave_up(self, hub: Hub) -> None:
        """Record that a device drops its queue."""
        self.waiting[hub].give_up()

    def request_taken(self, hub: Hub, payload: bytes) -> None:
        """Record that a worker starts a request."""
        self._taken(hub, payload)

    def request_sent(self, hub: Hub, _peer: Any, payload: bytes) -> None:
        """Record that a device forwards a request."""
        if hub.kind == "device":
            self._taken(hub, payload[TAG_SIZE:])

    def _taken(self, hub: Hub, payload: bytes) -> None:
        """Remove a request from the queue."""
        self.waiting[hub].taken(payload)


class FairQueues(_Queues):
    """Channels with queued requests are served in turn."""

    invariant = "I8"
    sentence = SENTENCE

    def _taken(self, hub: Hub, payload: bytes) -> None:
        """Check that a turn passes no other peer over."""
        served = self.waiting[hub].taken(payload)
        if served is not None and served[1] is not None:
            names = hub.names
            waits = f"{names[served[1]]} waits without one"
            self.violate(f"{names[served[0]]} has two turns at {hub} while {waits}")


class NeverStartedInVain(_Queues):
    """Requests that start, or are forwarded, came over a channel that is still open; clients send
    no request that has ended."""

    invariant = "I15"
    sentence = "expired or cancelled work never starts"

    def _taken(self, hub: Hub, payload: bytes) -> None:
        """Check that the request is queued."""
        if self.waiting[hub].taken(payload) is None:
            self.violate(f"{hub} starts {payload[:60]!r}, which came over no open channel")

    def request_sent(self, hub: Hub, peer: Any, payload: bytes) -> None:
        """Check that a client's request has neither ended nor expired."""
        super().request_sent(hub, peer, payload)
        call = call_in(self.history, payload) if hub.kind == "client" else None
        if call is not None:
            self._check(call)

    def _check(self, call: Call) -> None:
        late_s = self.history.world.now - call.due_at
        if late_s > 0.0:
            self.violate(f"{call} is sent {late_s:.4f} s after its deadline")
        if call.cancelled or call.ended_at is not None:
            self.violate(f"{call} is sent, but has already ended or was cancelled")


class Bounded(_Queues):
    """No party has more requests in hand than allowed; a party stops reading a channel whose queue
    is full."""

    invariant = "I9"
    sentence = "bounded memory: every table is back at its baseline after a drain"

    def __init__(self, history: History) -> None:
        super().__init__(history)
        self._late: dict[Any, None] = {}  # channels that were read once after `StopReading`

    @cached_property
    def _queue_max(self) -> dict[str, int]:
        return {worker.name: worker.queue_max for worker in self.knobs.workers}

    @cached_property
    def _in_hand_max(self) -> dict[str, int]:
        slots = {client.name: client.slots for client in self.knobs.clients}
        return slots | {worker.name: worker.capacity for worker in self.knobs.workers}

    def batch_came(self, hub: Hub, peer: Any) -> None:
        """Check that a stopped channel is not read; one batch may be in flight."""
        if peer not in hub.unread:
            self._late.pop(peer, None)
        elif peer in self._late:
            self.violate(f"{hub} has stopped reading {hub.names[peer]}, but reads it again")
        else:
            self._late[peer] = None

    def rested(self, hub: Hub) -> None:
        """Check, after each input, the queues and the requests in hand."""
        in_hand = _in_hand(hub)
        if in_hand > self._in_hand_max.get(hub.name, in_hand):
            self.violate(f"{hub} has {in_hand} requests in hand, more than its limit")
        for peer, waits in self._too_many(hub):
            if peer not in hub.unread:
                name = hub.names[peer]
                self.violate(f"{waits} requests of {name} wait at {hub}, which still reads it")

    def _too_many(self, hub: Hub) -> Iterator[tuple[Any, int]]:
        if hub in self.waiting:
            limit = self._queue_max.get(hub.name, 0)  # a device that reads has an empty queue
            for peer, line in self.waiting[hub].lines.items():
                if len(line) > limit:
                    yield peer, len(line)


def _in_hand(hub: Hub) -> int:
    """Count the calls of a client, or the running handlers of a worker."""
    state: Any = hub.snapshot()
    match hub.kind:
        case "client":
            in_hand: int = state.held + state.sent
        case "worker":
            in_hand = state.running + state.abandoned
        case _:
            in_hand = 0
    return in_hand
