"""An append-only log: one writer, segments, and one `fdatasync` for any number of records.

    log = Log.open("requests", purpose=b"TITN")
    positions = log.append([b"first", b"second"])     # written, and visible to readers
    log.sync()                                        # on the disk
    log.read_at(positions[1])                         # b"second"

The format is in docs/protocols/log-format.md. Use a log from one thread at a time; only `read_at`
may be called from other threads meanwhile.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Final

from requite.errors import (
    ConfigurationError,
    LocalViolation,
    LogFailed,
    LogFull,
    LogGone,
    LogMismatch,
    StorageError,
)
from requite.storage.cipher import SEAL_SIZE, Cipher
from requite.storage.disk import LOCK_NAME, DiskFolder
from requite.storage.files import Folder
from requite.storage.layout import (
    PAYLOAD_SIZE_MAX,
    RECORD_HEADER_SIZE,
    SUFFIX,
    SegmentHeader,
    record_size,
)
from requite.storage.reader import LogReader, read_record
from requite.storage.records import Position, Recovery
from requite.storage.recovery import recover
from requite.storage.retention import Sealed, Shelf
from requite.storage.segment import NEW_SUFFIX, OVERHEAD, SegmentWriter, new_log_id, wall_clock_us
from requite.storage.settings import LogSettings

PURPOSE_SIZE: Final = 4
SCARCE_SIZE: Final = 1 << 20  # a disk without room for a whole segment may have room for this


class Log:
    """The writer of a log.

    `recovered` is the damage found when opening, `next_number` the number of the next record.
    """

    recovered: Recovery
    next_number: int

    def __init__(
        self,
        folder: Folder,
        purpose: bytes,
        settings: LogSettings,
        log_id: bytes | None = None,
        cipher: Cipher | None = None,
    ) -> None:
        """Use `Log.open`."""
        if len(purpose) != PURPOSE_SIZE:
            raise ConfigurationError(
                f"the purpose of a log must have {PURPOSE_SIZE} bytes: {purpose!r}"
            )
        self.settings = settings
        self._folder = folder
        self._purpose = purpose
        self._cipher = cipher
        self._shelf = Shelf(folder)
        self._writer: SegmentWriter | None = None
        self._refusal: StorageError | None = None
        self._closed = False
        folder.lock()
        try:
            self._recover(log_id)
            self._begin()
        except BaseException:
            folder.unlock()
            raise

    @classmethod
    def open(
        cls,
        directory: str | PathLike[str],
        *,
        purpose: bytes,
        settings: LogSettings | None = None,
        log_id: bytes | None = None,
        cipher: Cipher | None = None,
    ) -> Log:
        """Open or create the log in a folder, as its only writer.

        `purpose` is 4 bytes that identify the kind of log. With `log_id` only this log is opened,
        and none is created. `cipher` encrypts new records, and opens encrypted ones. Raises
        `LogMismatch`, without changing anything, for a folder with a log for another purpose or
        with other files.
        """
        folder = DiskFolder(Path(directory))
        if log_id is None:
            folder.make()
            _require_log_files_only(folder)
        return cls(folder, purpose, settings or LogSettings(), log_id, cipher)

    def __enter__(self) -> Log:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def segment(self) -> int:
        """The number of the active segment: that of its first record."""
        return self.next_number if self._writer is None else self._writer.number

    @property
    def log_id(self) -> bytes:
        """16 random bytes, the same in all segments."""
        return self._log_id

    @property
    def sealed(self) -> tuple[Sealed, ...]:
        """The sealed segments, oldest first."""
        return tuple(self._shelf)

    @property
    def disk_bytes(self) -> int:
        """Bytes that all segments take on disk, including preallocated space."""
        active = 0 if self._writer is None else self._writer.size
        return active + sum(sealed.size for sealed in self._shelf)

    def room(self, count: int = 1) -> int:
        """Return the total bytes that `count` payloads may have to fit into the active segment."""
        size = self.settings.segment_size_bytes - OVERHEAD
        free = size if self._writer is None else self._writer.free()
        return max(0, free - count * (RECORD_HEADER_SIZE + 7 + self.seal_size))

    @property
    def seal_size(self) -> int:
        """How many bytes encryption adds to each payload."""
        return 0 if self._cipher is None else SEAL_SIZE

    def append(self, payloads: Sequence[bytes]) -> list[Position]:
        """Write records with one system call. Readers see them; a power cut may lose them.

        Payloads that do not fit into the active segment go to a new one together; only more than a
        segment holds is split. After a `StorageError` none of `payloads` has been written (of split
        ones: the parts in full segments have). A payload has at most 16 MiB.
        """
        refuse_oversize(payloads)
        positions: list[Position] = []
        if self._cipher is not None:
            payloads = self._sealed_by(self._cipher, payloads)
        with self._usable():
            while len(positions) < len(payloads):
                rest = payloads[len(positions) :] if positions else payloads
                positions += self._append_part(rest)
        return positions

    def _sealed_by(self, cipher: Cipher, payloads: Sequence[bytes]) -> Sequence[bytes]:
        if max(map(len, payloads), default=0) + SEAL_SIZE > PAYLOAD_SIZE_MAX:
            raise LogFull(
                f"a payload of more than {PAYLOAD_SIZE_MAX - SEAL_SIZE} bytes cannot be encrypted"
            )
        first = self.next_number
        return [cipher.seal(payload, number) for number, payload in enumerate(payloads, first)]

    def sync(self) -> None:
        """Wait until all appended records are on disk.

        After `LogFailed`, here or in `append`, it is unknown what has reached the disk, so the log
        refuses further writes until it is reopened.
        """
        with self._usable():
            if self._writer is not None:
                self._writer.sync()

    def commit(self, payloads: Sequence[bytes]) -> list[Position]:
        """Append and sync; return the records' positions."""
        positions = self.append(payloads)
        self.sync()
        return positions

    def rotate(self) -> None:
        """Seal the active segment and begin the next; remove segments beyond the retention limits.

        Does nothing if the active segment is empty. If `LogFull` is raised for the new segment, the
        old one stays active with its remaining space.
        """
        with self._usable():
            if self._writer is None or not self._writer.empty:
                self._next_segment()

    def close(self) -> None:
        """Seal the active segment and release the log to other writers; idempotent."""
        if self._closed:
            return
        self._closed = True
        try:
            if self._refusal is None and self._writer is not None:
                self._writer.seal()
        finally:
            self._refusal = LogFailed(f"the log in {self._folder.place} is closed")
            self._drop_writer()
            self._folder.unlock()

    def read_at(self, position: Position) -> bytes:
        """The payload of a record. Raises `LogGone` if its segment is, `LogCorrupt` for damage."""
        payload = read_record(self._folder, position)
        if self._cipher is None:
            return payload
        return self._cipher.unseal(payload, position.number)

    def reader(self) -> LogReader:
        return LogReader.on(self._folder, self._cipher)

    def remove(self, segment: int) -> None:
        """Remove a sealed segment whose records are no longer needed."""
        with self._usable():
            if segment not in self._shelf:
                raise LocalViolation(f"{segment} is not a sealed segment of this log")
            self._shelf.remove([segment])
            self._sync_folder()

    def _append_part(self, payloads: Sequence[bytes]) -> list[Position]:
        """Append as many as fit into the active segment, or into a new one."""
        writer = self._writer
        if writer is not None and sum(map(len, payloads)) <= self.room(len(payloads)):
            return self._append_to(writer, payloads)
        sizes = list(map(record_size, map(len, payloads)))
        total = sum(sizes)
        writer = self._writer_for(total, sizes[0])
        if total > writer.free():
            payloads = payloads[: bisect_right(list(accumulate(sizes)), writer.free())]
        return self._append_to(writer, payloads)

    def _append_to(self, writer: SegmentWriter, payloads: Sequence[bytes]) -> list[Position]:
        positions = writer.append(payloads)
        self.next_number = writer.next_number
        return positions

    def _writer_for(self, size: int, least: int) -> SegmentWriter:
        """A segment with `size` bytes free; if none has that much, an empty one with `least`."""
        writer = self._writer
        if writer is not None and (
            writer.free() >= size or (writer.empty and writer.free() >= least)
        ):
            return writer
        return self._next_segment(least)

    def _recover(self, log_id: bytes | None) -> None:
        """Recover the log's segments, and remove unfinished files."""
        found = recover(self._folder, self._purpose, sync=self.settings.sync)
        if log_id is not None and found.log_id != log_id:
            raise LogMismatch(
                f"{self._folder.place} contains another log, or none. Check whether its disk"
                " is mounted."
            )
        for name in self._folder.names():
            if name.endswith(SUFFIX + NEW_SUFFIX):
                self._folder.remove(name)
        for sealed in found.sealed:
            self._shelf.add(sealed)
        self._log_id = found.log_id or self._new_id()
        self.next_number = found.next_number
        self.recovered = found.recovery

    def _begin(self) -> None:
        try:
            self._next_segment()
        except StorageError as error:
            self.recovered.add_to(error)
            raise

    def _next_segment(self, least: int = 0) -> SegmentWriter:
        """Begin a segment with room for a record of at least `least` bytes.

        The active segment is sealed only once the next one has its space on disk, so that there is
        always a segment to write to.
        """
        now_us, active = self._now_us(), self._writer
        size = max(self.settings.segment_size_bytes, OVERHEAD + least)
        self._retain(now_us, size + (0 if active is None else active.written_bytes))
        try:
            following = self._prepare(now_us, size, max(SCARCE_SIZE, OVERHEAD + least))
        except LogGone:  # with the folder, the active one is gone as well
            self._drop_writer()
            raise
        try:
            self._seal()
        except StorageError:
            following.discard(self._folder)
            raise
        following.publish(self._folder)
        self._writer = following
        self._retain(now_us, following.size)
        return following

    def _prepare(self, now_us: int, size: int, size_min: int) -> SegmentWriter:
        """Allocate a segment's space, halving its size while the disk has too little."""
        header = SegmentHeader(self.next_number, now_us, self._log_id, self._purpose, size)
        try:
            return SegmentWriter.prepare(self._folder, header, sync=self.settings.sync)
        except LogFull:
            if size // 2 < size_min:
                raise
        return self._prepare(now_us, size // 2, size_min)

    def _seal(self) -> None:
        """End the active segment; one without records is left to be replaced."""
        writer = self._writer
        if writer is None:
            return
        if not writer.empty:
            writer.seal()
            self._shelf.add(Sealed(writer.number, writer.written_bytes, self._now_us()))
        self._drop_writer()

    def _now_us(self) -> int:
        """Return the wall time in µs; simulations override it."""
        return wall_clock_us()

    def _new_id(self) -> bytes:
        """Return the id of a new log; simulations override it to be reproducible."""
        return new_log_id()

    def _drop_writer(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _retain(self, now_us: int, coming: int) -> None:
        """Remove the segments beyond the limits of `retain_bytes` and `retain_s`."""
        settings, overdue = self.settings, set[int]()
        if settings.retain_bytes is not None:
            overdue |= self._shelf.beyond_size(settings.retain_bytes - coming)
        if settings.retain_s is not None:
            overdue |= self._shelf.ended_before(now_us - settings.retain_s * 1e6)
        if overdue:
            self._shelf.remove(sorted(overdue))
            self._sync_folder()

    def _sync_folder(self) -> None:
        if self.settings.sync:
            self._folder.sync()

    @contextmanager
    def _usable(self) -> Iterator[None]:
        """Refuse all operations after a failure that leaves the file's contents unknown."""
        if self._refusal is not None:
            raise self._refusal
        try:
            yield
        except LogFailed as error:
            self._refusal = error
            raise


def refuse_oversize(payloads: Sequence[bytes]) -> None:
    """Raise `LocalViolation` for a payload that no record can hold."""
    if max(map(len, payloads), default=0) > PAYLOAD_SIZE_MAX:
        raise LocalViolation(f"the payload has more than {PAYLOAD_SIZE_MAX} bytes, the maximum")


def _require_log_files_only(folder: DiskFolder) -> None:
    """Raise `LogMismatch` for a folder that has files but no log."""
    names = folder.names()
    ours = [
        name
        for name in names
        if name == LOCK_NAME or name.removesuffix(NEW_SUFFIX).endswith(SUFFIX)
    ]
    if names and not ours:
        raise LogMismatch(
            f"{folder.place} contains other files ({sorted(names)[0]}, …) and no log. Use an"
            " empty folder, or a new one."
        )
