"""The workers of a queue: who is ready, least recently used first, and who has been silent.

    UNREADY ──READY──► IDLE ──request──► BUSY ──reply──► IDLE
                        │                 │
                        └──silent, lost───┴──lost──► forgotten

A worker that is busy is not judged by its silence: the Guide's cannot speak while it works, and no
request is given to it before it does.

Sources: Guide, "Robust Reliable Queuing (Paranoid Pirate Pattern)"; 6/PPP.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from math import inf
from typing import Final

from requite.core.liveness import HeartbeatPolicy, Liveness
from requite.engine import Message, Peer
from requite.protocols.pirate.asker import Asker
from requite.protocols.pirate.wire import PPP, Words


class WorkerState(Enum):
    """Where a worker is in its conversation."""

    UNREADY = "unready"  # connected, and has not said that it is ready
    IDLE = "idle"
    BUSY = "busy"


UNREADY: Final = WorkerState.UNREADY
IDLE: Final = WorkerState.IDLE
BUSY: Final = WorkerState.BUSY


class Hand:
    """A worker. `asker` and `envelope` are of the request it has, which its reply must name.

    `words` are its own for "ready" and for a heartbeat. `due_at` is when to look at it next.
    """

    __slots__ = ("asker", "due_at", "envelope", "is_open", "liveness", "peer", "state", "words")

    def __init__(self, peer: Peer, policy: HeartbeatPolicy, now: float) -> None:
        self.peer = peer
        self.liveness = Liveness(policy, now)
        self.due_at = inf
        self.state = UNREADY
        self.words: Words = PPP
        self.asker: Asker[Hand] | None = None
        self.envelope: Message = []
        self.is_open = True


class Crew:
    """All workers, by peer."""

    def __init__(self) -> None:
        self.by_peer: dict[Peer, Hand] = {}
        self._idle: dict[Hand, None] = {}  # least recently used first

    def __iter__(self) -> Iterator[Hand]:
        return iter(self.by_peer.values())

    def __len__(self) -> int:
        return len(self.by_peer)

    @property
    def is_any_idle(self) -> bool:
        """Whether a request could be handed to somebody."""
        return bool(self._idle)

    def count(self, state: WorkerState) -> int:
        """Return how many are in a state."""
        return sum(hand.state is state for hand in self)

    def leave(self, peer: Peer) -> Hand | None:
        """Forget a worker, if it is one."""
        hand = self.by_peer.pop(peer, None)
        if hand is not None:
            self._idle.pop(hand, None)
        return hand

    def ready(self, hand: Hand) -> None:
        """Put a worker behind all others that are idle, whatever it was before."""
        self._idle.pop(hand, None)
        hand.state = IDLE
        hand.asker = None
        hand.envelope = []
        if hand.is_open:
            self._idle[hand] = None

    def take(self) -> Hand:
        """Take the one that has been idle for longest; there has to be one."""
        hand = next(iter(self._idle))
        del self._idle[hand]
        hand.state = BUSY
        return hand

    def block(self, hand: Hand) -> None:
        """Hand nothing to a worker that does not read."""
        hand.is_open = False
        self._idle.pop(hand, None)

    def unblock(self, hand: Hand) -> None:
        """Note that a worker reads again."""
        hand.is_open = True
        if hand.state is IDLE:
            self._idle[hand] = None
