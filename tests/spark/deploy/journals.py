"""A small journal of finished calls, and one call that never ended."""

from __future__ import annotations

import time
from math import inf
from pathlib import Path
from typing import Final

from requite.chronicle import EventRow, Kind, WriterRole
from requite.journal import Journal

ENDED: Final = 11
ACCEPTED: Final = ENDED + 1
LOST: Final = 99
_CLIENT: Final = b"client-1"


def call_id(number: int) -> bytes:
    """Return the id of a call, as engines write it."""
    return _CLIENT + number.to_bytes(8, "big")


def write_journal(folder: Path, name: bytes = b"broker-1", first: int = 0) -> None:
    """Write the log of a broker of the last ten seconds, with calls numbered from `first`."""
    now = time.monotonic() - 10.0
    with Journal(folder, WriterRole.BROKER, name) as journal:
        for number in range(ENDED - 1):
            _span(journal, first + number, now + number / 100, now + 5.0)
        lost = EventRow(now, Kind.ACCEPTED, call_id(first + LOST), b"echo", size=5, value=now + 1.0)
        journal.chronicle.event_rows.append(lost)
        _span(journal, first + ENDED, now + 8.0, inf)  # the lost call is overdue by then


def _span(journal: Journal, number: int, at: float, deadline: float) -> None:
    row = (at, at, at + 0.01, deadline, call_id(number), b"echo", b"worker-1", 5, 5)
    journal.chronicle.spans.append(row)
