"""Read again what was skipped, when it changes: a repaired segment, or one that comes late.

A run notes each segment of which it could not read something: what its file was, and which segments
were beside it. Where the file is another one later, it is read again as a whole; where segments
have come in between, these are read. Whoever reads leaves out the events that are known already,
and replaces what was said of the damage (the rows of `bronze_quarantine`).

What was known and is not found any more was of another file: it is taken back.

The end of a log is not noted: where that has changed, the next run goes on from the mark before it
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
    """A segment of which something could not be read, up to the byte `told` (-1: to its end).

    `size`, `changed_ns` and `checksum` tell what its file was; `before` and `after` are the numbers
    of the segments beside it. Each is -1 where there was none.
    """

    log: str
    segment: int
    told: int
    size: int
    changed_ns: int
    checksum: int
    before: int
    after: int


class Outdated(NamedTuple):
    """Rows of `bronze_quarantine` that do not hold any more: those of the bytes from `since` on of
    a segment, except or only (`gaps`) those that tell of records before it."""

    log: str
    segment: int
    since: int = 0
    gaps: bool = False


class Again(NamedTuple):
    """What is read once more, and what that replaces.

    `start` is the offset from which what is new is read: where the segment has changed that was
    read last, it is the beginning of that. `segments` are all that are read once more.
    """

    start: Offset
    shares: tuple[Share, ...] = ()
    segments: tuple[tuple[str, int], ...] = ()
    outdated: tuple[Outdated, ...] = ()


def note(
    log: LogFolder, infos: Sequence[SegmentInfo], segment: int, mark: Mark | None, since_ns: int
) -> Skipped:
    """Note a segment that was read up to a mark.

    If its file has changed since `since_ns`, nobody knows which one was read: it is read again.
    """
    numbers = [info.number for info in infos]
    told = mark.offset if mark is not None and mark.segment == segment else _NONE
    size, changed_ns = _state_of(infos, segment)
    checksum = _NONE if changed_ns >= since_ns else _checksum(infos, segment, told)
    return Skipped(
        log.log,
        segment,
        told,
        size,
        changed_ns,
        checksum,
        max((number for number in numbers if number < segment), default=_NONE),
        min((number for number in numbers if number > segment), default=_NONE),
    )


def plan(
    log: LogFolder, infos: Sequence[SegmentInfo], skipped: Sequence[Skipped], mark: Mark
) -> Iterator[tuple[Range, Outdated]]:
    """Yield what is read again of a log that has been read up to a mark, and what that replaces.

    What is missing before a segment is said anew where the segment before it has changed. The
    segment of the mark is read with what is new: of that, the range has no bytes.
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
        # What was before the first one may have been read, and removed since then.
        is_known = before is not None or number in firsts
        if is_known and (follows or number in chosen):
            due = 0 if before is None else due_after(before)
            missed = "" if due is None else removed(due, number)
            yield Range(log, number, 0, 0, 0, missed), Outdated(log.log, number, gaps=True)


def _changed(noted: Skipped, infos: Sequence[SegmentInfo]) -> Iterator[int]:
    """Yield the segments that have changed, or come, since one was noted."""
    segment = noted.segment
    for info in infos:
        number = info.number
        if noted.before < number < segment:
            yield number
        elif segment < number < noted.after:
            yield from (segment, number)
        elif number == segment and (noted.size, noted.changed_ns) != _state_of(infos, segment):
            if noted.checksum != _checksum(infos, segment, noted.told):
                yield segment
        elif number == segment and noted.checksum == _NONE:
            yield segment


def is_past(first: int, segment: int, mark: Mark | None) -> bool:
    """Whether what was skipped from the byte `first` of a segment on is before a mark."""
    return mark is None or segment != mark.segment or first < mark.offset


def _info(infos: Iterable[SegmentInfo], segment: int) -> SegmentInfo | None:
    return next((info for info in infos if info.number == segment), None)


def _opened(infos: Sequence[SegmentInfo], segment: int) -> AbstractContextManager[ReadableFile]:
    """Open the file of a segment. Raises `LogGone` where there is none."""
    info = _info(infos, segment)
    if info is None:
        raise LogGone(f"segment {segment} is not there (any more)")
    folder, _, name = info.place.rpartition("/")
    return closing(open_folder(folder).open(name))


def _state_of(infos: Sequence[SegmentInfo], segment: int) -> tuple[int, int]:
    """Return the size of a file, and when it was changed."""
    try:
        with _opened(infos, segment) as file:
            return file.size(), file.changed_ns()
    except LogGone:
        return _NONE, _NONE


def _checksum(infos: Sequence[SegmentInfo], segment: int, size: int) -> int:
    """Return the checksum of the first bytes of a file; -1 where there is none."""
    found = offset = 0
    try:
        with _opened(infos, segment) as file:
            end = file.size() if size == _NONE else size
            while offset < end and (data := file.read(min(end - offset, _CHUNK_SIZE), offset)):
                found, offset = crc32(data, found), offset + len(data)
    except LogGone:
        return _NONE
    return found
