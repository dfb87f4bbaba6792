"""What waits where requests come in: I8, I9 and I15 ("REP endpoint"; devices hold requests, too).

Which requests wait is known from what comes in; which is taken is told by the worker's `Deliver`,
or by what the device sends on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from functools import cached_property
from typing import Any

from requite.sim.checkers.fairness import SENTENCE, Turns
from requite.sim.history import Call, Checker, History
from requite.sim.scalability.stack import TAG_SIZE, parse
from requite.sim.scalability.watch import Hub
from requite.sim.scalability.workload import call_in


class Waiting:
    """The requests that wait at a worker or device, by channel, and whose turn it is.

    A channel that does not take replies (it is not in `open`) is not served.
    """

    def __init__(self, hub: Hub, hops: int) -> None:
        self.hub = hub
        self.lines: dict[Any, deque[bytes]] = {}
        self.turns: Turns[Any] = Turns()
        self.open: dict[Any, None] = {}
        self._hops = hops if hub.kind == "worker" else hops - 1  # a device adds a tag

    def came(self, peer: Any, payload: bytes) -> None:
        """Note a request, unless it is one that must be dropped."""
        parsed = parse(payload)
        if parsed is not None and parsed.depth <= self._hops:
            self.lines.setdefault(peer, deque()).append(payload)
            self._look(peer)

    def takes_replies(self, peer: Any, takes: bool) -> None:
        """Note whether a channel takes replies."""
        if takes:
            self.open[peer] = None
        else:
            self.open.pop(peer, None)
        self._look(peer)

    def lost(self, peer: Any) -> None:
        """Forget a channel, and what came over it."""
        self.lines.pop(peer, None)
        self.takes_replies(peer, False)

    def give_up(self) -> None:
        """Forget what could be handed to nobody for too long."""
        for peer in self.open:
            self.lines.pop(peer, None)
            self._look(peer)

    def _look(self, peer: Any) -> None:
        self.turns.is_there(peer, peer in self.open and bool(self.lines.get(peer)))

    def taken(self, payload: bytes) -> tuple[Any, Any] | None:
        """Note that a request is taken: return whose turn that was, and who has been passed over by
        it, if anybody was. None: no such request waits.

        Those of strangers may be alike; then it was whosever turn would be fair.
        """
        candidates = [peer for peer, line in self.lines.items() if payload in line]
        if not candidates:
            return None
        fair = [peer for peer in candidates if self.turns.is_fair(peer)]
        peer = (fair or candidates)[0]
        self.lines[peer].remove(payload)
        passed_over = self.turns.serve(peer)
        self.turns.is_there(peer, False)  # and to the end of the line
        self._look(peer)
        return peer, passed_over


class _Queues(Checker):
    """A checker that follows what waits at each hub."""

    def __init__(self, history: History) -> None:
        super().__init__(history)
        self.waiting: dict[Hub, Waiting] = {}

    def hub_started(self, hub: Hub) -> None:
        """Begin a life."""
        if hub.kind != "client":
            self.waiting[hub] = Waiting(hub, self.knobs.hops)

    def hub_ended(self, hub: Hub) -> None:
        """Forget a life."""
        self.waiting.pop(hub, None)

    def request_came(self, hub: Hub, peer: Any, payload: bytes) -> None:
        """Note a request."""
        self.waiting[hub].came(peer, payload)

    def caller_up(self, hub: Hub, peer: Any) -> None:
        """Note that replies are taken."""
        self.waiting[hub].takes_replies(peer, True)

    def caller_down(self, hub: Hub, peer: Any) -> None:
        """Note that they are not."""
        self.waiting[hub].takes_replies(peer, False)

    def channel_lost(self, hub: Hub, peer: Any) -> None:
        """Note that what came over a channel does not count any more."""
        if hub in self.waiting:
            self.waiting[hub].lost(peer)

    def gave_up(self, hub: Hub) -> None:
        """Note that a device drops what waits."""
        self.waiting[hub].give_up()

    def request_taken(self, hub: Hub, payload: bytes) -> None:
        """Note what a worker starts."""
        self.taken(hub, payload)

    def request_sent(self, hub: Hub, _peer: Any, payload: bytes) -> None:
        """Note what a device sends on."""
        if hub.kind == "device":
            self.taken(hub, payload[TAG_SIZE:])

    def taken(self, hub: Hub, payload: bytes) -> None:
        """Note that a request waits no more."""
        self.waiting[hub].taken(payload)


class FairQueues(_Queues):
    """Channels whose requests wait are served in turn."""

    invariant = "I8"
    sentence = SENTENCE

    def taken(self, hub: Hub, payload: bytes) -> None:
        """Check that a turn passes nobody over."""
        served = self.waiting[hub].taken(payload)
        if served is not None and served[1] is not None:
            names = hub.names
            waits = f"{names[served[1]]} waits and has none"
            self.violate(f"{names[served[0]]} has two turns at {hub} while {waits}")


class NeverStartedInVain(_Queues):
    """What is started, or sent on, has come over a channel that is still there; and what a client
    sends is neither over nor given up."""

    invariant = "I15"
    sentence = "expired or cancelled work never starts"

    def taken(self, hub: Hub, payload: bytes) -> None:
        """Check that the request waits."""
        if self.waiting[hub].taken(payload) is None:
            self.violate(f"{hub} takes {payload[:60]!r}, which no channel that is left has brought")

    def request_sent(self, hub: Hub, peer: Any, payload: bytes) -> None:
        """Check what a client sends."""
        super().request_sent(hub, peer, payload)
        call = call_in(self.history, payload) if hub.kind == "client" else None
        if call is not None:
            self._check(call)

    def _check(self, call: Call) -> None:
        late_s = self.history.world.now - call.due_at
        if late_s > 0.0:
            self.violate(f"{call} is sent {late_s:.4f} s after its deadline")
        if call.cancelled or call.ended_at is not None:
            self.violate(f"{call} is sent, though nobody waits for it any more")


class Bounded(_Queues):
    """Nobody has more in hand than it may; who has as many requests waiting of a channel as it may
    does not read from that."""

    invariant = "I9"
    sentence = "bounded memory: every table is back at its baseline after a drain"

    def __init__(self, history: History) -> None:
        super().__init__(history)
        self._late: dict[Any, None] = {}  # channels that brought something after `StopReading`

    @cached_property
    def _queue_max(self) -> dict[str, int]:
        return {worker.name: worker.queue_max for worker in self.knobs.workers}

    @cached_property
    def _in_hand_max(self) -> dict[str, int]:
        slots = {client.name: client.slots for client in self.knobs.clients}
        return slots | {worker.name: worker.capacity for worker in self.knobs.workers}

    def batch_came(self, hub: Hub, peer: Any) -> None:
        """Check that nothing is read from a channel that is not to be read from."""
        if peer not in hub.unread:
            self._late.pop(peer, None)
        elif peer in self._late:
            self.violate(f"{hub} does not want to hear {hub.names[peer]}, and hears it again")
        else:
            self._late[peer] = None

    def rested(self, hub: Hub) -> None:
        """Check, after each input, what waits and what is in hand."""
        in_hand = _in_hand(hub)
        if in_hand > self._in_hand_max.get(hub.name, in_hand):
            self.violate(f"{hub} has {in_hand} requests in hand, more than it may")
        for peer, waits in self._too_many(hub):
            if peer not in hub.unread:
                name = hub.names[peer]
                self.violate(f"{waits} requests of {name} wait at {hub}, which goes on reading")

    def _too_many(self, hub: Hub) -> Iterator[tuple[Any, int]]:
        if hub in self.waiting:
            limit = self._queue_max.get(hub.name, 0)  # a device keeps nothing while it reads
            for peer, line in self.waiting[hub].lines.items():
                if len(line) > limit:
                    yield peer, len(line)


def _in_hand(hub: Hub) -> int:
    """Count the calls of a client, or those requests of a worker that have their handlers."""
    state: Any = hub.snapshot()
    match hub.kind:
        case "client":
            in_hand: int = state.held + state.sent
        case "worker":
            in_hand = state.running + state.abandoned
        case _:
            in_hand = 0
    return in_hand
