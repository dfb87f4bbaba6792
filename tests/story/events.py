"""Events of example requests, for the tests of stories."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from tests.spark import events as rows

from requite.chronicle import WriterRole
from requite.journal.event import Event
from requite.journal.folder import LogFolder
from requite.journal.search import Findings, LogCover


def findings_of(
    builder: rows.EventBuilder, now: datetime | None = None, behind: Iterable[str] = ()
) -> Findings:
    """Return the events of a builder as a search finds them; `behind` are logs that are copies."""
    found = sorted(
        (Event(**event) for event in builder.events),
        key=lambda event: (event.ts, event.log, event.seq),
    )
    logs = []
    for name in dict.fromkeys(event.log for event in found):
        times = [event.ts for event in found if event.log == name]
        role, _, digits = name.partition("-")
        log = LogFolder(name, WriterRole[role.upper()], digits)
        logs.append(LogCover(log, min(times), max(times), 1, is_behind=name in behind))
    if now is not None:
        clock = LogFolder("broker-ffffffffffffffff", WriterRole.BROKER, "f" * 16)
        logs.append(LogCover(clock, now, now, 1))
    return Findings(found, logs, [])
