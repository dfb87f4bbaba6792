"""The segment that is being written."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from requite.errors import LogFull, StorageError
from requite.storage.files import File, Folder
from requite.storage.layout import (
    HEADER_SIZE,
    RECORD_HEADER_SIZE,
    SegmentHeader,
    decode_header,
    encode_end,
    encode_header,
    encode_records,
    header_seeds,
    segment_name,
)
from requite.storage.records import Position

LOG_ID_SIZE: Final = 16
NEW_SUFFIX: Final = ".new"  # a segment gets its name when its header is on the disk
_new: Final = tuple.__new__  # half the price of calling a NamedTuple's class
OVERHEAD: Final = HEADER_SIZE + RECORD_HEADER_SIZE  # header and end


def new_log_id() -> bytes:
    return os.urandom(LOG_ID_SIZE)


def wall_clock_us() -> int:
    return time.time_ns() // 1000


class SegmentWriter:
    """Append records to one segment, then seal it. Nobody else writes it, before or after."""

    def __init__(self, file: File, data: bytes, size: int, *, sync: bool) -> None:
        self.header = decode_header(data)
        self.number = self.header.first_record
        self.next_number = self.number
        self.size = size
        self._file = file
        self._seed = header_seeds(data)[0]
        self._end = HEADER_SIZE
        self._sync = sync
        self._unsynced = False

    @classmethod
    def prepare(cls, folder: Folder, header: SegmentHeader, *, sync: bool) -> SegmentWriter:
        """Make the file complete under another name, so that no reader meets half a header."""
        name = segment_name(header.first_record) + NEW_SUFFIX
        data = encode_header(header)
        file = folder.create(name, header.set_aside)
        try:
            file.write(data, 0)
            if sync:
                file.sync()
        except StorageError:
            file.close()
            folder.remove(name)
            raise
        return cls(file, data, header.set_aside, sync=sync)

    def publish(self, folder: Folder) -> None:
        """Give the file its name: from now on readers see it."""
        name = segment_name(self.number)
        try:
            folder.rename(name + NEW_SUFFIX, name)
            if self._sync:
                folder.sync()
        except StorageError:
            self.close()
            raise

    def discard(self, folder: Folder) -> None:
        """Remove a file that was prepared, and is not needed."""
        self.close()
        folder.remove(segment_name(self.number) + NEW_SUFFIX)

    @property
    def empty(self) -> bool:
        return self._end == HEADER_SIZE

    @property
    def written_bytes(self) -> int:
        return self._end

    def free(self) -> int:
        """Bytes that records may still take, their headers and padding included."""
        return self.size - RECORD_HEADER_SIZE - self._end

    def append(self, payloads: Sequence[bytes]) -> list[Position]:
        """Write all payloads at once. After an error none of them is there."""
        number, first = self.number, self.next_number
        data, offsets = encode_records(payloads, first, self._end, self._seed)
        self._unsynced = True
        try:
            self._file.write(data, self._end)
        except StorageError:
            # Part of it may be there, and would be taken for records behind a shorter next batch.
            self._file.truncate(self._end)
            with suppress(LogFull):  # there may be room again later
                self._file.set_aside(self.size)
            raise
        self._end += len(data)
        self.next_number += len(payloads)
        return [_new(Position, (number, at, count)) for count, at in enumerate(offsets, first)]

    def sync(self) -> None:
        if self._sync and self._unsynced:
            self._file.sync()
        self._unsynced = False

    def seal(self) -> None:
        """Say that nothing will follow, and give back the space that was set aside."""
        end = encode_end(self.next_number, self._seed)
        self._file.write(end, self._end)
        self._file.truncate(self._end + len(end))
        self._end += len(end)
        self._unsynced = True
        self.sync()

    def close(self) -> None:
        self._file.close()
