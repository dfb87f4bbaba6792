"""Up to where a stream has read each log, and how much further it may.

An offset says, for each log, up to where it has been read:

    {"version": 1, "logs": {"broker-0123456789abcdef": {"segment": 0, "offset": 4096, "next": 17}}}

`offset` bytes of the segment, behind which the log's record number `next` is due. Offsets come from
the files alone, and each is where a record, or damage, ends. A torn record at the end of a log is
not part of any batch before it has been written completely. Where that will not happen any more, so
many bytes behind `offset` have been told as `torn`; they are read again if they change after all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

from requite.errors import ConfigurationError, LogGone
from requite.journal.folder import LogFolder
from requite.spark.source.ranges import Range
from requite.storage import LogReader, Record, SegmentInfo
from requite.storage.scan import lost_records

OFFSET_VERSION: Final = 1

Offset: TypeAlias = dict[str, Any]


class Mark(NamedTuple):
    """A place in a log, between two records."""

    segment: int
    offset: int
    next: int
    torn: int = 0

    @property
    def told(self) -> int:
        """Up to where the segment's bytes are rows, or part of one that tells of damage."""
        return self.offset + self.torn


Marks: TypeAlias = Mapping[str, Mark]


def encode_offset(marks: Marks) -> Offset:
    """Return marks as an offset for Spark, which compares offsets as text."""
    logs = {name: _encode_mark(marks[name]) for name in sorted(marks)}
    return {"version": OFFSET_VERSION, "logs": logs}


def _encode_mark(mark: Mark) -> dict[str, int]:
    return {name: value for name, value in mark._asdict().items() if name != "torn" or value}


def decode_offset(offset: Offset) -> Marks:
    """Return the marks of an offset. Raises `ConfigurationError` for what we cannot have made."""
    try:
        if offset["version"] != OFFSET_VERSION:
            version = offset["version"]
            raise ConfigurationError(f"offsets of version {version} are newer than this program")
        return {name: Mark(**mark) for name, mark in offset["logs"].items()}
    except (KeyError, TypeError, AttributeError):
        raise ConfigurationError(f"not an offset of a journal: {offset!r}") from None


class Piece(NamedTuple):
    """What is unread of a segment: from `start` up to a mark in it. `missed` tells which records
    before it are not there."""

    start: int
    end: Mark
    missed: str = ""

    @property
    def size(self) -> int:
        return self.end.told - self.start


@dataclass(frozen=True)
class Backlog:
    """What is unread of a log."""

    log: LogFolder
    reader: LogReader
    before: Mark | None
    pieces: tuple[Piece, ...]

    @classmethod
    def of(
        cls, log: LogFolder, reader: LogReader, before: Mark | None, until: Mark | None
    ) -> Backlog | None:
        """Look at the files; None if there are none."""
        try:
            infos = [info for info in reader.segments() if info.written_bytes]
        except LogGone:
            return None
        if not infos:
            return None
        return cls(log, reader, before, tuple(pieces_of(infos, before, until)))

    @property
    def size(self) -> int:
        return sum(piece.size for piece in self.pieces)

    @property
    def end(self) -> Mark | None:
        return self.pieces[-1].end if self.pieces else self.before

    def admit(self, room: int) -> Mark:
        """Return the mark up to which at most `room` bytes lie, but at least one record."""
        admitted = self.before
        for piece in self.pieces:
            if piece.size <= room:
                admitted, room = piece.end, room - piece.size
            else:
                return self._cut(piece, room, admitted)
        if admitted is None:
            raise LookupError(f"nothing of {self.log.log} is unread")
        return admitted

    def _cut(self, piece: Piece, room: int, admitted: Mark | None) -> Mark:
        """Admit the records of a piece that fit; where nothing has been admitted, the first one."""
        mark = admitted if admitted != self.before else None
        following = piece.end.segment
        try:
            for item in self.reader.read(piece.end.segment, piece.start, piece.end.told):
                if mark is not None and item.end - piece.start > room:
                    return mark
                if isinstance(item, Record):
                    following = item.number + 1
                mark = Mark(piece.end.segment, item.end, following)
        except LogGone:  # what reads it will find that out, and say so
            return piece.end
        return piece.end


def admit(backlogs: Sequence[Backlog], room: int | None) -> dict[str, Mark]:
    """Return up to where each log, all of which have something unread, is read next.

    `room` bytes are shared out evenly; what a small backlog leaves of its share goes to others.
    """
    admitted: dict[str, Mark] = {}
    left = len(backlogs)
    for each in sorted(backlogs, key=lambda backlog: backlog.size):
        share = each.size if room is None else room // left
        admitted[each.log.log] = each.admit(share)
        if room is not None:
            room -= min(each.size, share)
        left -= 1
    return admitted


def pieces_of(
    infos: Iterable[SegmentInfo], before: Mark | None, until: Mark | None
) -> Iterator[Piece]:
    """Yield what is unread of segments, from one mark to another; None: all there is."""
    due: int | None = 0 if before is None else before.next
    for info in infos:
        if until is not None and info.number > until.segment:
            return
        start = 0
        if before is not None and info.number <= before.segment:
            if info.number < before.segment:
                continue
            start = before.offset
        missed = "" if due is None else removed(due, info.number)
        due = due_after(info)
        intact = info.written_bytes - info.torn_bytes
        end = Mark(info.number, intact, info.next_number, info.torn_bytes)
        if until is not None and info.number == until.segment:
            end = until
        if end.told > start and end != before:
            yield Piece(start, end, missed)


def due_after(info: SegmentInfo) -> int | None:
    """Return the number of the record that is due behind a segment, if the segment tells it.

    What is missing behind a segment without END is told as its damage.
    """
    return info.next_number if info.sealed and info.next_number > info.number else None


def removed(first: int, following: int) -> str:
    """Say which records were removed before they were read; "" if there are none in between."""
    gone = lost_records(first, following)
    return f"removed before it was read{gone}" if gone else ""


def planned(backlog: Backlog, until: Mark) -> Iterator[Range]:
    """Yield what is to be read of a log up to a mark."""
    for start, end, missed in backlog.pieces:
        yield Range(backlog.log, end.segment, start, end.told, end.told, missed)
    if not backlog.pieces or backlog.pieces[-1].end != until:
        yield from vanished(backlog.log, backlog.before, until)


def vanished(log: LogFolder, before: Mark | None, until: Mark) -> Iterator[Range]:
    """Yield an empty range which tells that what a batch was to have has been removed."""
    missed = removed(0 if before is None else before.next, until.next)
    if missed:
        yield Range(log, until.segment, 0, 0, 0, missed)
