"""Requests that wait at a server: per client, and clients take turns, one request each.

So nobody can keep others from being served by asking more. A client with too much waiting is not
read from for a while.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from requite.engine import Peer
from requite.protocols.freelance.wire import Request


class Caller:
    """A client. `waiting` are its requests with their sizes, `size` the sum of these; `is_read`: we
    do not push back."""

    __slots__ = ("is_read", "peer", "size", "waiting")

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.waiting: deque[tuple[int, Request]] = deque()
        self.size = 0
        self.is_read = True


class Callers:
    """All clients, and whose turn it is.

    `queue_max` and `queue_size_max` say how many requests, and bytes of them, may wait per client
    before it is not read from; it is read from again at half of that.
    """

    __slots__ = ("_queue_max", "_queue_size_max", "by_peer", "turns")

    def __init__(self, queue_max: int, queue_size_max: int) -> None:
        self.by_peer: dict[Peer, Caller] = {}
        self.turns: deque[Caller] = deque()  # those with something waiting; the first one is next
        self._queue_max = queue_max
        self._queue_size_max = queue_size_max

    def __iter__(self) -> Iterator[Caller]:
        return iter(self.by_peer.values())

    def join(self, peer: Peer) -> None:
        """Take a new client."""
        self.by_peer[peer] = Caller(peer)

    def leave(self, peer: Peer) -> int:
        """Forget a client, if it is one, and what waits there; return how many requests did."""
        caller = self.by_peer.pop(peer, None)
        if caller is None:
            return 0
        if caller.waiting:
            self.turns.remove(caller)
        return len(caller.waiting)

    def push(self, caller: Caller, request: Request, size: int) -> bool:
        """Let a request wait; tell whether its client is to be read no more."""
        if not caller.waiting:
            self.turns.append(caller)
        caller.waiting.append((size, request))
        caller.size += size
        is_too_much = len(caller.waiting) > self._queue_max or caller.size > self._queue_size_max
        if caller.is_read and is_too_much:
            caller.is_read = False
            return True
        return False

    def pop(self) -> tuple[Caller, Request] | None:
        """Take the request whose turn it is; None if none waits."""
        if not self.turns:
            return None
        caller = self.turns.popleft()
        size, request = caller.waiting.popleft()
        caller.size -= size
        if caller.waiting:
            self.turns.append(caller)
        return caller, request

    def resumes(self, caller: Caller) -> bool:
        """Tell whether a client that is not read from is to be read again, and note it."""
        if (
            caller.is_read
            or len(caller.waiting) > self._queue_max // 2
            or caller.size > self._queue_size_max // 2
        ):
            return False
        caller.is_read = True
        return True

    @property
    def waiting(self) -> int:
        """How many requests wait."""
        return sum(len(caller.waiting) for caller in self)
