"""The workers of a queue, and the idle ones in least-recently-used order.

    UNREADY ──READY──► IDLE ──request──► BUSY ──reply──► IDLE
                        │                 │
                        └──silent, lost───┴──lost──► forgotten

The silence of a busy worker does not count: the Guide's workers send no heartbeats while they work,
and get no further request before their reply.

Sources: Guide, "Robust Reliable Queuing (Paranoid Pirate Pattern)"; 6/PPP.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from math import inf
from typing import Final

from requite.core.liveness import HeartbeatPolicy, Liveness
from requite.engine import Message, Peer
from requite.protocols.pirate.clients import AddressedClient
from requite.protocols.pirate.wire import PPP, Words


class WorkerState(Enum):
    """State of a worker."""

    UNREADY = "unready"  # connected, READY not received
    IDLE = "idle"
    BUSY = "busy"


UNREADY: Final = WorkerState.UNREADY
IDLE: Final = WorkerState.IDLE
BUSY: Final = WorkerState.BUSY


class WorkerPeer:
    """A worker. `client` and `envelope` are those of its request; the reply must have the same
    envelope. `words` is its encoding of READY and heartbeats, `due_at` its next timer."""

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
        """Whether a worker is idle and accepts messages."""
        return bool(self._idle)

    def count(self, state: WorkerState) -> int:
        """Return the number of workers in a state."""
        return sum(worker.state is state for worker in self)

    def leave(self, peer: Peer) -> WorkerPeer | None:
        """Remove a worker and return it; None for any other peer."""
        worker = self.by_peer.pop(peer, None)
        if worker is not None:
            self._idle.pop(worker, None)
        return worker

    def ready(self, worker: WorkerPeer) -> None:
        """Set a worker to IDLE, behind all other idle ones."""
        self._idle.pop(worker, None)
        worker.state = IDLE
        worker.client = None
        worker.envelope = []
        if worker.is_open:
            self._idle[worker] = None

    def take(self) -> WorkerPeer:
        """Set the worker that has been idle for longest to BUSY, and return it."""
        worker = next(iter(self._idle))
        del self._idle[worker]
        worker.state = BUSY
        return worker

    def block(self, worker: WorkerPeer) -> None:
        """Send no requests to a worker with back-pressure."""
        worker.is_open = False
        self._idle.pop(worker, None)

    def unblock(self, worker: WorkerPeer) -> None:
        """Record that a worker accepts messages again."""
        worker.is_open = True
        if worker.state is IDLE:
            self._idle[worker] = None
