"""The writer of the active segment."""

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
NEW_SUFFIX: Final = ".new"  # of a file whose header is not on the disk yet
_new: Final = tuple.__new__  # takes half the time of calling the class of a NamedTuple
OVERHEAD: Final = HEADER_SIZE + RECORD_HEADER_SIZE  # header and end


def new_log_id() -> bytes:
    return os.urandom(LOG_ID_SIZE)


def wall_clock_us() -> int:
    return time.time_ns() // 1000


class SegmentWriter:
    """Appends records to one segment, then seals it. No other process ever writes it."""

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
        """Create the file with its header under another name, so that readers see it complete."""
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
        """Rename the file, so that readers see it."""
        name = segment_name(self.number)
        try:
            folder.rename(name + NEW_SUFFIX, name)
            if self._sync:
                folder.sync()
        except StorageError:
            self.close()
            raise

    def discard(self, folder: Folder) -> None:
        """Remove a prepared file that is not needed."""
        self.close()
        folder.remove(segment_name(self.number) + NEW_SUFFIX)

    @property
    def empty(self) -> bool:
        return self._end == HEADER_SIZE

    @property
    def written_bytes(self) -> int:
        return self._end

    def free(self) -> int:
        """The free bytes for records, with their headers and padding."""
        return self.size - RECORD_HEADER_SIZE - self._end

    def append(self, payloads: Sequence[bytes]) -> list[Position]:
        """Write all payloads with one call. After an error none of them is in the segment."""
        number, first = self.number, self.next_number
        data, offsets = encode_records(payloads, first, self._end, self._seed)
        self._unsynced = True
        try:
            self._file.write(data, self._end)
        except StorageError:
            # A part may be written, and would be read as records after a shorter next batch.
            self._file.truncate(self._end)
            with suppress(LogFull):  # there may be space later
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
        """Write END, and free the preallocated space."""
        end = encode_end(self.next_number, self._seed)
        self._file.write(end, self._end)
        self._file.truncate(self._end + len(end))
        self._end += len(end)
        self._unsynced = True
        self.sync()

    def close(self) -> None:
        self._file.close()
