"""`Journal`: takes the rows of engines and writes them to disk in a separate thread.

Engines append rows to `Journal.chronicle` and never wait: if the disk is full, slow or gone, rows
are dropped and counted, and requests go on. The next successful write begins with a DROPPED event
row that has the count.
"""

from __future__ import annotations

import atexit
import logging
import os
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING, Any, Final

from requite.chronicle import ORIGIN_SIZE, Chronicle, WriterRole
from requite.errors import ConfigurationError
from requite.journal.blocks import PURPOSE
from requite.journal.clock import WallClock
from requite.journal.encode import press_spans
from requite.journal.folder import enrol, log_name, prepare
from requite.journal.meaning import ROLE_NAMES
from requite.journal.scribe import Scribe
from requite.journal.settings import JournalSettings, JournalStatus
from requite.storage import Log, LogSettings
from requite.storage.layout import segment_name

if TYPE_CHECKING:
    from requite.journal.shipping import Courier

logger: Final = logging.getLogger("requite.journal")


class Journal:
    """The journal of one broker, worker or client.

    Any number of journals may share `directory`; each has its log in the folder
    `directory/ROLE-NAME`, where `name` is 8 bytes, new for every start. Use:

        journal = Journal("journal", WriterRole.BROKER, os.urandom(8))
        journal.start()                  # raises where it cannot be written
        engine = BrokerEngine(..., journal.chronicle)
        ...
        journal.close()                  # writes the rest

    As a context manager it calls `start` and `close`.
    """

    def __init__(
        self,
        directory: Path | str,
        role: WriterRole,
        name: bytes,
        *,
        settings: JournalSettings | None = None,
        clock: WallClock | None = None,
    ) -> None:
        if len(name) != ORIGIN_SIZE:
            raise ConfigurationError(
                f"the name of a journal must have {ORIGIN_SIZE} bytes, not {len(name)}"
            )
        self.chronicle = Chronicle(press_spans, Lock())
        self.settings = settings or JournalSettings()
        self.path = Path(directory) / log_name(role, name)
        self._role = role
        self._name = name
        self._clock = clock or WallClock()
        self._scribe: Scribe | None = None
        self._courier: Courier | None = None
        self._closing = Event()
        self._closed = Lock()
        self._thread = Thread(target=self._run, name=f"journal {self.path.name}", daemon=True)

    def start(self) -> None:
        """Create the log and start writing.

        Raises `ConfigurationError` if the folder is not a journal or `ship_to` is not a store, and
        `StorageError` if the log cannot be written. A full disk does not prevent the start: the
        journal logs a warning and retries.
        """
        prepare(self.path.parent)
        courier = self._courier_of(self.settings.ship_to)
        if self.path.exists():
            raise ConfigurationError(f"{self.path} already exists; each journal needs a new name")
        place = _Place(self.path, self.settings)
        scribe = Scribe(self.chronicle, place, self._facts(), self.settings, self._clock)
        scribe.open()
        enrol(self.path)
        self._scribe = scribe
        self._thread.start()
        if courier is not None:
            courier.start()
        self._courier = courier
        atexit.register(self.close)

    def close(self) -> None:
        """Write all rows and stop; do nothing if not started or already closed.

        Waits at most `close_timeout_s` for a hanging disk.
        """
        if self._scribe is None or not self._closed.acquire(blocking=False):
            return
        atexit.unregister(self.close)
        self._closing.set()
        self._thread.join(self.settings.close_timeout_s)
        if self._thread.is_alive():
            logger.warning(
                "the journal could not be written in time, because its disk does not respond;"
                " its last rows are lost"
            )
        if self._courier is not None:
            self._courier.finish(self.settings.close_timeout_s)

    def __enter__(self) -> Journal:
        self.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    @property
    def dropped(self) -> int:
        """How many rows have been lost."""
        return self.status().dropped

    def status(self) -> JournalStatus:
        """Return the journal's status."""
        waiting = self.chronicle.waiting
        scribe = self._scribe
        if scribe is None:
            return JournalStatus(self.path, 0, 0, waiting, self.chronicle.dropped, "not started")
        return JournalStatus(
            self.path,
            scribe.events,
            scribe.bytes_written,
            waiting + scribe.backlog,
            scribe.dropped,
            scribe.failure,
        )

    def _run(self) -> None:
        assert self._scribe is not None
        while not self._closing.wait(self.settings.flush_every_s):
            self._scribe.flush()
        self._scribe.close()

    def _courier_of(self, target: str | None) -> Courier | None:
        """Make the courier that ships this log, or return None. Raises `ConfigurationError`."""
        if target is None:
            return None
        from requite.journal.shipping import Courier  # most journals are not shipped
        from requite.storage.stores import open_store

        return Courier(self.path, open_store(target), self.settings.ship_every_s)

    def _facts(self) -> dict[str, Any]:
        return {
            "role": ROLE_NAMES[self._role],
            "name": self._name.hex(),
            "pid": os.getpid(),
            "version": _version(),
            "started": datetime.now(UTC).isoformat(timespec="microseconds"),
        }


def _version() -> str:
    """Return the version of the package; "unknown" if it runs from a zip file."""
    try:
        return metadata.version("requite")
    except metadata.PackageNotFoundError:
        return "unknown"


class _Place:
    """The log of a journal on disk."""

    def __init__(self, path: Path, settings: JournalSettings) -> None:
        self._path = path
        self._settings = LogSettings(
            segment_size_bytes=settings.segment_size_bytes,
            retain_bytes=settings.retain_bytes,
            retain_s=settings.retain_s,
        )
        self._log: Log | None = None

    def open(self) -> Log:
        """Open or create the log, and begin a new segment."""
        self._log = Log.open(self._path, purpose=PURPOSE, settings=self._settings)
        return self._log

    def is_there(self) -> bool:
        """Whether the current segment's file still exists."""
        return self._log is not None and (self._path / segment_name(self._log.segment)).exists()
