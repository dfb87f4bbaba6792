"""Connections with one request at a time, for protocols whose replies do not identify requests.

Such a connection is a *lane*: a message on it is the reply to its request, or stray. A client with
several calls has several lanes. When an attempt is abandoned, the protocol closes its lane: a late
reply must not be taken for the reply to the lane's next request (I2). This table maps lanes to
calls.

    join ──► rest ──► occupy ──► vacate
              ▲                    │        and from each state: drop
              └────────────────────┘

Sources: 18/MDP, "MDP/Client" ("strictly synchronous"); Guide, "Client-side Reliability (Lazy Pirate
Pattern)".
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import Generic, TypeVar

from requite.engine import Peer

CallT = TypeVar("CallT")


class Lanes(Generic[CallT]):
    """The lanes of a client, at most `connections_max`; `dialling` counts those being connected.

    `calls` has the call of each lane, or None; `idle` has the lanes that are free. A lane with
    back-pressure is in `blocked`, and never idle.
    """

    __slots__ = ("_connections_max", "blocked", "calls", "dialling", "idle")

    def __init__(self, connections_max: float = inf) -> None:
        self._connections_max = connections_max
        self.calls: dict[Peer, CallT | None] = {}
        self.idle: dict[Peer, None] = {}
        self.blocked: set[Peer] = set()
        self.dialling = 0

    def __len__(self) -> int:
        return len(self.calls)

    def __contains__(self, peer: Peer) -> bool:
        return peer in self.calls

    def __iter__(self) -> Iterator[Peer]:
        return iter(self.calls)

    def wanted(self, count: int) -> int:
        """Return how many more lanes to dial so that `count` are being connected; count them."""
        room = self._connections_max - len(self.calls) - self.dialling
        more = int(max(0, min(count - self.dialling, room)))
        self.dialling += more
        return more

    def join(self, peer: Peer) -> bool:
        """Add a new lane, not idle yet; return False if there are too many."""
        if len(self.calls) >= self._connections_max:
            return False
        self.dialling = max(0, self.dialling - 1)
        self.calls[peer] = None
        return True

    def rest(self, peer: Peer) -> bool:
        """Make a lane idle; return False if it has a call, or is blocked."""
        if self.calls[peer] is not None or peer in self.blocked:
            return False
        self.idle[peer] = None
        return True

    def occupy(self, call: CallT) -> Peer:
        """Assign a call to the idle lane that was used last, so that under light load only a few
        lanes are used."""
        peer, _ = self.idle.popitem()
        self.calls[peer] = call
        return peer

    def vacate(self, peer: Peer) -> CallT | None:
        """Remove and return the answered call of a lane, which is not idle yet."""
        call = self.calls[peer]
        self.calls[peer] = None
        return call

    def drop(self, peer: Peer) -> CallT | None:
        """Remove a closed lane; return its call, if any."""
        self.idle.pop(peer, None)
        self.blocked.discard(peer)
        return self.calls.pop(peer)

    def block(self, peer: Peer) -> None:
        """Record back-pressure on a lane."""
        self.blocked.add(peer)
        self.idle.pop(peer, None)

    def unblock(self, peer: Peer) -> None:
        """Record the end of back-pressure on a lane, which is not idle yet."""
        self.blocked.discard(peer)

    def clear(self) -> None:
        """Remove all lanes, and forget those being connected."""
        self.calls.clear()
        self.idle.clear()
        self.blocked.clear()
        self.dialling = 0
