"""Connections that carry one request at a time, where nothing on the wire tells replies apart.

Such a connection is a *lane*: what comes on it is the reply to its one request, or nobody's. So a
client with several calls has several lanes; and when a try is given up, its lane is closed: a late
reply must not be taken for the reply to the lane's next request (I2). The protocol closes it; here
is kept which call is where.

    join ──► rest ──► occupy ──► vacate
              ▲                    │        and out of each state: drop
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
    """The lanes of a client, at most `connections_max`; `dialling` are asked for and not up yet.

    `calls` has the call of each lane, or None; `idle` the lanes that may be given one. A lane that
    is `blocked`, because it pushes back, is never idle.
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
        """Return how many more lanes to open so that `count` are on their way, and note that."""
        room = self._connections_max - len(self.calls) - self.dialling
        more = int(max(0, min(count - self.dialling, room)))
        self.dialling += more
        return more

    def join(self, peer: Peer) -> bool:
        """Take a new lane, which is not idle yet; False if there is no room for it."""
        if len(self.calls) >= self._connections_max:
            return False
        self.dialling = max(0, self.dialling - 1)
        self.calls[peer] = None
        return True

    def rest(self, peer: Peer) -> bool:
        """Make a lane idle; False if it has a call, or is blocked."""
        if self.calls[peer] is not None or peer in self.blocked:
            return False
        self.idle[peer] = None
        return True

    def occupy(self, call: CallT) -> Peer:
        """Put a call on an idle lane. The one used last is used next, so that in quiet times the
        same few are busy."""
        peer, _ = self.idle.popitem()
        self.calls[peer] = call
        return peer

    def vacate(self, peer: Peer) -> CallT | None:
        """Take the call of a lane off it, whose reply has come; it is not idle yet."""
        call = self.calls[peer]
        self.calls[peer] = None
        return call

    def drop(self, peer: Peer) -> CallT | None:
        """Forget a lane that is lost, or closed; return its call, if it has one."""
        self.idle.pop(peer, None)
        self.blocked.discard(peer)
        return self.calls.pop(peer)

    def block(self, peer: Peer) -> None:
        """Note that a lane pushes back."""
        self.blocked.add(peer)
        self.idle.pop(peer, None)

    def unblock(self, peer: Peer) -> None:
        """Note that a lane takes requests again; it is not idle yet."""
        self.blocked.discard(peer)

    def clear(self) -> None:
        """Forget all lanes, and those that are asked for."""
        self.calls.clear()
        self.idle.clear()
        self.blocked.clear()
        self.dialling = 0
