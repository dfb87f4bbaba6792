"""Walk over the records of one segment, past whatever damage there is.

A segment may be in the hands of a writer meanwhile. So a walk without a given end stops at the
first place from which on there is no intact record: that is what has not been written yet, or not
completely. A walk to a given end has been promised records up to there, and calls everything else
damage.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from requite.storage.files import File
from requite.storage.layout import (
    ALIGNMENT,
    END,
    HEADER_SIZE,
    MARKER,
    RECORD_HEADER_SIZE,
    VERSION,
    SegmentHeader,
    decode_header,
    decode_record_header,
    header_fault,
    header_seeds,
    header_version,
    payload_matches,
    record_size,
)
from requite.storage.records import RAW_SIZE_MAX, Damage, Record

CHUNK_SIZE: Final = 1 << 20  # one read; larger ones gain nothing, smaller ones cost system calls


class Found(NamedTuple):
    """An intact record. `end`: where the next one begins."""

    kind: int
    number: int
    payload: memoryview
    end: int


class Window:
    """The part of a file that was read last. Payloads are views into it, which keep it alive."""

    __slots__ = ("_base", "_data", "_file", "_seed", "_view")

    def __init__(self, file: File, seed: int) -> None:
        self._file = file
        self._seed = seed
        self._read(0, 0)

    def record(self, offset: int) -> Found | None:
        """The intact record at `offset`, or None."""
        at = offset - self._base
        if not 0 <= at <= len(self._data) - RECORD_HEADER_SIZE:
            at = self._read(offset, CHUNK_SIZE)
            if len(self._data) < RECORD_HEADER_SIZE:
                return None
        header = decode_record_header(self._view, at, self._seed)
        if header is None:
            return None
        kind, number, length, head, checksum = header
        size = record_size(length)
        if at + size > len(self._data):
            at = self._read(offset, max(CHUNK_SIZE, size))
            if size > len(self._data):
                return None
        begin = at + RECORD_HEADER_SIZE
        if not payload_matches(self._view[begin : at + size], head, checksum):
            return None
        return Found(kind, number, self._view[begin : begin + length], offset + size)

    def reread(self, offset: int) -> Found | None:
        """The same from the file as it is now."""
        self._read(offset, 0)
        return self.record(offset)

    def next_record(self, offset: int, limit: int, least_number: int) -> tuple[int, Found] | None:
        """The first intact record from `offset` on that begins before `limit`, and its offset."""
        for candidate in self._candidates(offset, limit):
            found = self.record(candidate)
            if found is not None and found.number >= least_number:
                return candidate, found
        return None

    def _candidates(self, offset: int, limit: int) -> Iterator[int]:
        """Where a record may begin: at a marker, on a multiple of 8."""
        while offset < limit:
            data_at = self._file.next_data(offset)
            if data_at is None:
                return
            base = data_at - data_at % ALIGNMENT
            data = self._file.read(CHUNK_SIZE, base)
            yield from (at for at in _markers(data, base) if offset <= at < limit)
            if len(data) < CHUNK_SIZE:
                return
            offset = base + CHUNK_SIZE

    def _read(self, offset: int, size: int) -> int:
        self._base = offset
        self._data = self._file.read(size, offset) if size else b""
        self._view = memoryview(self._data)
        return 0


def _markers(data: bytes, base: int) -> Iterator[int]:
    at = data.find(MARKER)
    while at >= 0:
        if at % ALIGNMENT == 0:
            yield base + at
        at = data.find(MARKER, at + 1)


class OpenSegment:
    """A segment opened for reading: what its header says, and what its checksums start from.

    `header` is None where it is damaged; `fault` tells why. Records can be read nevertheless,
    unless the header is cut off or of a later version (`readable`).
    """

    def __init__(self, file: File, number: int) -> None:
        self.file = file
        self.number = number
        data = file.read(HEADER_SIZE, 0)
        self.fault = header_fault(data, number)
        self.header: SegmentHeader | None = None if self.fault else decode_header(data)
        self.unknown_version = not self.fault and header_version(data) != VERSION
        if self.unknown_version:
            self.fault = f"version {header_version(data)} of the format is not known here"
        self.readable = len(data) == HEADER_SIZE and not self.unknown_version
        self.seed = self._seed(data) if self.readable else 0

    def window(self) -> Window:
        return Window(self.file, self.seed)

    def sealed(self) -> bool:
        """Whether the last record in the file is the one that says that no more will come."""
        return self.end_number() is not None

    def end_number(self) -> int | None:
        """What the number of the next record would be; None for a segment that is not sealed."""
        at = self.file.size() - RECORD_HEADER_SIZE
        found = self.window().record(at) if self.readable and at >= HEADER_SIZE else None
        return found.number if found is not None and found.kind == END else None

    def damage(self) -> Damage | None:
        """What is wrong with the header; with the whole segment, if nothing in it is readable."""
        if not self.fault:
            return None
        size = HEADER_SIZE if self.readable else self.file.size()
        raw = self.file.read(min(size, RAW_SIZE_MAX), 0)
        return Damage(self.number, 0, size, self.fault, raw)

    def _seed(self, data: bytes) -> int:
        """What the records' checksums start from: where the header is damaged, what fits."""
        seeds = header_seeds(data)
        fitting = (
            seed
            for seed in seeds[: len(seeds) if self.fault else 0]
            if Window(self.file, seed).next_record(HEADER_SIZE, self.file.size(), 0)
        )
        return next(fitting, seeds[0])


