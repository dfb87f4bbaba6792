"""Recovery of a log when it is opened: find its segments, and seal the last one.

A segment is written by one process only. The last segment of a dead writer is scanned once. After
the last intact record there may be the beginning of an incomplete write, which is truncated. Damage
before that remains, since the records may have been acknowledged, and is reported.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from itertools import pairwise
from typing import NamedTuple

from requite.errors import LogCorrupt, LogMismatch
from requite.storage.ending import tail_size
from requite.storage.files import File, Folder, ReadableFolder
from requite.storage.layout import (
    SegmentHeader,
    encode_end,
    segment_name,
    segment_number,
)
from requite.storage.records import Damage, Position, Recovery
from requite.storage.retention import Sealed
from requite.storage.segment import wall_clock_us
from requite.storage.walk import OpenSegment, Walk


class Found(NamedTuple):
    """The content of a log's folder. `log_id` is None for a new log."""

    log_id: bytes | None
    next_number: int
    sealed: tuple[Sealed, ...]
    recovery: Recovery


class _LastSegment(NamedTuple):
    size: int
    next_number: int
    recovery: Recovery


class _Look(NamedTuple):
    """A segment, with the information from its header and its file."""

    number: int
    size: int
    header: SegmentHeader | None
    damage: Damage | None


def segment_numbers(folder: ReadableFolder) -> list[int]:
    """Return the numbers of the segments, oldest first."""
    numbers = map(segment_number, folder.names())
    return sorted(number for number in numbers if number is not None)


def recover(folder: Folder, purpose: bytes, *, sync: bool) -> Found:
    """Check all headers, scan the last segment, and seal it.

    A last segment without records is not changed: the next one has its number, and replaces it.
    Raises `LogMismatch` for a log of another purpose, before any change.
    """
    looks = [_look(folder, number) for number in segment_numbers(folder)]
    headers = [look.header for look in looks if look.header is not None]
    for header in headers:
        _check_purpose(folder.place, header.purpose, purpose)
    if not looks:
        return Found(None, 0, (), Recovery())
    last = _recover_last(folder, looks[-1].number, sync=sync)
    damaged = (*(look.damage for look in looks[:-1] if look.damage), *last.recovery.damaged)
    sealed = tuple(_sealed(looks, last))
    log_id = headers[-1].log_id if headers else None
    return Found(log_id, last.next_number, sealed, last.recovery._replace(damaged=damaged))


def _look(folder: Folder, number: int) -> _Look:
    with closing(folder.open(segment_name(number))) as file:
        segment = OpenSegment(file, number)
        if segment.unknown_version:
            raise LogMismatch(
                f"{folder.place}/{segment_name(number)}: {segment.fault}. Use a newer requite."
            )
        return _Look(number, file.size(), segment.header, segment.damage())


def _check_purpose(place: str, found: bytes, wanted: bytes) -> None:
    if found != wanted:
        raise LogMismatch(
            f"{place} is a log for another purpose ({found!r}, not {wanted!r}). Use another folder."
        )


def _sealed(looks: list[_Look], last: _LastSegment) -> Iterator[Sealed]:
    """Yield the segments that remain, with the last one if it has records."""
    for look, follower in pairwise(looks):
        ended_us = follower.header.created_us if follower.header else wall_clock_us()
        yield Sealed(look.number, look.size, ended_us)
    if last.next_number > looks[-1].number:
        yield Sealed(looks[-1].number, last.size, wall_clock_us())


def _recover_last(folder: Folder, number: int, *, sync: bool) -> _LastSegment:
    with closing(folder.open(segment_name(number), writable=True)) as file:
        segment = OpenSegment(file, number)
        if not segment.readable:  # truncated within its header
            torn = Recovery(file.size(), Position(number, 0, number))
            return _LastSegment(file.size(), number, torn)
        walk = Walk(segment, 0, None)
        damaged = tuple(item for item in walk if isinstance(item, Damage))
        cut_bytes = tail_size(file, walk.offset)
        empty = walk.next_number == number
        if empty and cut_bytes and damaged:
            raise LogCorrupt(
                f"{folder.place}/{segment_name(number)} cannot be read: its header is damaged, and "
                "no record in it is intact. Move the log away to keep it, or remove that file."
            )
        if not empty and not (walk.ended and file.size() == walk.offset):
            _seal(file, walk, segment.seed)
        if sync:  # also data that the dead process wrote without a sync
            file.sync()
        torn_at = Position(number, walk.offset, walk.next_number) if cut_bytes else None
        recovery = Recovery(cut_bytes, torn_at, damaged)
        return _LastSegment(file.size(), walk.next_number, recovery)


def _seal(file: File, walk: Walk, seed: int) -> None:
    """Truncate the torn tail and the preallocated space, and write END."""
    file.truncate(walk.offset)
    if not walk.ended:
        file.write(encode_end(walk.next_number, seed), walk.offset)
