"""Journals for the tests of the data source, written by the classes of the journal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from requite.chronicle import EventRow, Kind, SpanRow, WriterRole
from requite.journal.blocks import PURPOSE
from requite.journal.folder import log_name
from requite.journal.meaning import ROLE_NAMES
from requite.journal.reader import events
from requite.journal.writer import BlockWriter
from requite.request import Status
from requite.storage import Log, LogSettings

NOON_US = 1_772_452_800_000_000  # 2026-03-02 12:00 UTC
FACTS = {"role": "made up"}
CLIENT = b"client-1"
WORKER = b"\x01worker\xff"


def call_id(number: int) -> bytes:
    return CLIENT + number.to_bytes(8, "big")


def span(number: int, at: float = 0.0, *, queued: bool = False) -> SpanRow:
    """Return the span of a call; its number is the size of its reply."""
    second = at + 0.25 if queued else at
    worker = WORKER if number % 3 else b"worker-2"
    return (at, second, second + 0.5, at + 5, call_id(number), b"echo", worker, 10, number)


def failure(number: int, at: float = 1.0) -> EventRow:
    """Return the event row of a call that failed."""
    return EventRow(
        at, Kind.ANSWERED, call_id(number), b"echo", WORKER, 2, Status.FAILED,
        "RemoteFailure", "out of stock", 7,
    )  # fmt: skip


class LogWriter:
    """Writes a log of a journal, block by block."""

    def __init__(
        self,
        journal: Path,
        role: WriterRole = WriterRole.BROKER,
        name: bytes = b"broker-1",
        *,
        segment_size: int = 1 << 20,
        nameless: bool = True,
        **settings: Any,
    ) -> None:
        self.path = journal / log_name(role, name)
        self.log = Log.open(
            self.path,
            purpose=PURPOSE,
            settings=LogSettings(segment_size_bytes=segment_size, sync=False, **settings),
        )
        facts = FACTS if nameless else {"role": ROLE_NAMES[role], "name": name.hex()}
        self.blocks = BlockWriter(self.log, facts)

    def __enter__(self) -> LogWriter:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.log.close()

    def spans(self, rows: Sequence[SpanRow], clock_offset_us: int = NOON_US) -> None:
        self.blocks.write_spans(list(rows), clock_offset_us)

    def event_rows(self, rows: Sequence[EventRow], clock_offset_us: int = NOON_US) -> None:
        self.blocks.write_event_rows(list(rows), clock_offset_us)

    def raw(self, payload: bytes) -> None:
        """Append a record that need not be a valid block."""
        self.log.append([payload])

    def segments(self) -> list[Path]:
        return sorted(self.path.glob("*.seg"))


def write_some(journal: Path, calls: int = 10, *, role: WriterRole = WriterRole.BROKER) -> Path:
    """Write and close a log; return its path.

    It has spans, half of them queued, a failure, and a count of dropped events.
    """
    with LogWriter(journal, role) as writer:
        writer.spans([span(number, number / 8, queued=number % 2 == 0) for number in range(calls)])
        writer.event_rows([failure(calls), EventRow(2.0, Kind.DROPPED, value=3.0)])
    return writer.path


Row = dict[str, Any]


def expected(journal: Path) -> list[Row]:
    """Return the rows of the pure Python reader, ordered by log, segment and offset."""
    return in_order(event._asdict() for event in events(journal))


def in_order(rows: Iterator[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (row["log"], row["segment"], row["byte_offset"]))
