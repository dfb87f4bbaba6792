"""Connections that requests come by, and whose turn it is: shared by the queue and the REP server.

Requests that cannot be handed on at once wait at their connection, and connections take turns, one
request each, so that nobody gets more by asking more. A connection with too much waiting is not
read from for a while. What waits is dropped with its connection: a Lazy Pirate hangs up when it
gives a try up, and what nobody waits for any more never starts (I15).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Generic, TypeVar

from requite.engine import Message, Peer

InHand = TypeVar("InHand")


class Asker(Generic[InHand]):
    """One such connection. `address` is how a worker's reply names it (b"": it is not named).

    `waiting` are its requests, `size` their bytes. `in_hand` are those that were handed on and have
    no reply yet. `is_open`: it takes replies. `is_read`: we take its requests.
    """

    __slots__ = ("address", "has_turn", "in_hand", "is_open", "is_read", "peer", "size", "waiting")

    def __init__(self, peer: Peer, address: bytes) -> None:
        self.peer = peer
        self.address = address
        self.waiting: deque[tuple[int, Message]] = deque()
        self.size = 0
        self.in_hand: dict[InHand, None] = {}
        self.has_turn = False
        self.is_open = True
        self.is_read = True


class Turns(Generic[InHand]):
    """All askers, by peer. `one_at_a_time`: an asker with a request in hand has no turn."""

    def __init__(self, queue_max: int, queue_size_max: int, *, one_at_a_time: bool = False) -> None:
        self.by_peer: dict[Peer, Asker[InHand]] = {}
        self._queue_max = queue_max
        self._queue_size_max = queue_size_max
        self._one_at_a_time = one_at_a_time
        self._turns: deque[Asker[InHand]] = deque()

    def __iter__(self) -> Iterator[Asker[InHand]]:
        return iter(self.by_peer.values())

    def __len__(self) -> int:
        return len(self.by_peer)

    @property
    def waiting(self) -> int:
        """How many requests wait."""
        return sum(len(asker.waiting) for asker in self)

    def join(self, peer: Peer, address: bytes = b"") -> Asker[InHand]:
        """Take a new connection."""
        asker = self.by_peer[peer] = Asker(peer, address)
        return asker

    def leave(self, peer: Peer) -> Asker[InHand] | None:
        """Forget a connection, if it is one, with what waits there."""
        asker = self.by_peer.pop(peer, None)
        if asker is not None and asker.has_turn:
            self._turns.remove(asker)
        return asker

    def push(self, asker: Asker[InHand], message: Message) -> bool:
        """Let a request wait; tell whether its connection is to be read no more."""
        size = sum(map(len, message))
        asker.waiting.append((size, message))
        asker.size += size
        self.offer(asker)
        is_full = len(asker.waiting) >= self._queue_max or asker.size >= self._queue_size_max
        if not (asker.is_read and is_full):
            return False
        asker.is_read = False
        return True

    def offer(self, asker: Asker[InHand]) -> None:
        """Give an asker a turn, if it has something waiting and may have one."""
        may = asker.is_open and not (self._one_at_a_time and asker.in_hand)
        if may and asker.waiting and not asker.has_turn:
            asker.has_turn = True
            self._turns.append(asker)

    def pop(self) -> tuple[Asker[InHand], Message] | None:
        """Take the request whose turn it is, if any. Put into `in_hand` what stands for it, then
        `offer` the asker its next turn."""
        while self._turns:
            asker = self._turns.popleft()
            asker.has_turn = False
            if not asker.is_open:
                continue  # it is offered a turn when it takes replies again
            size, message = asker.waiting.popleft()
            asker.size -= size
            return asker, message
        return None

    def resumes(self, asker: Asker[InHand]) -> bool:
        """Tell whether a connection that is not read from is to be read again, and note it."""
        if (
            asker.is_read
            or len(asker.waiting) > self._queue_max // 2
            or asker.size > self._queue_size_max // 2
        ):
            return False
        asker.is_read = True
        return True

    def clear(self) -> int:
        """Forget everything that waits; tell how much it was."""
        count = self.waiting
        self._turns.clear()
        for asker in self:
            asker.waiting.clear()
            asker.size = 0
            asker.has_turn = False
        return count
