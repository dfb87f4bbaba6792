"""Reading a log, in any process, while it is written or after that. Readers take no lock."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from contextlib import closing
from os import PathLike
from pathlib import Path

from requite.errors import LogCorrupt, LogGone
from requite.storage.disk import DiskFolder
from requite.storage.files import Folder
from requite.storage.layout import DATA, HEADER_SIZE, segment_name, segment_number
from requite.storage.records import Damage, Position, Record, SegmentInfo
from requite.storage.recovery import segment_numbers
from requite.storage.scan import OpenSegment, Walk


class LogReader:
    """The reader of a log in a folder; a log without a folder has `Log.reader`.

    A reader may see records that are not on the disk yet, and which a power cut takes away. It
    remembers how far it has looked through segments that are being written; use one reader in one
    thread.
    """

    def __init__(self, directory: str | PathLike[str]) -> None:
        self._folder: Folder = DiskFolder(Path(directory))
        self._known: dict[int, tuple[int, int]] = {}  # segment: offset, number; looked through

    @classmethod
    def on(cls, folder: Folder) -> LogReader:
        reader = cls(folder.path)
        reader._folder = folder
        return reader

    def segments(self) -> list[SegmentInfo]:
        """The segments that are there now, oldest first. `LogGone` if there is no folder."""
        numbers = segment_numbers(self._folder)
        found = [self._info(number, last=number == numbers[-1]) for number in numbers]
        infos = [info for info in found if info is not None]
        named = next((info for info in infos if info.log_id), None)
        if named is None:
            return infos
        log_id, purpose = named.log_id, named.purpose
        return [
            info if info.log_id else info._replace(log_id=log_id, purpose=purpose) for info in infos
        ]

    def read(
        self, segment: int, start: int = 0, end: int | None = None
    ) -> Iterator[Record | Damage]:
        """What begins in the bytes `start` to `end` of a segment.

        `start` is 0 or where a record begins, or damage ends. Up to `end`, which may be any
        `written_bytes`, whatever is no record is damage; without it, reading goes on to the end,
        and stops where the last segment has not been written yet.
        """
        numbers = segment_numbers(self._folder)
        with closing(self._folder.open(segment_name(segment))) as file:
            opened, size = OpenSegment(file, segment), file.size()
            last = not numbers or segment == numbers[-1]
            written = size if end is None and not last else end
            walk = Walk(opened, start, written)
            yield from walk
            if not last and not walk.ended and walk.offset >= size and opened.readable:
                yield _cut_off(walk, segment)

    def tail(self, after: Record | Damage | Position | None = None) -> Iterator[Record | Damage]:
        """What has come since: everything behind `after`, the last thing that was got.

        It ends at what has not been written yet; ask again later. Where the segment of `after` has
        been removed meanwhile, a `Damage` of no size says which records were missed.
        """
        numbers = segment_numbers(self._folder)
        if after is not None:
            first = bisect_left(numbers, after.segment)
            numbers = numbers[first:]
            if numbers and numbers[0] != after.segment:
                yield from _missed(after, numbers[0])
        for number in numbers:
            start = after if after is not None and number == after.segment else None
            yield from self._tail_of(number, start)

    def read_at(self, position: Position) -> bytes:
        """The payload of a record. Raises `LogGone` if its segment is, `LogCorrupt` for damage."""
        return read_record(self._folder, position)

    def _tail_of(
        self, segment: int, after: Record | Damage | Position | None
    ) -> Iterator[Record | Damage]:
        start = 0 if after is None else after.offset
        if isinstance(after, Record | Damage):
            start = after.end
        items = self.read(segment, start)
        if isinstance(after, Position):
            next(items, None)
        yield from items

    def _info(self, number: int, *, last: bool) -> SegmentInfo | None:
        """None if the segment has been removed since it was listed."""
        try:
            file = self._folder.open(segment_name(number))
        except LogGone:
            return None
        with closing(file):
            segment = OpenSegment(file, number)
            written, next_number, sealed = self._extent(segment, last=last)
            header = segment.header
            return SegmentInfo(
                self._folder.path / segment_name(number),
                number,
                written,
                sealed,
                header.log_id if header else b"",
                header.purpose if header else b"",
                header.created_us if header else 0,
                next_number,
            )

    def _extent(self, segment: OpenSegment, *, last: bool) -> tuple[int, int, bool]:
        """Up to where a segment is written, the number that is next there, whether it is sealed."""
        end_number = segment.end_number()
        if end_number is not None:
            self._known.pop(segment.number, None)
            return segment.file.size(), end_number, True
        offset, next_number = self._known.get(segment.number, (HEADER_SIZE, segment.number))
        walk = Walk(segment, offset, None)
        walk.next_number = next_number
        for _ in walk:
            pass
        self._known[segment.number] = walk.offset, walk.next_number
        return walk.offset if last else segment.file.size(), walk.next_number, False


def scan(
    path: str | PathLike[str], start: int = 0, end: int | None = None
) -> Iterator[Record | Damage]:
    """What begins in the bytes `start` to `end` of the segment in a file: see `LogReader.read`."""
    place = Path(path)
    number = segment_number(place.name)
    if number is None:
        raise LogGone(f"{place} is not named like a segment of a log")
    return LogReader(place.parent).read(number, start, end)


def read_record(folder: Folder, position: Position) -> bytes:
    with closing(folder.open(segment_name(position.segment))) as file:
        segment = OpenSegment(file, position.segment)
        found = segment.window().record(position.offset) if segment.readable else None
    if found is None or found.kind != DATA or found.number != position.number:
        path = folder.path / segment_name(position.segment)
        raise LogCorrupt(f"record {position.number} at {position.offset} in {path} is damaged")
    return bytes(found.payload)


def _cut_off(walk: Walk, segment: int) -> Damage:
    reason = f"the segment is cut off (record {walk.next_number} and what followed)"
    return Damage(segment, walk.offset, 0, reason, b"")


def _missed(after: Record | Damage | Position, following: int) -> Iterator[Damage]:
    """What was removed before it was read; after damage nobody knows, so it is not told."""
    first = after.segment if isinstance(after, Damage) else after.number + 1
    if first < following:
        reason = f"removed before it was read (records {first} to {following - 1})"
        yield Damage(following, 0, 0, reason, b"")
