"""Read a log, in any process, during or after writing. Readers take no lock."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Generator, Iterator
from contextlib import closing
from itertools import chain
from os import PathLike
from pathlib import Path

from requite.errors import LogCorrupt, LogGone
from requite.storage.cipher import Cipher
from requite.storage.ending import LOST, SETTLED_AFTER_S, is_blank, reason_of_rest, rest_of
from requite.storage.files import ReadableFile, ReadableFolder
from requite.storage.layout import (
    DATA,
    HEADER_SIZE,
    RECORD_HEADER_SIZE,
    segment_name,
    segment_number,
)
from requite.storage.mending import MEND_SIZE_MAX, mend, mend_all
from requite.storage.records import RAW_SIZE_MAX, Damage, Position, Record, SegmentInfo
from requite.storage.recovery import segment_numbers
from requite.storage.remote import open_folder
from requite.storage.segment import NEW_SUFFIX
from requite.storage.shipped import Shipped
from requite.storage.walk import OpenSegment, Walk, lost_records


class LogReader:
    """The reader of a log in a folder or a store; a log in memory has `Log.reader`.

    A reader may see records that are not on disk yet and that a power cut would lose. It remembers
    its position in segments that are being written. Not thread-safe. `outdated` are the segments in
    which it has read a record that is not encrypted with the first key of its cipher.
    """

    def __init__(self, directory: str | PathLike[str]) -> None:
        self._begin(open_folder(directory), None)

    @classmethod
    def on(cls, folder: ReadableFolder, cipher: Cipher | None = None) -> LogReader:
        reader = cls.__new__(cls)
        reader._begin(folder, cipher)
        return reader

    def _begin(self, folder: ReadableFolder, cipher: Cipher | None) -> None:
        self._folder = folder
        self._cipher = cipher
        self.outdated: set[int] = set()
        self._known: dict[int, tuple[int, int]] = {}  # segment: offset, number; scanned
        self._searched: set[int] = set()  # segments without a record after the written part
        self._blank: dict[int, tuple[int, int]] = {}  # ranges of zeros, by segment

    @property
    def folder(self) -> ReadableFolder:
        """The folder of the segments."""
        return self._folder

    def segments(self) -> list[SegmentInfo]:
        """Return the segments, oldest first. Raises `LogGone` if the folder does not exist."""
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

    def may_grow(self) -> bool:
        """Whether records may follow: there is a writer, or this is a copy whose end is not final.

        Also True if a writer was killed before it began the next segment.
        """
        names = self._folder.names()
        if any(name.endswith(NEW_SUFFIX) for name in names):
            return True
        shipped = self._folder.shipped()
        if shipped is not None:
            return not shipped.is_ended
        numbers = segment_numbers(self._folder)
        if not numbers:
            return self._folder.is_locked()
        with closing(self._folder.open(segment_name(numbers[-1]))) as file:
            return self._may_be_written(file)

    def is_behind(self) -> bool:
        """Whether this is a copy whose original may have more records.

        A copy without changes for a quarter of an hour counts as complete.
        """
        folder = self._folder
        shipped = folder.shipped()
        numbers = segment_numbers(folder)
        if not folder.is_copy() or not numbers or (shipped is not None and shipped.is_ended):
            return False
        with closing(folder.open(segment_name(numbers[-1]))) as file:
            return file.age_s() < SETTLED_AFTER_S

    def _may_be_written(self, last: ReadableFile) -> bool:
        folder = self._folder
        return folder.is_locked() or (folder.is_copy() and last.age_s() < SETTLED_AFTER_S)

    def read(
        self, segment: int, start: int = 0, end: int | None = None
    ) -> Iterator[Record | Damage]:
        """Yield what begins in the bytes `start` to `end` of a segment. Raises `LogGone`.

        `start` is 0, the offset of a record, or the end of damage. Up to `end`, which may be any
        `written_bytes`, all bytes that are no record are damage. Without `end`, the segment is read
        to its end, or to the end of its written part. An end that no writer leaves is damage, too,
        if nothing can follow.
        """
        numbers = segment_numbers(self._folder)
        following = next(iter(numbers[bisect_right(numbers, segment) :]), None)
        with closing(self._folder.open(segment_name(segment))) as file:
            size = file.size()
            opened = OpenSegment(file, segment)
            limit = size if end is None and following is not None else end
            rest = reason_of_rest(opened, end) if end is not None and following is None else ""
            walk = Walk(opened, start, limit, searched=segment in self._searched, rest=rest)
            yield from walk if self._cipher is None else map(self._unsealed, walk)
            if walk.searched:
                self._searched.add(segment)
            if limit is None and not walk.ended:
                yield from self._torn_at(opened, walk.offset)
            elif following is not None and walk.offset >= size and opened.end_number() is None:
                yield from _cut_off(walk, following)

    def _unsealed(self, item: Record | Damage) -> Record | Damage:
        """Decrypt a record; one that was altered is damage. Raises `LogMismatch`."""
        cipher = self._cipher
        if cipher is None or isinstance(item, Damage):
            return item
        stored = item.payload
        if not cipher.is_current(stored):
            self.outdated.add(item.segment)
        try:
            payload = cipher.unseal(stored, item.number)
        except LogCorrupt as error:
            raw = bytes(stored[:RAW_SIZE_MAX])
            return Damage(item.segment, item.offset, item.end - item.offset, str(error), raw)
        return item._replace(payload=memoryview(payload), seal_size=len(stored) - len(payload))

    def tail(self, after: Record | Damage | Position | None = None) -> Iterator[Record | Damage]:
        """Yield everything after `after`, which is the last result of an earlier call.

        It ends at the end of the written part; call it again later. If segments were removed before
        they were read, a `Damage` of size 0 names the missed records.
        """
        numbers = segment_numbers(self._folder)
        due = None if after is None or isinstance(after, Damage) else after.number + 1
        missed = False
        if after is not None:
            numbers = numbers[bisect_left(numbers, after.segment) :]
            missed = after.segment not in numbers[:1]
        for number in numbers:
            items = self._tail_of(number, after)
            try:
                first = next(items, None)
            except LogGone:  # removed after the segments were listed
                missed = True
                continue
            if missed and (due is None or due < number):
                yield _removed(due, number)
            missed = False
            last = yield from _passed_on(first, items)
            due = due if last is None else last + 1

    def _tail_of(
        self, segment: int, after: Record | Damage | Position | None
    ) -> Iterator[Record | Damage]:
        """Yield the content of a segment, from `after` if that is in it."""
        if after is None or after.segment != segment:
            yield from self.read(segment)
        elif isinstance(after, Position):
            items = self.read(segment, after.offset)
            yield from (item for item in items if item.offset != after.offset)
        else:
            yield from self.read(segment, after.end)

    def read_at(self, position: Position) -> bytes:
        """Return the payload of a record. Raises `LogGone` if it was removed, and `LogCorrupt`."""
        payload = read_record(self._folder, position)
        return payload if self._cipher is None else self._cipher.unseal(payload, position.number)

    def mend(self, damage: Damage) -> list[Record] | None:
        """Return the original records of damage, if each has at most one flipped bit; else None.
        See `requite.storage.mending`."""
        if not damage.size or damage.size > len(damage.raw):
            return None
        with closing(self._folder.open(segment_name(damage.segment))) as file:
            segment = OpenSegment(file, damage.segment)
        if not segment.readable or damage.offset < HEADER_SIZE:
            return None
        mended = mend_all(damage.raw, segment.seed)
        if sum(size for *_, size in mended) != damage.size:
            return None
        found, offset = list[Record](), damage.offset
        for kind, number, payload, size in mended:
            if kind == DATA:
                record = Record(damage.segment, offset, number, memoryview(payload))
                unsealed = self._unsealed(record)
                if isinstance(unsealed, Damage):
                    return None
                found.append(unsealed)
            offset += size
        return found

    def mend_at(self, position: Position) -> bytes:
        """Return the payload of a damaged record, if it can be repaired. Raises the errors of
        `read_at`."""
        with closing(self._folder.open(segment_name(position.segment))) as file:
            segment = OpenSegment(file, position.segment)
            raw = file.read(MEND_SIZE_MAX, position.offset)
        found = mend(raw, segment.seed) if segment.readable else None
        if found is None or found[:2] != (DATA, position.number):
            return self.read_at(position)
        return found[2] if self._cipher is None else self._cipher.unseal(found[2], position.number)

    def _info(self, number: int, *, last: bool) -> SegmentInfo | None:
        """Return a segment; None if it was removed after the segments were listed."""
        try:
            file = self._folder.open(segment_name(number))
        except LogGone:
            return None
        with closing(file):
            segment = OpenSegment(file, number)
            written, next_number, sealed = self._extent(segment, last=last)
            torn = self._torn(segment) if last and not sealed else None
            header = segment.header
            return SegmentInfo(
                f"{self._folder.place}/{segment_name(number)}",
                number,
                torn.end if torn else written,
                sealed,
                header.log_id if header else b"",
                header.purpose if header else b"",
                header.created_us if header else 0,
                next_number,
                torn.reason if torn else "",
                torn.size if torn else 0,
            )

    def _extent(self, segment: OpenSegment, *, last: bool) -> tuple[int, int, bool]:
        """Return the end of the written part, the next number, and whether it is sealed."""
        size, end_number = segment.file.size(), segment.end_number()
        if end_number is not None or not segment.readable:
            self._known.pop(segment.number, None)
            self._searched.discard(segment.number)
            return size, end_number or segment.number, end_number is not None
        walk = self._walk_on(segment)
        return walk.offset if last else size, walk.next_number, walk.ended

    def _torn_at(self, segment: OpenSegment, offset: int) -> Iterator[Damage]:
        """Yield the damage after the last record, if `offset` is there."""
        torn = self._torn(segment)
        if torn is not None and torn.offset == offset:
            yield torn

    def _torn(self, segment: OpenSegment) -> Damage | None:
        """Return the damage at the end of the last segment; None while it may be written."""
        shipped = self._folder.shipped()
        if shipped is not None:
            return self._lost(segment, shipped)
        if self._rest(segment) is None or self._may_be_written(segment.file):
            return None
        self._blank.pop(segment.number, None)
        return self._rest(segment)  # the writer may have completed it before it ended

    def _lost(self, segment: OpenSegment, shipped: Shipped) -> Damage | None:
        """Return the part that a copy lacks. A copy ends with its last record, without zeros."""
        if not segment.readable or segment.end_number() is not None:
            return None
        walk = self._walk_on(segment)
        if segment.number != shipped.segment or walk.ended or walk.offset >= shipped.offset:
            return None
        size = max(shipped.offset - walk.offset, RECORD_HEADER_SIZE)
        raw = segment.file.read(min(size, RAW_SIZE_MAX), walk.offset)
        return Damage(segment.number, walk.offset, size, shipped.torn or LOST, raw)

    def _rest(self, segment: OpenSegment) -> Damage | None:
        if not segment.readable or segment.end_number() is not None:
            return None
        walk, number = self._walk_on(segment), segment.number
        if walk.ended:
            return None
        place = walk.offset, segment.file.size()
        if self._blank.get(number) == place and is_blank(segment, walk.offset):
            return None
        rest = rest_of(segment, walk.offset)
        if rest is None:
            self._blank[number] = place
        return rest

    def _walk_on(self, segment: OpenSegment) -> Walk:
        """Scan the bytes that were added to a segment since the last scan."""
        number = segment.number
        offset, next_number = self._known.get(number, (HEADER_SIZE, number))
        walk = Walk(segment, offset, None, searched=number in self._searched)
        walk.next_number = next_number
        deque(walk, maxlen=0)
        self._known[number] = walk.offset, walk.next_number
        if walk.searched:
            self._searched.add(number)
        return walk


def scan(
    path: str | PathLike[str], start: int = 0, end: int | None = None
) -> Iterator[Record | Damage]:
    """Yield what begins in the bytes `start` to `end` of a segment file: see `LogReader.read`."""
    place = Path(path)
    number = segment_number(place.name)
    if number is None:
        raise LogGone(f"{place} does not have the name of a segment of a log")
    return LogReader(place.parent).read(number, start, end)


def read_record(folder: ReadableFolder, position: Position) -> bytes:
    with closing(folder.open(segment_name(position.segment))) as file:
        segment = OpenSegment(file, position.segment)
        found = segment.window().record(position.offset) if segment.readable else None
    if found is None or found[0] != DATA or found[1] != position.number:
        path = f"{folder.place}/{segment_name(position.segment)}"
        raise LogCorrupt(f"record {position.number} at {position.offset} in {path} is damaged")
    return bytes(found[2])


def _passed_on(
    first: Record | Damage | None, items: Iterator[Record | Damage]
) -> Generator[Record | Damage, None, int | None]:
    """Yield all items; return the number of the last record."""
    number = None
    for item in items if first is None else chain((first,), items):
        if isinstance(item, Record):
            number = item.number
        yield item
    return number


def _cut_off(walk: Walk, following: int) -> Iterator[Damage]:
    if walk.reaches_short_of(following):
        reason = f"the segment is cut off{lost_records(walk.next_number, following)}"
        yield Damage(walk.segment, walk.offset, 0, reason, b"")


def _removed(due: int | None, following: int) -> Damage:
    which = "" if due is None else lost_records(due, following)
    return Damage(following, 0, 0, f"removed before it was read{which}", b"")
