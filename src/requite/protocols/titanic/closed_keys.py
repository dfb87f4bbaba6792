"""Idempotency keys of closed requests: each for a time, and a limited number of them."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush
from itertools import count
from typing import Final

from requite.core.ranking import Ranking

CLOSED_KEYS_MAX: Final = 100_000
"""Maximum of remembered keys of closed requests. Each takes a kilobyte of memory, in the engine and
in the store's index."""


class ClosedKeys:
    """Keys by owner, each until an instant; `length` counts all.

    Of more than `CLOSED_KEYS_MAX`, the owner with the most loses the one that expires first. So no
    owner pushes out a key of one that has fewer.
    """

    __slots__ = ("_by_owner", "_first", "_most", "_order", "length")

    def __init__(self) -> None:
        self.length = 0
        self._by_owner: dict[bytes, list[tuple[float, int, bytes]]] = {}  # heaps
        self._most = Ranking()  # owners by number of keys
        self._first = Ranking()  # owners by the first expiry, negated
        self._order = count()

    def add(self, owner: bytes, key: bytes, until: float) -> None:
        """Add a key."""
        heap = self._by_owner.setdefault(owner, [])
        heappush(heap, (until, next(self._order), key))
        self.length += 1
        self._rank(owner, heap)

    def take(self, now: float) -> Iterator[tuple[bytes, bytes, float]]:
        """Remove and yield surplus and expired keys: owner, key, and instant of expiry."""
        while self.length > CLOSED_KEYS_MAX and (owner := self._most.heaviest()) is not None:
            yield self._pop(owner)
        while (owner := self._first.heaviest()) is not None and self._expiry(owner) <= now:
            yield self._pop(owner)

    def take_all(self, owner: bytes) -> Iterator[bytes]:
        """Remove and yield the keys of an owner."""
        while owner in self._by_owner:
            yield self._pop(owner)[1]

    def next_expiry(self) -> float | None:
        """Return when the next key expires; None without keys."""
        owner = self._first.heaviest()
        return None if owner is None else self._expiry(owner)

    @property
    def is_beyond(self) -> bool:
        """Whether there are more keys than allowed."""
        return self.length > CLOSED_KEYS_MAX

    def _expiry(self, owner: bytes) -> float:
        return self._by_owner[owner][0][0]

    def _pop(self, owner: bytes) -> tuple[bytes, bytes, float]:
        heap = self._by_owner[owner]
        until, _, key = heappop(heap)
        self.length -= 1
        self._rank(owner, heap)
        return owner, key, until

    def _rank(self, owner: bytes, heap: list[tuple[float, int, bytes]]) -> None:
        if heap:
            self._most.set(owner, len(heap))
            self._first.set(owner, -heap[0][0])
        else:
            del self._by_owner[owner]
            self._most.drop(owner)
            self._first.drop(owner)