class Walk:
    """Iterate over records and damage from `start` on; afterwards the attributes tell where it got.

    `offset`: where the next record is due; `next_number`: its number, at least; `ended`: the
    segment was seen to be sealed.
    """

    def __init__(self, segment: OpenSegment, start: int, end: int | None) -> None:
        self.offset = start
        self.next_number = segment.number
        self.ended = False
        self._segment = segment
        self._window = segment.window()
        self._end = end
        self._behind: tuple[int, Found] | None = None

    def __iter__(self) -> Iterator[Record | Damage]:
        if self.offset < HEADER_SIZE:
            yield from self._header()
        if not self._segment.readable:
            return
        segment = self._segment.number
        while self._end is None or self.offset < self._end:
            found = self._found()
            if found is None:
                damage = self._damage()
                if damage is None:
                    return
                self.offset = damage.end
                yield damage
                continue
            kind, self.next_number, payload, end = found
            if kind == END:
                self.ended = True
                self.offset = end
                continue
            record = Record(segment, self.offset, self.next_number, payload)
            self.next_number += 1
            self.offset = end
            yield record

    def _header(self) -> Iterator[Damage]:
        damage = self._segment.damage()
        self.offset = damage.end if damage else HEADER_SIZE
        if damage:
            yield damage

    def _found(self) -> Found | None:
        """The record that is due. What seems broken may have been completed while we looked on."""
        found = self._window.record(self.offset)
        if found is not None and found.number >= self.next_number:
            return found
        limit = self._segment.file.size() if self._end is None else self._end
        self._behind = self._window.next_record(self.offset + ALIGNMENT, limit, self.next_number)
        if self._end is None and self._behind is not None:
            return self._window.reread(self.offset)
        return None

    def _damage(self) -> Damage | None:
        """What lies before the next intact record, or, if we know the end, before that."""
        if self._behind is not None:
            end, found = self._behind
            lost = _lost(self.next_number, found.number)
        elif self._end is not None:
            end, lost = self._end, ""
        else:
            return None
        raw = self._segment.file.read(min(end - self.offset, RAW_SIZE_MAX), self.offset)
        return Damage(
            self._segment.number, self.offset, end - self.offset, _reason(raw) + lost, raw
        )


def _reason(raw: bytes) -> str:
    if not raw.strip(b"\0"):
        return "zeros where a record was due"
    if raw.startswith(MARKER):
        return "the checksum of a record does not match"
    return "no record begins here"


def _lost(first: int, following: int) -> str:
    if following <= first:
        return ""
    return (
        f" (record {first})" if following == first + 1 else f" (records {first} to {following - 1})"
    )
