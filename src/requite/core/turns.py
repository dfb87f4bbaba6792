"""Queued requests at a server, a queue or a device: per client, served round robin.

Requests that cannot be served at once are queued per connection. Connections take turns, one
request each, so a client gains nothing by sending more. A connection with too many queued requests
is not read from. Queued requests are dropped with their connection: no caller waits for them, so
they never start (I15).

A client with back-pressure does not read its replies, and is not served until it does. It does not
lose its turn: if it was skipped, it is served next.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any, Generic, TypeVar

from requite.engine import Peer


class ClientPeer:
    """One connection of a client.

    `waiting` are its queued requests with their sizes (None: there are none), `size` the sum of
    these. `is_open`: it reads replies (no back-pressure). `is_read`: we read its requests.
    `is_busy`: a request of it is being served, if clients have one at a time. `has_turn`: it is in
    the line. `principal` is the name of the connection's owner, for `Request.principal`.
    """

    __slots__ = (
        "has_turn",
        "is_busy",
        "is_open",
        "is_read",
        "peer",
        "principal",
        "size",
        "waiting",
    )

    def __init__(self, peer: Peer, principal: str = "") -> None:
        self.peer = peer
        self.principal = principal
        self.waiting: deque[tuple[int, Any]] | None = None  # an empty one takes 760 bytes
        self.size = 0
        self.has_turn = False
        self.is_busy = False
        self.is_open = True
        self.is_read = True

    @property
    def queued(self) -> int:
        """The number of its queued requests."""
        return 0 if self.waiting is None else len(self.waiting)


ClientT = TypeVar("ClientT", bound=ClientPeer)


class Turns(Generic[ClientT]):
    """All clients by peer, and the `line` of those with queued requests; the first one is next.

    With more than `queue_max` queued requests, or `queue_size_max` bytes, a client is not read from
    until half of them are gone; with `stops_at_max`, already at these limits. `one_at_a_time`: a
    client gets its next turn by `offer`.
    """

    __slots__ = (
        "_count_max",
        "_one_at_a_time",
        "_queue_max",
        "_queue_size_max",
        "_size_max",
        "by_peer",
        "line",
    )

    def __init__(
        self,
        queue_max: int,
        queue_size_max: int,
        *,
        stops_at_max: bool = False,
        one_at_a_time: bool = False,
    ) -> None:
        self.by_peer: dict[Peer, ClientT] = {}
        self.line: deque[ClientT] = deque()
        self._queue_max = queue_max
        self._queue_size_max = queue_size_max
        self._count_max = queue_max - stops_at_max
        self._size_max = queue_size_max - stops_at_max
        self._one_at_a_time = one_at_a_time

    def __iter__(self) -> Iterator[ClientT]:
        return iter(self.by_peer.values())

    def __len__(self) -> int:
        return len(self.by_peer)

    @property
    def waiting(self) -> int:
        """The number of queued requests."""
        return sum(client.queued for client in self)

    # --- clients ----------------------------------------------------------------------------------
    def join(self, client: ClientT) -> None:
        """Add a client."""
        self.by_peer[client.peer] = client

    def leave(self, peer: Peer) -> ClientT | None:
        """Remove a client and its queued requests, and return it; None for any other peer."""
        client = self.by_peer.pop(peer, None)
        if client is not None and client.has_turn:
            self.line.remove(client)
        return client

    def block(self, peer: Peer) -> None:
        """Record back-pressure of a client; ignore any other peer."""
        if client := self.by_peer.get(peer):
            client.is_open = False

    def unblock(self, peer: Peer) -> ClientT | None:
        """Record the end of a client's back-pressure, and return it; None if it had none."""
        client = self.by_peer.get(peer)
        if client is None or client.is_open:
            return None
        client.is_open = True
        if client.waiting and not (client.has_turn or client.is_busy):
            client.has_turn = True
            self.line.appendleft(client)
        return client

    def resumes(self, client: ClientT) -> bool:
        """Return whether to resume reading from a client, and record it."""
        if (
            client.is_read
            or client.queued > self._queue_max // 2
            or client.size > self._queue_size_max // 2
        ):
            return False
        client.is_read = True
        return True

    # --- queued requests --------------------------------------------------------------------------
    def push(self, client: ClientT, request: Any, size: int) -> bool:
        """Queue a request; return whether to stop reading from its client, and record it."""
        waiting = client.waiting
        if waiting is None:
            waiting = client.waiting = deque()
        waiting.append((size, request))
        client.size += size
        if not (client.has_turn or client.is_busy):
            client.has_turn = True
            self.line.append(client)
        if client.is_read and (len(waiting) > self._count_max or client.size > self._size_max):
            client.is_read = False
            return True
        return False

    def pop(self) -> tuple[ClientT, Any] | None:
        """Remove and return the next request of a client without back-pressure, or None."""
        line = self.line
        while line:
            client = line.popleft()
            client.has_turn = False
            if not client.is_open:
                continue  # `unblock` puts it first in the line
            waiting = client.waiting
            assert waiting is not None  # it has a turn
            size, request = waiting.popleft()
            if not waiting:
                client.waiting = None
            client.size -= size
            if self._one_at_a_time:
                client.is_busy = True
            elif client.waiting:
                client.has_turn = True
                line.append(client)
            return client, request
        return None

    def offer(self, client: ClientT) -> None:
        """Give an answered client its next turn, if clients have one request at a time."""
        client.is_busy = False
        if client.waiting and not client.has_turn:
            client.has_turn = True
            self.line.append(client)

    def clear(self) -> int:
        """Drop all queued requests; return their number."""
        count = self.waiting
        self.line.clear()
        for client in self:
            client.waiting = None
            client.size = 0
            client.has_turn = False
        return count
