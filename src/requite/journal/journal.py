"""`Journal`: takes what engines tell, and writes it down in a thread of its own.

Engines append rows to `Journal.chronicle` and never wait: a disk that is full, slow or gone costs
rows, which are counted, and disturbs nobody. What was lost is told by a DROPPED event row as soon
as something can be written again.
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

    `directory` may be shared by any number of them; `name` (8 bytes, new for every start) makes the
    log's folder, `directory/ROLE-NAME`. Use:

        journal = Journal("journal", WriterRole.BROKER, os.urandom(8))
        journal.start()                  # raises where it cannot be written
        engine = BrokerEngine(..., journal.chronicle)
        ...
        journal.close()                  # writes the rest

    It is also a context manager that does the first and the last of these.
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
            raise ConfigurationError(f"a journal's name has {ORIGIN_SIZE} bytes, not {len(name)}")
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
        """Make the log, and begin to write.

        Raises `ConfigurationError` where the folder is something else than a journal, or what it is
        to be shipped to is no store, and `StorageError` where it cannot be written. A disk that is
        full is no reason not to start: it is warned about, and tried again.
        """
        prepare(self.path.parent)
        courier = self._courier_of(self.settings.ship_to)
        if self.path.exists():
            raise ConfigurationError(f"{self.path} exists; a journal's name is used only once")
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
        """Write what there is, and end. Harmless when repeated, or never started.

        A disk that hangs is waited for as long as the settings say.
        """
        if self._scribe is None or not self._closed.acquire(blocking=False):
            return
        atexit.unregister(self.close)
        self._closing.set()
        self._thread.join(self.settings.close_timeout_s)
        if self._thread.is_alive():
            logger.warning("the journal's disk hangs; the last rows are lost")
        if self._courier is not None:
            self._courier.finish(self.settings.close_timeout_s)

    def __enter__(self) -> Journal:
        self.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    @property
    def dropped(self) -> int:
        """How many rows were lost so far."""
        return self.status().dropped

    def status(self) -> JournalStatus:
        """Return how it goes."""
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
        """Return what ships this log, if it is to be shipped. Raises `ConfigurationError`."""
        if target is None:
            return None
        from requite.journal.shipping import Courier  # most journals stay where they are
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
    """Return the version of the package; where it runs from a zip file, nobody knows it."""
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
        """Open it, or make it. What follows goes into a segment of its own."""
        self._log = Log.open(self._path, purpose=PURPOSE, settings=self._settings)
        return self._log

    def is_there(self) -> bool:
        """Whether the file that is being written has a name still."""
        return self._log is not None and (self._path / segment_name(self._log.segment)).exists()
