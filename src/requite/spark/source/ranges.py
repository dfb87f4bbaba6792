"""Parts of a journal's segments, and their division among partitions."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from pyspark.sql.datasource import InputPartition

from requite.journal.folder import LogFolder

WORTH_A_TASK: Final = 1 << 20  # bytes, some 50,000 events


class Range(NamedTuple):
    """The records of a segment that begin in the bytes `start` to `stop`.

    `end` is the length of the segment at planning: bytes before it that are no record are damage.
    `missed` names the preceding records that were removed before they were read.
    """

    log: LogFolder
    segment: int
    start: int
    stop: int
    end: int
    missed: str = ""

    @property
    def size(self) -> int:
        return self.stop - self.start

    @property
    def is_last(self) -> bool:
        """Whether damage at the very end, such as a cut, belongs to this range."""
        return self.stop >= self.end


@dataclass
class Share(InputPartition):
    """The ranges that one task reads."""

    ranges: tuple[Range, ...]


def share_out(
    ranges: Sequence[Range], partition_bytes: int, cores: int | None = None
) -> list[Share]:
    """Divide ranges into shares of about equal size, at most `partition_bytes` each.

    If shares are large enough, their number is a multiple of `cores` (by default the driver's), to
    keep all cores busy. Ranges may be cut anywhere: a record belongs to the range in which it
    begins.
    """
    total = sum(each.size for each in ranges)
    least = max(1, -(-total // partition_bytes))
    cores = cores or os.cpu_count() or 1
    even = -(-least // cores) * cores
    count = even if total >= even * WORTH_A_TASK else least
    return list(_pack(ranges, max(1, -(-total // count))))


def _pack(ranges: Iterable[Range], size: int) -> Iterator[Share]:
    taken: list[Range] = []
    room = size
    for each in ranges:
        rest = each
        while rest.size > room:
            taken.append(rest._replace(stop=rest.start + room))
            rest = rest._replace(start=rest.start + room, missed="")
            yield Share(tuple(taken))
            taken, room = [], size
        taken.append(rest)
        room -= rest.size
        if room == 0:
            yield Share(tuple(taken))
            taken, room = [], size
    if taken:
        yield Share(tuple(taken))
