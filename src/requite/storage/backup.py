"""Copy a log while it is in use, to a state that it had at one instant.

Files that are copied one after the other are no such state: compaction moves records from a segment
that is still to be copied into one that did not exist when the copy began. So all segments that are
listed are opened first, and listed again if one has been removed meanwhile. Then they have
everything that the log had when they were listed. Sealed segments never change; of the last one
everything up to its last intact record is copied, since the rest may be incomplete.
"""

from __future__ import annotations

import os
from collections import deque
from contextlib import ExitStack, closing, suppress
from os import PathLike
from pathlib import Path
from typing import Final, NamedTuple

from requite.errors import LogGone, LogMismatch
from requite.storage.disk import DiskFile, DiskFolder, as_storage_error, sync_folder
from requite.storage.layout import segment_name
from requite.storage.reader import LogReader
from requite.storage.records import Damage
from requite.storage.recovery import segment_numbers
from requite.storage.walk import CHUNK_SIZE, OpenSegment, Walk

_UNFINISHED: Final = ".new"


class Backup(NamedTuple):
    """What a backup contains. `damaged`: places that are unreadable in the log as well."""

    segments: int
    size_bytes: int
    records: int
    damaged: tuple[Damage, ...]


def back_up(
    directory: str | PathLike[str], target: str | PathLike[str], *, purpose: bytes
) -> Backup:
    """Copy the log in `directory` to the new folder `target`, and read the copy.

    The log may be in use. The copy is on the disk, and complete, once `target` exists. Raises
    `LogMismatch` for a folder without a log of this purpose and for a `target` with files, and
    other `StorageError`s.
    """
    source, place = DiskFolder(Path(directory)), Path(target).absolute()
    unfinished = DiskFolder(place.with_name(place.name + _UNFINISHED))
    with ExitStack() as opened:
        files = _open_segments(source, opened)
        _check(source, purpose)
        if place.exists() and (not place.is_dir() or any(place.iterdir())):
            raise LogMismatch(f"{place} exists. Back up to a new folder.")
        unfinished.make()
        for name in unfinished.names():
            unfinished.remove(name)
        for number, file in files:
            is_last = number == files[-1][0]
            size = _written(file, number) if is_last else file.size()
            _copy(file, size, unfinished, segment_name(number))
    unfinished.sync()
    with as_storage_error("create", place):
        os.rename(unfinished.path, place)
        sync_folder(place.parent)
    return _read(place)


def _open_segments(source: DiskFolder, opened: ExitStack) -> list[tuple[int, DiskFile]]:
    """Open the segments that exist at one instant, oldest first."""
    while True:
        numbers = segment_numbers(source)
        with ExitStack() as attempt, suppress(LogGone):
            files = [
                (number, attempt.enter_context(closing(source.open(segment_name(number)))))
                for number in numbers
            ]
            opened.push(attempt.pop_all())
            return files


def _check(source: DiskFolder, purpose: bytes) -> None:
    found = {info.purpose for info in LogReader.on(source).segments()}
    if found != {purpose}:
        what = f"a log for another purpose ({found.pop()!r})" if found else "no log"
        raise LogMismatch(f"{source.place} has {what}. Check the folder.")


def _written(file: DiskFile, number: int) -> int:
    """Return the size of the last segment's written part, without an incomplete write."""
    segment = OpenSegment(file, number)
    if not segment.readable:
        return file.size()
    walk = Walk(segment, 0, None)
    deque(walk, maxlen=0)
    return walk.offset


def _copy(file: DiskFile, size: int, folder: DiskFolder, name: str) -> None:
    with closing(folder.create(name, size)) as copy:
        for offset in range(0, size, CHUNK_SIZE):
            copy.write(file.read(min(CHUNK_SIZE, size - offset), offset), offset)
        copy.sync()


def _read(place: Path) -> Backup:
    """Read all records of a backup."""
    reader, records, damaged = LogReader(place), 0, list[Damage]()
    segments = reader.segments()
    for segment in segments:
        for item in reader.read(segment.number):
            if isinstance(item, Damage):
                damaged.append(item)
            else:
                records += 1
    size = sum(file.stat().st_size for file in place.iterdir())
    return Backup(len(segments), size, records, tuple(damaged))
