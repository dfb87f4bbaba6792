"""Named timers inside an engine, so that its shell needs only one.

A heap of (instant, name) and a table of the armed ones. Moving or clearing a timer leaves a stale
entry in the heap, which is skipped later; when stale entries are the majority, the heap is rebuilt,
so memory is proportional to the armed timers (I9). Each operation costs O(log n), amortised.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Final, Generic, TypeVar

Name = TypeVar("Name", bound=Hashable)

# Below this many entries a rebuild costs more than the stale entries.
_REBUILD_FLOOR: Final = 64


class Timers(Generic[Name]):
    """A table of deadlines by name; instants are monotonic seconds."""

    __slots__ = ("_armed", "_heap", "_serials")

    def __init__(self) -> None:
        self._armed: dict[Name, tuple[float, int, Name]] = {}
        self._heap: list[tuple[float, int, Name]] = []
        # Serial numbers identify entries, and break ties in order of arming; names need not be
        # comparable. The identity of a tuple says nothing in compiled code.
        self._serials = count()

    def __len__(self) -> int:
        return len(self._armed)

    def __contains__(self, name: Name) -> bool:
        return name in self._armed

    def set(self, name: Name, at: float) -> None:
        """Arm the deadline `name`, or move it."""
        entry = (at, next(self._serials), name)
        self._armed[name] = entry
        heap = self._heap
        heappush(heap, entry)
        if len(heap) > _REBUILD_FLOOR and len(heap) > 2 * len(self._armed):
            self._rebuild()

    def clear(self, name: Name) -> None:
        """Disarm the deadline `name`, if it is armed."""
        self._armed.pop(name, None)

    def at(self, name: Name) -> float | None:
        """Return when `name` is due, or None."""
        entry = self._armed.get(name)
        return None if entry is None else entry[0]

    def next(self) -> float | None:
        """Return the earliest armed instant, or None."""
        heap = self._heap
        armed = self._armed
        while heap:
            at, serial, name = heap[0]
            current = armed.get(name)
            if current is not None and current[1] == serial:
                return at
            heappop(heap)
        return None

    def due(self, now: float) -> Iterator[Name]:
        """Disarm and yield every name whose instant is not after `now`, earliest first.

        A name that is re-armed during iteration for an instant up to `now` is yielded again: re-arm
        strictly into the future.
        """
        while (at := self.next()) is not None and at <= now:
            name = heappop(self._heap)[2]
            del self._armed[name]
            yield name

    def _rebuild(self) -> None:
        self._heap[:] = self._armed.values()
        heapify(self._heap)
