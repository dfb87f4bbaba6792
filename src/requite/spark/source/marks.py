"""The positions up to which a stream has read each log, and how far it may read next.

An offset contains the position in each log:

    {"version": 1, "logs": {"broker-0123456789abcdef": {"segment": 0, "offset": 4096, "next": 17}}}

`offset` bytes of the segment have been read; record number `next` of the log follows. Offsets are
computed from the files only, and each is the end of a record or of damage. A torn record at the end
of a log is part of a batch only when it is complete. If it will not be completed, its `torn` bytes
after `offset` have been reported as damage; they are read again if they change after all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

from requite.errors import ConfigurationError, LogGone
from requite.journal.folder import LogFolder
from requite.spark.source.ranges import Range
from requite.storage import LogReader, Record, SegmentInfo
from requite.storage.walk import lost_records

OFFSET_VERSION: Final = 1

Offset: TypeAlias = dict[str, Any]


class Mark(NamedTuple):
    """A position in a log, between two records."""

    segment: int
    offset: int
    next: int
    torn: int = 0

    @property
    def reported_end(self) -> int:
        """The end of the bytes that batches contain, as rows or as damage."""
        return self.offset + self.torn


Marks: TypeAlias = Mapping[str, Mark]


def encode_offset(marks: Marks) -> Offset:
    """Return marks as an offset for Spark, in a fixed order: Spark compares offsets as text."""
    logs = {name: _encode_mark(marks[name]) for name in sorted(marks)}
    return {"version": OFFSET_VERSION, "logs": logs}


def _encode_mark(mark: Mark) -> dict[str, int]:
    return {name: value for name, value in mark._asdict().items() if name != "torn" or value}


def decode_offset(offset: Offset) -> Marks:
    """Return the marks of an offset. Raises `ConfigurationError` for an invalid offset."""
    try:
        if offset["version"] != OFFSET_VERSION:
            version = offset["version"]
            raise ConfigurationError(
                f"the checkpoint has offsets of version {version}: upgrade requite to read them"
            )
        return {name: Mark(**mark) for name, mark in offset["logs"].items()}
    except (KeyError, TypeError, AttributeError):
        raise ConfigurationError(
            f"the checkpoint has an offset that is not of a journal: {offset!r}"
        ) from None


class Piece(NamedTuple):
    """The unread part of a segment, from `start` to a mark. `missed` names missing records
    before it."""

    start: int
    end: Mark
    missed: str = ""

    @property
    def size(self) -> int:
        return self.end.reported_end - self.start


@dataclass(frozen=True)
class Backlog:
    """The unread part of a log."""

    log: LogFolder
    reader: LogReader
    before: Mark | None
    pieces: tuple[Piece, ...]

    @classmethod
    def of(
        cls, log: LogFolder, reader: LogReader, before: Mark | None, until: Mark | None
    ) -> Backlog | None:
        """Read it from the files; return None if there are none."""
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
        """Return the mark after at most `room` bytes, but after at least one record."""
        admitted = self.before
        for piece in self.pieces:
            if piece.size <= room:
                admitted, room = piece.end, room - piece.size
            else:
                return self._cut(piece, room, admitted)
        if admitted is None:
            raise LookupError(f"{self.log.log} has no unread records")
        return admitted

    def _cut(self, piece: Piece, room: int, admitted: Mark | None) -> Mark:
        """Admit the records of a piece that fit; if none is admitted yet, at least one."""
        mark = admitted if admitted != self.before else None
        following = piece.end.segment
        try:
            for item in self.reader.read(piece.end.segment, piece.start, piece.end.reported_end):
                if mark is not None and item.end - piece.start > room:
                    return mark
                if isinstance(item, Record):
                    following = item.number + 1
                mark = Mark(piece.end.segment, item.end, following)
        except LogGone:  # the task that reads it reports it
            return piece.end
        return piece.end


def admit(backlogs: Sequence[Backlog], room: int | None) -> dict[str, Mark]:
    """Return the mark up to which each log is read next; every backlog has unread records.

    `room` bytes are divided evenly; the rest of a small backlog's share goes to the others.
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
    """Yield the unread parts of segments between two marks; None: no limit."""
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
        if end.reported_end > start and end != before:
            yield Piece(start, end, missed)


def due_after(info: SegmentInfo) -> int | None:
    """Return the number of the record that must follow a segment; None if it is unknown.

    Records missing after a segment without END are reported as its damage.
    """
    return info.next_number if info.sealed and info.next_number > info.number else None


def removed(first: int, following: int) -> str:
    """Return a message on the records removed before they were read; "" if there are none."""
    gone = lost_records(first, following)
    return f"removed before it was read{gone}" if gone else ""


def planned(backlog: Backlog, until: Mark) -> Iterator[Range]:
    """Yield the ranges to read of a log up to a mark."""
    for start, end, missed in backlog.pieces:
        yield Range(backlog.log, end.segment, start, end.reported_end, end.reported_end, missed)
    if not backlog.pieces or backlog.pieces[-1].end != until:
        yield from vanished(backlog.log, backlog.before, until)


def vanished(log: LogFolder, before: Mark | None, until: Mark) -> Iterator[Range]:
    """Yield an empty range that reports the removal of a batch's records, if any."""
    missed = removed(0 if before is None else before.next, until.next)
    if missed:
        yield Range(log, until.segment, 0, 0, 0, missed)
