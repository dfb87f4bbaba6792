"""The work of a journal's thread: take rows, write them, and handle failures.

After the log is open, no method raises. While the log cannot be written, rows wait; beyond
`backlog_rows_max` they are dropped and counted. The count is written before any further rows.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from math import inf
from typing import Any, Final, Protocol, cast

from requite.chronicle import Chronicle, EventRow, Kind, SpanRow
from requite.errors import LogFull, LogGone, StorageError
from requite.journal.clock import WallClock
from requite.journal.encode import PressedSpans
from requite.journal.settings import JournalSettings
from requite.journal.writer import AppendOnly, BlockWriter

logger: Final = logging.getLogger("requite.journal")


class WritableLog(AppendOnly, Protocol):
    """The methods of a log that a journal uses."""

    def sync(self) -> None:
        """Wait until all appended records are on the disk."""

    def close(self) -> None:
        """Seal the log."""


class LogPlace(Protocol):
    """Opens the log of a journal, also again after a failure."""

    def open(self) -> WritableLog:
        """Open the log at a new segment. Raises `StorageError`."""

    def is_there(self) -> bool:
        """Whether the files of the log still exist."""


class Scribe:
    """Takes rows from a chronicle, and writes them."""

    def __init__(
        self,
        chronicle: Chronicle,
        place: LogPlace,
        facts: Mapping[str, Any],
        settings: JournalSettings,
        clock: WallClock,
    ) -> None:
        self._chronicle = chronicle
        self._place = place
        self._facts = facts
        self._settings = settings
        self._clock = clock
        self._log: WritableLog | None = None
        self._writer: BlockWriter | None = None
        self._pressed: list[PressedSpans] = []
        self._spans: list[SpanRow] = []
        self._event_rows: list[EventRow] = []
        self._lost = 0
        self._told = 0  # dropped rows that were recorded
        self._unchecked = 0  # rows written since the last check that the log exists
        self._try_at = -inf
        self._sync_at = -inf
        self._is_synced = True
        self.failure = ""
        self.events = 0
        self.bytes_written = 0

    @property
    def dropped(self) -> int:
        """The number of lost rows."""
        return self._lost + self._chronicle.dropped

    @property
    def backlog(self) -> int:
        """The number of rows that wait to be written."""
        pressed = sum(each.rows for each in self._pressed)
        return pressed + len(self._spans) + len(self._event_rows)

    def open(self) -> None:
        """Open the log and write its beginning; on a full disk, as soon as there is space.

        Raises `StorageError` for every other failure.
        """
        now = self._clock.now()
        self._event_rows.append(EventRow(now, Kind.OPENED))
        try:
            self._write()
        except LogFull as error:
            self._fail(error, now)
        except StorageError:
            self._close_log()
            raise

    def flush(self) -> None:
        """Take the pending rows, and write them if possible."""
        self._take()
        now = self._clock.now()
        if now < self._try_at:
            return
        try:
            self._write()
            self._maybe_sync(now)
        except StorageError as error:
            self._fail(error, now)
        except Exception:  # rows that cannot be encoded; engines must not fail because of them
            logger.exception("a bug in requite: the journal dropped rows")
            self._drop_backlog()
        else:
            self._recover()

    def close(self) -> None:
        """Write the remaining rows, the number of dropped ones and the end; close the log."""
        dropped = self.dropped
        self._try_at = self._sync_at = -inf
        self.flush()
        self._drop_backlog()
        try:
            self._write_closed()
        except StorageError as error:
            self._fail(error, self._clock.now())
            self._lost += 1
        if self.dropped > dropped:
            logger.warning("the journal ends incomplete: %d rows were dropped", self.dropped)
        self._close_log()

    # --- writing --------------------------------------------------------------------------------
    def _take(self) -> None:
        pressed, spans, event_rows = self._chronicle.take()
        self._pressed += cast("list[PressedSpans]", pressed)
        self._spans += spans
        self._event_rows += event_rows
        if self.failure and self.backlog > self._settings.backlog_rows_max:
            self._drop_backlog()

    def _write(self) -> None:
        untold = self.dropped - self._told
        # After a failure, write even without rows, to find out whether the log works again.
        if not (self.backlog or untold or self.failure):
            return
        writer = self._writer or self._open_log()
        offset_us = self._clock.offset_us()
        backlog = self.backlog
        try:
            self._write_dropped(writer, offset_us)
            writer.write_pressed(self._pressed, offset_us)
            writer.write_spans(self._spans, offset_us)
            writer.write_event_rows(self._event_rows, offset_us)
        finally:
            self._unchecked += backlog - self.backlog
            self._account(writer)

    def _write_dropped(self, writer: BlockWriter, offset_us: int) -> None:
        """Record the number, also while the disk is full, since the process may be killed.

        That uses the reserve, so on a full disk the number is recorded only when it has doubled.
        """
        untold = self.dropped - self._told
        if untold and (not self.failure or untold >= self._told):
            row = EventRow(self._clock.now(), Kind.DROPPED, value=float(untold))
            writer.tell(row, offset_us)
            self._told += untold
        if self.failure:  # a write to the reserve does not prove that others succeed
            writer.make_room()

    def _write_closed(self) -> None:
        """Write the last rows, for which the reserve has space unless the disk fails."""
        writer = self._writer or self._open_log()
        now, offset_us = self._clock.now(), self._clock.offset_us()
        untold = self.dropped - self._told
        try:
            if untold:
                dropped = EventRow(now, Kind.DROPPED, value=float(untold))
                writer.tell(dropped, offset_us, last=True)
                self._told += untold
            writer.tell(EventRow(now, Kind.CLOSED), offset_us, last=True)
        finally:
            self._account(writer)

    def _account(self, writer: BlockWriter) -> None:
        self._is_synced = False
        self.events = writer.next_seq
        self.bytes_written += writer.bytes_written
        writer.bytes_written = 0

    def _open_log(self) -> BlockWriter:
        self._log = self._place.open()
        self._writer = BlockWriter(self._log, self._facts, self.events)
        return self._writer

    def _maybe_sync(self, now: float) -> None:
        if self._is_synced or now < self._sync_at or self._log is None:
            return
        self._sync_at = now + self._settings.sync_every_s
        if not self._place.is_there():
            raise LogGone(
                "the journal's folder was removed while it was being written; a new one is started"
            )
        self._log.sync()
        self._is_synced = True
        self._unchecked = 0

    # --- failures -------------------------------------------------------------------------------
    def _fail(self, error: StorageError, now: float) -> None:
        """Warn once per failure. A full log may have space later; after others it is reopened."""
        if not self.failure:
            logger.warning("cannot write the journal: %s", error)
        self.failure = str(error)
        self._try_at = now + self._settings.retry_every_s
        if not isinstance(error, LogFull):
            self._count_lost_rows()
            self._close_log()

    def _count_lost_rows(self) -> None:
        """Count the rows of a removed file, whichever operation has detected that."""
        if self._log is not None and not self._place.is_there():
            self._lost += self._unchecked
            self._unchecked = 0

    def _recover(self) -> None:
        if self.failure:
            self.failure = ""
            logger.warning(
                "the journal can be written again; %d rows were dropped so far", self.dropped
            )

    def _drop_backlog(self) -> None:
        self._lost += self.backlog
        self._pressed, self._spans, self._event_rows = [], [], []

    def _close_log(self) -> None:
        log, self._log, self._writer = self._log, None, None
        try:
            if log is not None:
                log.close()
        except StorageError as error:
            logger.warning("cannot close the journal's log: %s", error)
