"""The size limit of a store, and what it refuses near the limit.

Three segments are reserved: one for replies to accepted requests, one for CLOSED records, and one
for compaction, which frees space. In addition, a new request must leave space for the replies to
all unanswered ones. So a full store can always make progress.

A replica's records were accepted elsewhere under the same rules. They are stored as long as the
segment for compaction remains: the CLOSED records that free space follow them.
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
_NEAR: Final = 0.9  # near the bound, segments with less than this share in use are compacted


class Bound:
    """`limit`: bytes of disk; None: unlimited. `is_pressed`: a store was refused."""

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
        """Return the error if writing records would need another segment, beyond the bound.

        `size` is their size on disk, including the `before` records that are written with them.
        """
        if self.limit is None or not records:
            return None
        is_copied = records[-1][0] == ROLE  # the last record of a replicated batch
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
            f"the store is full: {self._log.disk_bytes} of {self.limit} bytes (disk_bytes_max), "
            f"{self._index.unanswered} requests wait for replies. Close finished requests, or "
            "raise disk_bytes_max."
        )

    def compact_below(self) -> float:
        """Return the share in use below which a segment is compacted."""
        if self.limit is None:
            return self._compact_below
        if self.is_pressed:  # any gain is worth it
            return 1.0
        if self._log.disk_bytes < self.limit - (SEGMENTS_MIN - 1) * self._segment:
            return self._compact_below
        return max(self._compact_below, _NEAR)
