"""How much disk a store may take, and what is refused when there is no more.

What is left free when the bound is near, in segments: one for replies to what was accepted, one for
what closes requests, and one for compaction, which makes room again. Besides, requests leave room
for the replies to all that wait. So there is always a way on.

What a replica is sent was accepted elsewhere, under the same rules. It is taken as long as
compaction has its segment: what closes requests comes behind it, and would not come otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from requite.errors import LogFull
from requite.protocols.titanic.records import CLOSED, ROLE, SUBMITTED
from requite.storage import Log
from requite.titanic.index import Index

SEGMENTS_MIN: Final = 5
_RESERVES: Final = {SUBMITTED: 3, CLOSED: 1, ROLE: 1}
_RESERVE_OTHERS: Final = 2
_NEAR: Final = 0.9  # when the bound is near, segments with less than this part in use are compacted


class Bound:
    """`limit` bytes of disk, None: what there is. `is_pressed`: somebody was refused."""

    def __init__(
        self, log: Log, index: Index, limit: int | None, segment: int, compact_below: float
    ) -> None:
        self.limit = limit
        self.is_pressed = False
        self._log = log
        self._index = index
        self._segment = segment
        self._compact_below = compact_below

    def refusal(self, records: Sequence[bytes], size: int, before: int) -> LogFull | None:
        """Why records must not be written: they need another segment, beyond the bound.

        `size` is what they take on the disk, together with the `before` records that are to be
        written with them.
        """
        if self.limit is None or not records:
            return None
        is_copied = records[-1][0] == ROLE  # the last record of what a replica is sent
        kind, count = ROLE if is_copied else records[0][0], before + len(records)
        takes = 0 if size <= self._log.room(count) else self._segment
        if not takes and kind != SUBMITTED:
            return None
        reserve = _RESERVES.get(kind, _RESERVE_OTHERS) * self._segment
        if kind == SUBMITTED:
            reserve += self._index.bytes_to_come(count)
        if self._log.disk_bytes + takes <= self.limit - reserve:
            return None
        self.is_pressed = True
        return LogFull(
            f"the store has {self._log.disk_bytes} bytes, and {self._index.unanswered} requests "
            f"wait for replies; it may have {self.limit} bytes (disk_bytes_max). Close requests "
            "that are done with, or allow more."
        )

    def compact_below(self) -> float:
        """Which part of a segment may be needed, for its compaction to be worth while."""
        if self.limit is None:
            return self._compact_below
        if self.is_pressed:  # whatever can be gained is worth it
            return 1.0
        if self._log.disk_bytes < self.limit - (SEGMENTS_MIN - 1) * self._segment:
            return self._compact_below
        return max(self._compact_below, _NEAR)
