"""Compaction: copies the live records of a sealed segment forward, in small steps, then removes the
segment.

Steps run between the writes of clients, which hardly wait for them. Copies are synced before the
original is removed, so each record is on the disk at every moment, at worst twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from requite.errors import LogFull
from requite.protocols.titanic.records import peek
from requite.storage import Damage, Log, Position, Record
from requite.storage.segment import OVERHEAD
from requite.titanic.index import Index, RecordLocation

BITE_BYTES: Final = 256 * 1024
BITE_RECORDS: Final = 2000


class Compaction:
    """Compacts one segment after the other; `step` does a small part of the work.

    Segments that must be rewritten come first, the oldest first, however much of them is live:
    those before an erasure (`Index.erase_to`), whose own record must be the last to be removed, and
    those with records that are not encrypted with the first key (`Index.outdated`).

    `pinned_from`: a replica still needs everything from this number on. `moved_bytes` and `removed`
    (segments) are counters. `damaged`: unreadable places; their segments are not removed. `mended`:
    places where a single flipped bit was corrected.
    """

    def __init__(self, log: Log, index: Index, lag_max: int) -> None:
        self.pinned_from: int | None = None
        self.moved_bytes = 0
        self.removed = 0
        self.removed_to = 0  # the number after the last record that was removed
        self.synced_to = 0  # the number after the last copy that is on the disk
        self.damaged: list[Damage] = []
        self.mended: list[Damage] = []
        self._log = log
        self._index = index
        self._lag_max = lag_max
        self._to_skip = 0  # searches to skip after a vain one: there may be many segments
        self._segment: int | None = None
        self._rest: Iterator[Record | Damage] = iter(())
        self._spared: set[int] = set()  # damaged, cannot be copied

    @property
    def is_under_way(self) -> bool:
        """Whether a segment is being compacted."""
        return self._segment is not None

    def step(self, below: float) -> bool:
        """Continue a segment, or begin one with a live share less than `below`; return whether
        there was anything to do.

        Raises `LogFull` if the disk has no room for copies; the segment is retried later.
        """
        if self._segment is None and not self._begin(below):
            return False
        try:
            self._copy_some()
        except LogFull:
            self._segment, self._rest = None, iter(())
            raise
        return True

    def _begin(self, below: float) -> bool:
        """Choose the segment with the smallest live share."""
        must_rewrite = self.to_rewrite()
        if not must_rewrite:
            self._index.erase_to = -1
        if self._to_skip and not must_rewrite:
            self._to_skip -= 1
            return False
        self._maybe_unpin()
        live = self._index.live
        first = next(filter(self._may_begin, must_rewrite), None)
        found = [
            (live.get(sealed.number, 0) / (sealed.size - OVERHEAD), sealed.number)
            for sealed in self._log.sealed
            if sealed.size > OVERHEAD and self._may_begin(sealed.number)
        ]
        share, number = min(found, default=(1.0, 0))
        if first is not None:
            number = first
        elif share >= below:
            self._to_skip = len(found) // 4
            return False
        self._segment = number
        self._rest = self._log.reader().read(number) if live.get(number, 0) else iter(())
        return True

    def to_rewrite(self) -> list[int]:
        """Return the sealed segments that must be rewritten, however much is live; oldest first."""
        live, erase_to, outdated = self._index.live, self._index.erase_to, self._index.outdated
        if erase_to < 0 and not outdated:
            return []
        return [
            number
            for number, size, _ in self._log.sealed
            if number in outdated or (number <= erase_to and live.get(number, 0) < size - OVERHEAD)
        ]

    def _may_begin(self, number: int) -> bool:
        return number not in self._spared and not self._is_pinned(number)

    def _maybe_unpin(self) -> None:
        """Stop retaining segments for a replica that lacks too much."""
        pin = self.pinned_from
        if pin is not None:
            lag = sum(sealed.size for sealed in self._log.sealed if sealed.number >= pin)
            if lag > self._lag_max:
                self.pinned_from = None

    def _is_pinned(self, number: int) -> bool:
        """Whether a replica has not read a segment completely."""
        return self.pinned_from is not None and self._end_of(number) > self.pinned_from

    def _end_of(self, number: int) -> int:
        """Return the number after the last record of a segment, or a later one."""
        later = [one.number for one in self._log.sealed if one.number > number]
        return min(later, default=self._log.segment)

    def _copy_some(self) -> None:
        copies: list[tuple[bytes, RecordLocation, bytes]] = []
        size = 0
        for looked_at, item in enumerate(self._rest, 1):
            if isinstance(item, Damage):
                records = self._log.reader().mend(item)
                (self.damaged if records is None else self.mended).append(item)
            else:
                records = [item]
            found = self._needed(records or ())
            copies += found
            size += sum(location.size for _, location, _ in found)
            if size >= BITE_BYTES or looked_at >= BITE_RECORDS:
                self._copy(copies)
                return
        self._copy(copies)
        self._remove()

    def _needed(self, records: Sequence[Record]) -> list[tuple[bytes, RecordLocation, bytes]]:
        """Return the live records: UUID, location and payload."""
        needed = []
        for record in records:
            kind, uuid = peek(record.payload)
            location = self._index.is_needed(kind, uuid, record.segment, record.offset)
            if location is not None:
                needed.append((uuid, location, bytes(record.payload)))
        return needed

    def write_again(self, records: Sequence[Record]) -> None:
        """Write and sync new copies of live records that may not be on the disk correctly.

        Raises `StorageError` if that fails; nothing has changed then.
        """
        copies = self._needed(records)
        if copies:
            self._copy(copies)
            self._log.sync()
            self.synced_to = self._log.next_number

    def _copy(self, copies: list[tuple[bytes, RecordLocation, bytes]]) -> None:
        if not copies:
            return
        positions: list[Position] = self._log.append([payload for _, _, payload in copies])
        for (uuid, location, payload), position in zip(copies, positions, strict=True):
            self._index.moved(uuid, location, position)
            self.moved_bytes += len(payload)

    def _remove(self) -> None:
        """Sync the copies, then remove the segment."""
        segment, self._segment = self._segment, None
        assert segment is not None
        if self._index.live.get(segment, 0):  # a live record in it has become unreadable
            self._spared.add(segment)
            return
        self._log.sync()
        self.synced_to = self._log.next_number
        self.removed_to = max(self.removed_to, self._end_of(segment))
        self._log.remove(segment)
        self._index.removed(segment)
        self.removed += 1
