"""Requests that wait at a server, a queue or a device: per client, and clients take turns.

A request that cannot be taken at once waits at the connection that it came by. Connections take
turns, one request each, so that nobody gets more by asking more. A connection with too much waiting
is not read from for a while. What waits is lost with its connection: nobody waits for it any more,
so it never starts (I15).

A client that pushes back does not read the replies it is sent, and gets no further request served
until it does. It loses no turn by that: if its turn has come meanwhile, it is the next.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any, Generic, TypeVar

from requite.engine import Peer


class ClientPeer:
    """One connection that requests come by.

    `waiting` are its requests with their sizes, `size` the sum of these. `is_open`: it does not
    push back. `is_read`: we do not push back. `is_busy`: a request of it is being served, where a
    client has one at a time. `has_turn`: it stands in the line.
    """

    __slots__ = ("has_turn", "is_busy", "is_open", "is_read", "peer", "size", "waiting")

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.waiting: deque[tuple[int, Any]] = deque()
        self.size = 0
        self.has_turn = False
        self.is_busy = False
        self.is_open = True
        self.is_read = True


ClientT = TypeVar("ClientT", bound=ClientPeer)


class Turns(Generic[ClientT]):
    """All clients by peer, and the `line` of those whose turn will come; the first one is next.

    More than `queue_max` requests, or `queue_size_max` bytes of them, may not wait per client: then
    it is not read from until half of them are gone. With `stops_at_max` it is not read from as soon
    as there are that many. `one_at_a_time`: a client has its next turn when it is offered one.
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
        """How many requests wait."""
        return sum(len(client.waiting) for client in self)

    # --- clients ----------------------------------------------------------------------------------
    def join(self, client: ClientT) -> None:
        """Take a new client."""
        self.by_peer[client.peer] = client

    def leave(self, peer: Peer) -> ClientT | None:
        """Forget a client, if it is one, and what waits there."""
        client = self.by_peer.pop(peer, None)
        if client is not None and client.has_turn:
            self.line.remove(client)
        return client

    def block(self, peer: Peer) -> None:
        """Note that a client pushes back, if it is one."""
        if client := self.by_peer.get(peer):
            client.is_open = False

    def unblock(self, peer: Peer) -> ClientT | None:
        """Note that a client takes replies again; return it, if it is one that did not."""
        client = self.by_peer.get(peer)
        if client is None or client.is_open:
            return None
        client.is_open = True
        if client.waiting and not (client.has_turn or client.is_busy):
            client.has_turn = True
            self.line.appendleft(client)
        return client

    def resumes(self, client: ClientT) -> bool:
        """Tell whether a client that is not read from is to be read again, and note it."""
        if (
            client.is_read
            or len(client.waiting) > self._queue_max // 2
            or client.size > self._queue_size_max // 2
        ):
            return False
        client.is_read = True
        return True

    # --- requests that wait -----------------------------------------------------------------------
    def push(self, client: ClientT, request: Any, size: int) -> bool:
        """Let a request wait; tell whether its client is to be read no more, and note it."""
        client.waiting.append((size, request))
        client.size += size
        if not (client.has_turn or client.is_busy):
            client.has_turn = True
            self.line.append(client)
        if client.is_read and (
            len(client.waiting) > self._count_max or client.size > self._size_max
        ):
            client.is_read = False
            return True
        return False

    def pop(self) -> tuple[ClientT, Any] | None:
        """Take the request whose turn it is; None if none waits whose client takes replies."""
        line = self.line
        while line:
            client = line.popleft()
            client.has_turn = False
            if not client.is_open:
                continue  # the turn is owed to it
            size, request = client.waiting.popleft()
            client.size -= size
            if self._one_at_a_time:
                client.is_busy = True
            elif client.waiting:
                client.has_turn = True
                line.append(client)
            return client, request
        return None

    def offer(self, client: ClientT) -> None:
        """Let a client that has one request at a time have its next turn: it was answered."""
        client.is_busy = False
        if client.waiting and not client.has_turn:
            client.has_turn = True
            self.line.append(client)

    def clear(self) -> int:
        """Forget everything that waits; tell how much it was."""
        count = self.waiting
        self.line.clear()
        for client in self:
            client.waiting.clear()
            client.size = 0
            client.has_turn = False
        return count
