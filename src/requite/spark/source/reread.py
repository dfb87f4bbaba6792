"""Reads skipped segments again when they change: a repaired segment, or one that arrives late.

A run records each segment with unreadable parts: the state of its file, and the adjacent segments.
If the file has changed, the whole segment is read again; segments that have arrived in between are
read. The reader leaves out events that are already known, and replaces the reports of damage (the
rows of `bronze_quarantine`).

Known events that are not found again are deleted: they were in a different file.

The end of a log is not recorded: if it has changed, the next run continues from the mark before it
(`requite.spark.source.marks`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing
from typing import Final, NamedTuple
from zlib import crc32

from requite.errors import LogGone
from requite.journal.folder import LogFolder
from requite.spark.source.marks import Mark, Offset, due_after, removed
from requite.spark.source.ranges import Range, Share
from requite.storage import SegmentInfo
from requite.storage.files import ReadableFile
from requite.storage.remote import open_folder

_NONE: Final = -1
_CHUNK_SIZE: Final = 1 << 20


class Skipped(NamedTuple):
    """A segment with unreadable parts up to the byte `read_until` (-1: to its end).

    `size`, `changed_ns` and `checksum` are the state of its file; `before` and `after` are the
    numbers of the adjacent segments. -1: none.
    """

    log: str
    segment: int
    read_until: int
    size: int
    changed_ns: int
    checksum: int
    before: int
    after: int


class Outdated(NamedTuple):
    """Outdated rows of `bronze_quarantine`: those of a segment from the byte `since` on.

    With `gaps`, only the rows on missing records before the segment; otherwise all others.
    """

    log: str
    segment: int
    since: int = 0
    gaps: bool = False


class Rereading(NamedTuple):
    """The segments to read again, and the rows that this replaces.

    `start` is the offset from which new records are read; if the last segment has changed, its
    beginning. `segments` are all segments to read again.
    """

    start: Offset
    shares: tuple[Share, ...] = ()
    segments: tuple[tuple[str, int], ...] = ()
    outdated: tuple[Outdated, ...] = ()


def note(
    log: LogFolder, infos: Sequence[SegmentInfo], segment: int, mark: Mark | None, since_ns: int
) -> Skipped:
    """Record a segment that was read up to a mark.

    If its file has changed since `since_ns`, its state when it was read is unknown, so it is read
    again.
    """
    numbers = [info.number for info in infos]
    read_until = mark.offset if mark is not None and mark.segment == segment else _NONE
    size, changed_ns = _state_of(infos, segment)
    checksum = _NONE if changed_ns >= since_ns else _checksum(infos, segment, read_until)
    return Skipped(
        log.log,
        segment,
        read_until,
        size,
        changed_ns,
        checksum,
        max((number for number in numbers if number < segment), default=_NONE),
        min((number for number in numbers if number > segment), default=_NONE),
    )


def plan(
    log: LogFolder, infos: Sequence[SegmentInfo], skipped: Sequence[Skipped], mark: Mark
) -> Iterator[tuple[Range, Outdated]]:
    """Yield the ranges to read again of a log that was read up to a mark, with the outdated rows.

    Missing records before a segment are reported again if the segment before it has changed. The
    segment of the mark is read with the new records, so its range here is empty.
    """
    chosen = {number for each in skipped for number in _changed(each, infos)}
    firsts = chosen | {each.segment for each in skipped if each.before == _NONE}
    previous: SegmentInfo | None = None
    for info in infos:
        number, before = info.number, previous
        previous = info
        if number > mark.segment:
            return
        if number in chosen:
            stop = 0 if number == mark.segment else info.written_bytes
            yield Range(log, number, 0, stop, stop), Outdated(log.log, number)
        follows = before is not None and before.number in chosen
        # Records before the first segment may have been read, and removed since then.
        is_known = before is not None or number in firsts
        if is_known and (follows or number in chosen):
            due = 0 if before is None else due_after(before)
            missed = "" if due is None else removed(due, number)
            yield Range(log, number, 0, 0, 0, missed), Outdated(log.log, number, gaps=True)


def _changed(noted: Skipped, infos: Sequence[SegmentInfo]) -> Iterator[int]:
    """Yield the segments that have changed or arrived since a segment was recorded."""
    segment = noted.segment
    for info in infos:
        number = info.number
        if noted.before < number < segment:
            yield number
        elif segment < number < noted.after:
            yield from (segment, number)
        elif number == segment and (noted.size, noted.changed_ns) != _state_of(infos, segment):
            if noted.checksum != _checksum(infos, segment, noted.read_until):
                yield segment
        elif number == segment and noted.checksum == _NONE:
            yield segment


def is_past(first: int, segment: int, mark: Mark | None) -> bool:
    """Return whether a part skipped from the byte `first` of a segment on is before a mark."""
    return mark is None or segment != mark.segment or first < mark.offset


def _info(infos: Iterable[SegmentInfo], segment: int) -> SegmentInfo | None:
    return next((info for info in infos if info.number == segment), None)


def _opened(infos: Sequence[SegmentInfo], segment: int) -> AbstractContextManager[ReadableFile]:
    """Open the file of a segment. Raises `LogGone` if it does not exist."""
    info = _info(infos, segment)
    if info is None:
        raise LogGone(f"segment {segment} does not exist (any more)")
    folder, _, name = info.place.rpartition("/")
    return closing(open_folder(folder).open(name))


def _state_of(infos: Sequence[SegmentInfo], segment: int) -> tuple[int, int]:
    """Return the size and the modification time of a segment's file; -1 if it does not exist."""
    try:
        with _opened(infos, segment) as file:
            return file.size(), file.changed_ns()
    except LogGone:
        return _NONE, _NONE


def _checksum(infos: Sequence[SegmentInfo], segment: int, size: int) -> int:
    """Return the checksum of the first bytes of a segment's file; -1 if it does not exist."""
    found = offset = 0
    try:
        with _opened(infos, segment) as file:
            end = file.size() if size == _NONE else size
            while offset < end and (data := file.read(min(end - offset, _CHUNK_SIZE), offset)):
                found, offset = crc32(data, found), offset + len(data)
    except LogGone:
        return _NONE
    return found
