"""The sealed segments of a log, and which of them exceed the retention limits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import NamedTuple

from requite.storage.files import Folder
from requite.storage.layout import segment_name


class Sealed(NamedTuple):
    """A sealed segment; `ended_us` is the wall time at which the one after it was begun."""

    number: int
    size: int
    ended_us: int


class Shelf:
    """Sealed segments, oldest first."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._sealed: dict[int, Sealed] = {}

    def __contains__(self, number: int) -> bool:
        return number in self._sealed

    def __iter__(self) -> Iterator[Sealed]:
        return iter(self._sealed.values())

    def add(self, sealed: Sealed) -> None:
        self._sealed[sealed.number] = sealed

    def remove(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            self._folder.remove(segment_name(number))
            del self._sealed[number]

    def beyond_size(self, size_max: int) -> set[int]:
        """Return the oldest segments to remove so that at most `size_max` bytes are left."""
        newest_first = list(reversed(self._sealed.values()))
        totals = accumulate(sealed.size for sealed in newest_first)
        return {
            sealed.number
            for sealed, total in zip(newest_first, totals, strict=True)
            if total > size_max
        }

    def ended_before(self, instant_us: float) -> set[int]:
        """Return the segments that ended before an instant of wall time."""
        return {sealed.number for sealed in self._sealed.values() if sealed.ended_us < instant_us}
