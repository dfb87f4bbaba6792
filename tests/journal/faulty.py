"""A log in memory on a disk that fails on request, and a clock that tests set."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from requite.chronicle import Chronicle, WriterRole
from requite.errors import LogFull, StorageError
from requite.journal.blocks import PURPOSE
from requite.journal.clock import WallClock
from requite.journal.decode import SegmentDecoder
from requite.journal.event import Event
from requite.journal.folder import LogFolder, log_name
from requite.journal.scribe import Scribe
from requite.journal.settings import JournalSettings
from requite.storage import (
    Damage,
    LogReader,
    LogSettings,
    MemoryFolder,
    MemoryLog,
    Position,
    Record,
)
from requite.storage.memory import MemoryFile

NAME = "0123456789abcdef"
STARTED_NS = 1_700_000_000_000_000_000


class LimitedFolder(MemoryFolder):
    """A folder in memory that refuses new files while `is_full` is true."""

    is_full = False

    def create(self, name: str, size: int) -> MemoryFile:
        if self.is_full:
            raise LogFull("cannot set bytes aside: no space left on device")
        return super().create(name, size)


class FaultyDisk:
    """Opens logs in memory, counts their operations, and raises `fault` while it is set."""

    def __init__(self, segment_size: int = 1 << 20) -> None:
        self.folder = LimitedFolder()
        self.settings = LogSettings(segment_size_bytes=segment_size)
        self.fault: StorageError | None = None
        self.sync_fault: StorageError | None = None
        self.is_here = True
        self.checks: Iterator[bool] = iter(())  # the results of the next calls of `is_there`
        self.opened = 0
        self.appends = 0
        self.syncs = 0

    @property
    def is_full(self) -> bool:
        """Whether there is no space for another segment."""
        return self.folder.is_full

    @is_full.setter
    def is_full(self, is_full: bool) -> None:
        self.folder.is_full = is_full

    def open(self) -> FaultyLog:
        self.raise_fault()
        self.opened += 1
        return FaultyLog(self)

    def is_there(self) -> bool:
        return next(self.checks, self.is_here)

    def raise_fault(self) -> None:
        if self.fault is not None:
            raise self.fault

    def items(self) -> list[Record | Damage]:
        return list(LogReader.on(self.folder).tail())

    def events(self, role: WriterRole = WriterRole.BROKER) -> list[Event]:
        return decode(self.items(), role)


class FaultyLog:
    def __init__(self, disk: FaultyDisk) -> None:
        self._disk = disk
        self._log = MemoryLog(PURPOSE, disk.settings, disk.folder)

    @property
    def segment(self) -> int:
        return self._log.segment

    def room(self, count: int = 1) -> int:
        return self._log.room(count)

    def append(self, payloads: Sequence[bytes]) -> list[Position]:
        self._disk.raise_fault()
        self._disk.appends += 1
        return self._log.append(payloads)

    def rotate(self) -> None:
        self._disk.raise_fault()
        self._log.rotate()

    def sync(self) -> None:
        if self._disk.sync_fault is not None:
            raise self._disk.sync_fault
        self._disk.syncs += 1

    def close(self) -> None:
        self._log.close()


class Clock:
    """The monotonic and the wall clock of a machine."""

    def __init__(self) -> None:
        self.at = 100.0
        self.ahead_ns = STARTED_NS

    def monotonic_ns(self) -> int:
        return round(self.at * 1e9)

    def wall_ns(self) -> int:
        return self.monotonic_ns() + self.ahead_ns

    def as_wall_clock(self) -> WallClock:
        return WallClock(self.monotonic_ns, self.wall_ns)


class ScribeHarness:
    """A scribe on a `FaultyDisk` and a `Clock`; its log is not open yet."""

    def __init__(self, **settings: float) -> None:
        self.disk = FaultyDisk()
        self.clock = Clock()
        self.chronicle = Chronicle()
        self.scribe = Scribe(
            self.chronicle,
            self.disk,
            {"role": "broker"},
            JournalSettings(**settings),  # type: ignore[arg-type]
            self.clock.as_wall_clock(),
        )

    def advance(self, seconds: float) -> None:
        """Advance the clock, and flush the scribe."""
        self.clock.at += seconds
        self.scribe.flush()


def decode(items: Iterable[Record | Damage], role: WriterRole = WriterRole.BROKER) -> list[Event]:
    """Return the events of a log."""
    log = LogFolder(log_name(role, bytes.fromhex(NAME)), role, NAME)
    decoders: dict[int, SegmentDecoder] = {}
    events: list[Event] = []
    for item in items:
        decoder = decoders.setdefault(item.segment, SegmentDecoder(log, item.segment))
        found = decoder.take_in(item)
        if isinstance(found, Event):
            events.append(found)
        elif found is not None:
            events += decoder.events(found)
    return events
