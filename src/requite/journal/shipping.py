"""Copy journals to the place where they are read: a folder, a mounted disk, an object store.

    shipper = Shipper("journal", open_store("s3://bucket/journals"))
    shipper.ship()       # copy everything new; call it again later

A log is copied in order: sealed segments once, then the active one up to its last record, each time
it has grown. So the copy equals the log at an earlier time, without gaps. The next shipper
completes the work of a killed one, and does not send existing objects again. The copy records its
end (`requite.storage.shipped`).

Segments that retention removes before they are shipped are missing in the copy, and readers report
them. A copy may have only one shipper at a time.
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
    """The shipped amount: segments, or parts of them, and bytes."""

    segments: int = 0
    bytes: int = 0

    def __add__(self, other: object) -> Freight:
        if not isinstance(other, Freight):
            return NotImplemented
        return Freight(self.segments + other.segments, self.bytes + other.bytes)


class Shipper:
    """Ships the logs of a journal, including those that begin later."""

    def __init__(self, directory: Path | str, store: Store) -> None:
        self._directory = directory
        self._store = store
        self._logs: dict[str, LogShipper] = {}

    @property
    def logs(self) -> int:
        """The number of logs that were found so far."""
        return len(self._logs)

    def ship(self) -> Freight:
        """Ship everything new; call it again later. Raises `StorageError`, and `ConfigurationError`
        if the folder is no journal."""
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
        self._there: dict[str, int] | None = None  # sizes of the objects in the store, by name
        self._noted: Shipped | None = None

    @classmethod
    def of(cls, log: LogFolder, store: Store) -> LogShipper:
        return cls(log.log, LogReader(log.place).folder, store)

    def ship(self) -> Freight:
        """Ship everything new; call it again later. Raises `StorageError`."""
        if self._there is None:
            self._store.put(roll_entry(self._name), b"")
            self._there = self._store.sizes(self._name)
        may_grow = self._reader.may_grow()  # read first: if False, nothing follows
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
            except LogGone:  # retention has removed it
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
    """Ships the log of this process in a separate thread.

    It logs a failure once, and retries: nothing is lost while the log itself exists.
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
        """Ship the rest of a closed log, and wait for that up to `timeout_s`."""
        self._ended.set()
        self._thread.join(timeout_s)
        if self._thread.is_alive() or self._failure:
            logger.warning(
                "the end of the journal was not copied to %s; run `requite journal ship`"
                " to copy it",
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
            logger.warning("cannot copy the journal: %s", failure)
        self._failure = failure

    def _recover(self) -> None:
        if self._failure:
            self._failure = ""
            logger.warning("the journal is copied to %s again", self._url)
