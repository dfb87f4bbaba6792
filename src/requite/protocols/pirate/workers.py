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
from typing import Final, TypeAlias

from requite.core.liveness import HeartbeatPolicy, Liveness
from requite.engine import Message, Peer
from requite.protocols.pirate.clients import AddressedClient
from requite.protocols.pirate.wire import PPP, Words


class WorkerState(Enum):
    """Where a worker is in its conversation."""

    UNREADY = "unready"  # connected, and has not said that it is ready
    IDLE = "idle"
    BUSY = "busy"


UNREADY: Final = WorkerState.UNREADY
IDLE: Final = WorkerState.IDLE
BUSY: Final = WorkerState.BUSY


class WorkerPeer:
    """A worker. `client` and `envelope` are of the request it has, which its reply must name.

    `words` are its own for "ready" and for a heartbeat. `due_at` is when to look at it next.
    """

    __slots__ = ("client", "due_at", "envelope", "is_open", "liveness", "peer", "state", "words")

    def __init__(self, peer: Peer, policy: HeartbeatPolicy, now: float) -> None:
        self.peer = peer
        self.liveness = Liveness(policy, now)
        self.due_at = inf
        self.state = UNREADY
        self.words: Words = PPP
        self.client: AddressedClient[WorkerPeer] | None = None
        self.envelope: Message = []
        self.is_open = True


QueueClient: TypeAlias = AddressedClient[WorkerPeer]


class WorkerSet:
    """All workers, by peer."""

    def __init__(self) -> None:
        self.by_peer: dict[Peer, WorkerPeer] = {}
        self._idle: dict[WorkerPeer, None] = {}  # least recently used first

    def __iter__(self) -> Iterator[WorkerPeer]:
        return iter(self.by_peer.values())

    def __len__(self) -> int:
        return len(self.by_peer)

    @property
    def is_any_idle(self) -> bool:
        """Whether a request could be handed to somebody."""
        return bool(self._idle)

    def count(self, state: WorkerState) -> int:
        """Return how many are in a state."""
        return sum(worker.state is state for worker in self)

    def leave(self, peer: Peer) -> WorkerPeer | None:
        """Forget a worker, if it is one."""
        worker = self.by_peer.pop(peer, None)
        if worker is not None:
            self._idle.pop(worker, None)
        return worker

    def ready(self, worker: WorkerPeer) -> None:
        """Put a worker behind all others that are idle, whatever it was before."""
        self._idle.pop(worker, None)
        worker.state = IDLE
        worker.client = None
        worker.envelope = []
        if worker.is_open:
            self._idle[worker] = None

    def take(self) -> WorkerPeer:
        """Take the one that has been idle for longest; there has to be one."""
        worker = next(iter(self._idle))
        del self._idle[worker]
        worker.state = BUSY
        return worker

    def block(self, worker: WorkerPeer) -> None:
        """Hand nothing to a worker that does not read."""
        worker.is_open = False
        self._idle.pop(worker, None)

    def unblock(self, worker: WorkerPeer) -> None:
        """Note that a worker reads again."""
        worker.is_open = True
        if worker.state is IDLE:
            self._idle[worker] = None
