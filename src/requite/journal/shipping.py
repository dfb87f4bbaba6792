"""Copy journals to where they are read: another folder, a mounted disk, a store of objects.

    shipper = Shipper("journal", open_store("s3://bucket/journals"))
    shipper.ship()       # what is there now; again for what has come since

A log is copied in its order: sealed segments once, then the one that is being written, up to its
last record, each time there is more of it. So a reader of the copy finds what the log had at some
time, and never a hole. What a killed shipper has left undone, the next one does; what is there
already is not sent again. The copy notes up to where it goes (`requite.storage.shipped`).

Segments that retention removes before they were shipped are missing in the copy, and are told by
whoever reads it. One shipper at a time writes a copy.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from threading import Event, Thread
from typing import Final, NamedTuple

from requite.errors import LogGone, StorageError
from requite.journal.folder import LogFolder, find_logs, roll_entry
from requite.storage import LogReader, SegmentInfo
from requite.storage.files import ReadableFolder
from requite.storage.layout import segment_name
from requite.storage.shipped import SHIPPED_NAME, Shipped, encode_shipped
from requite.storage.stores import Store

logger: Final = logging.getLogger("requite.journal")


class Freight(NamedTuple):
    """What was shipped: segments, or parts of them, and bytes."""

    segments: int = 0
    bytes: int = 0

    def __add__(self, other: object) -> Freight:
        if not isinstance(other, Freight):
            return NotImplemented
        return Freight(self.segments + other.segments, self.bytes + other.bytes)


class Shipper:
    """Ships the logs of a journal, those that begin meanwhile included."""

    def __init__(self, directory: Path | str, store: Store) -> None:
        self._directory = directory
        self._store = store
        self._logs: dict[str, LogShipper] = {}

    def ship(self) -> Freight:
        """Ship what is new. Raises `StorageError`, and `ConfigurationError` for what is no journal;
        call it again to go on."""
        total = Freight()
        for log in find_logs(self._directory):
            if log.log not in self._logs:
                self._logs[log.log] = LogShipper.of(log, self._store)
            total += self._logs[log.log].ship()
        return total


class LogShipper:
    """Ships one log."""

    def __init__(self, name: str, folder: ReadableFolder, store: Store) -> None:
        self._name = name
        self._folder = folder
        self._store = store
        self._reader = LogReader.on(folder)
        self._there: dict[str, int] | None = None  # sizes of what the store has, by name
        self._noted: Shipped | None = None

    @classmethod
    def of(cls, log: LogFolder, store: Store) -> LogShipper:
        return cls(log.log, LogReader(log.place).folder, store)

    def ship(self) -> Freight:
        """Ship what is new. Raises `StorageError`; call it again to go on."""
        if self._there is None:
            self._store.put(roll_entry(self._name), b"")
            self._there = self._store.sizes(self._name)
        may_grow = self._reader.may_grow()  # asked first: what it has then, it has for good
        try:
            infos = self._reader.segments()
        except LogGone:
            return Freight()
        sizes = [*self._put_all(infos)]
        if infos:
            last = infos[-1]
            self._note(Shipped(last.number, last.written_bytes, not may_grow, last.torn))
        return Freight(len(sizes), sum(sizes))

    def _put_all(self, infos: list[SegmentInfo]) -> Iterator[int]:
        assert self._there is not None
        for info in infos:
            name = f"{self._name}/{segment_name(info.number)}"
            if self._there.get(name) == info.written_bytes:
                continue
            try:
                data = self._read(info)
            except LogGone:  # retention was faster
                continue
            self._store.put(name, data)
            self._there[name] = len(data)
            yield len(data)

    def _read(self, info: SegmentInfo) -> bytes:
        with closing(self._folder.open(segment_name(info.number))) as file:
            return file.read(info.written_bytes, 0)

    def _note(self, shipped: Shipped) -> None:
        if shipped != self._noted:
            self._store.put(f"{self._name}/{SHIPPED_NAME}", encode_shipped(shipped))
            self._noted = shipped


class Courier:
    """Ships the log of this process from a thread of its own, and never disturbs it.

    A failure is warned about once, and tried again: nothing is lost while the log itself is there.
    """

    def __init__(self, path: Path, store: Store, every_s: float) -> None:
        self._shipper = LogShipper(path.name, LogReader(path).folder, store)
        self._url = store.url
        self._every_s = every_s
        self._ended = Event()
        self._failure = ""
        self._thread = Thread(target=self._run, name=f"ship {path.name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def finish(self, timeout_s: float) -> None:
        """Ship the rest of a log that has ended, and wait for that, but not longer than this."""
        self._ended.set()
        self._thread.join(timeout_s)
        if self._thread.is_alive() or self._failure:
            logger.warning(
                "the journal's end has not been shipped to %s; `requite journal ship` does that",
                self._url,
            )

    def _run(self) -> None:
        is_last = False
        while not is_last:
            is_last = self._ended.wait(self._every_s)
            try:
                self._shipper.ship()
            except StorageError as error:
                self._fail(str(error))
            else:
                self._recover()

    def _fail(self, failure: str) -> None:
        if not self._failure:
            logger.warning("the journal cannot be shipped: %s", failure)
        self._failure = failure

    def _recover(self) -> None:
        if self._failure:
            self._failure = ""
            logger.warning("the journal is shipped again to %s", self._url)
