"""One event as one line of text.

    13:22:58.123  broker 3731  answered  37318fdeaa15e1b00000000000000007  echo  OK, 20 B

On a terminal lines have colours and are cut at its width; in a pipe they are complete.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import date
from typing import Final

from rich.text import Text

from requite.cli.output import stdout_console
from requite.journal.event import Event
from requite.story.words import size

_KIND_WIDTH: Final = 11
_ORIGIN_WIDTH: Final = 16
_NAME_WIDTH: Final = 8  # of workers
_LOG_WIDTH: Final = 4

_STYLES: Final = {
    "accepted": "cyan",
    "delivered": "cyan",
    "expired": "yellow",
    "cancelled": "yellow",
    "redelivered": "yellow",
    "refused": "yellow",
    "abandoned": "yellow",
    "worker_lost": "yellow",
    "dropped": "bold red",
    "heartbeat": "dim",
}
_ENDS: Final = ("answered", "finished")


class EventLines:
    """Prints events on stdout, under a line with their date."""

    def __init__(self) -> None:
        self._console = stdout_console()
        self._cut = sys.stdout.isatty()
        self._date: date | None = None

    def show(self, event: Event) -> None:
        """Print an event."""
        if event.date is not None and event.date != self._date:
            self._date = event.date
            self._print(Text(f"{event.date.isoformat()} UTC", "dim"))
        self._print(line_of(event))

    def _print(self, line: Text) -> None:
        if self._cut:
            self._console.print(line, no_wrap=True, overflow="ellipsis", crop=True)
        else:
            self._console.print(line, soft_wrap=True)


def line_of(event: Event) -> Text:
    """Return an event as a line."""
    time = event.ts.strftime("%H:%M:%S.%f")[:-3] if event.ts else "--:--:--.---"
    where = f"{event.role} {event.log.rpartition('-')[2][:_LOG_WIDTH]}"
    kind = (event.kind or "?").replace("_", " ")
    line = Text.assemble(
        (f"{time}  ", "dim"), f"{where:<11}  ", (f"{kind:<{_KIND_WIDTH}}  ", _style(event))
    )
    if event.request_id is not None:
        line.append_text(_id(event.request_id)).append("  ")
    words = (event.service, ", ".join(_details(event)))
    line.append("  ".join(filter(None, words)))
    line.rstrip()
    return line


def _style(event: Event) -> str:
    if event.raw is not None:
        return "bold red"
    if event.kind in _ENDS:
        return "green" if event.outcome == "OK" else "red"
    return _STYLES.get(event.kind or "", "")


def _id(request_id: str) -> Text:
    """Return an ID with the digits that differ between requests brighter than the others."""
    number = request_id[_ORIGIN_WIDTH:]
    zeros = len(number) - len(number.lstrip("0"))
    dim = request_id[: _ORIGIN_WIDTH + zeros]
    return Text.assemble((dim, "dim"), number[zeros:])


def _details(event: Event) -> Iterator[str]:
    """Yield further details of an event, the most important first."""
    if event.raw is not None:
        yield f"not decoded, {event.segment}:{event.byte_offset}, {len(event.raw)} bytes"
    if event.dropped is not None:
        yield f"{event.dropped:,} rows lost"
    if event.outcome is not None:
        yield event.outcome
    if event.error_class is not None:
        yield event.error_class
    if event.reason is not None:
        yield event.reason
    if event.attempt is not None and event.attempt > 1:
        yield f"attempt {event.attempt}"
    if event.bytes is not None and event.error_class is None:  # an error has no body
        yield size(event.bytes)
    if event.deadline is not None and event.ts is not None:
        yield f"due in {(event.deadline - event.ts).total_seconds():.1f} s"
    if event.worker is not None and event.role != "worker":
        yield f"worker {event.worker[:_NAME_WIDTH]}"
    if event.capacity:
        yield f"busy {event.busy}/{event.capacity}"
    if event.gap_s is not None:
        yield f"heard {event.gap_s:.1f} s ago"
