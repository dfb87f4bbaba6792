"""Names by weight, to find the heaviest one."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Final

_FLOOR: Final = 64


class Ranking:
    """The `weights` of names. Weights may change at any time; `heaviest` takes O(log n)."""

    __slots__ = ("_heap", "weights")

    def __init__(self) -> None:
        self.weights: dict[bytes, float] = {}
        self._heap: list[tuple[float, bytes]] = []  # negated weights; outdated ones are skipped

    def set(self, name: bytes, weight: float) -> None:
        """Set the weight of a name."""
        if self.weights.get(name) == weight:
            return
        self.weights[name] = weight
        heappush(self._heap, (-weight, name))
        if len(self._heap) > 2 * len(self.weights) + _FLOOR:
            self._heap = [(-weight, name) for name, weight in self.weights.items()]
            heapify(self._heap)

    def drop(self, name: bytes) -> None:
        """Remove a name, if it has a weight."""
        self.weights.pop(name, None)

    def heaviest(self) -> bytes | None:
        """Return the name with the highest weight, or None without names."""
        heap = self._heap
        while heap:
            weight, name = heap[0]
            if self.weights.get(name) == -weight:
                return name
            heappop(heap)
        return None
