"""`requite journal tail`: show the newest events, and follow new ones."""

from __future__ import annotations

import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Annotated, Final

from cyclopts import Parameter, validators

from requite.chronicle import Kind
from requite.cli.journal.lines import EventLines
from requite.cli.journal.options import Directory, end
from requite.cli.options import OUTPUT, QUIET, Logging
from requite.cli.output import say_json
from requite.errors import ConfigurationError
from requite.journal.event import Event
from requite.journal.meaning import KIND_NAMES
from requite.journal.reader import JournalTail, Selection, newest
from requite.storage.place import store_url

POLL_EVERY_S: Final = 0.1  # twice the time that a journal buffers rows
STORE_POLL_EVERY_S: Final = 5.0  # the interval at which journals are shipped

_LINES: Final = 20
_ID: Final = re.compile(r"[0-9a-f]{32}")


def tail(
    directory: Directory,
    /,
    *,
    lines: Annotated[
        int | None,
        Parameter(
            name=("--lines", "-n"),
            metavar="N",
            validator=validators.Number(gte=0),
            help=f"Number of events. [default: {_LINES}; with --request all]",
        ),
    ] = None,
    follow: Annotated[
        bool,
        Parameter(
            name=("--follow", "-f"),
            show_default=False,
            help="Continue with new events and logs until Ctrl-C.",
        ),
    ] = False,
    request: Annotated[
        str | None,
        Parameter(metavar="ID", help="Only events of this request."),
    ] = None,
    service: Annotated[str | None, Parameter(metavar="S", help="Only this service.")] = None,
    kind: Annotated[str | None, Parameter(metavar="K", help="Only this kind of event.")] = None,
    heartbeats: Annotated[
        bool,
        Parameter(
            show_default=False,
            help="Show heartbeat events as well: the brokers' records of their workers.",
        ),
    ] = False,
    as_json: Annotated[
        bool,
        Parameter(
            name="--json",
            show_default=False,
            group=OUTPUT,
            help="Print each event as a JSON object on its own line.",
        ),
    ] = False,
    logging: Logging = QUIET,
) -> int:
    """Show the newest events of a journal, and follow them.

    One line per event: time (UTC), writer, kind, request ID, service, and details.
    The journal may be in use. Events of one request at its client, broker and
    worker have the same ID.

    Exit code 1: some data could not be decoded; it is shown in its place.

      $ requite journal tail journal -f --service echo
      $ requite journal tail journal --request 37318fdeaa15e1b00000000000000007
    """
    logging.start()
    without = None if heartbeats or kind else KIND_NAMES[Kind.HEARTBEAT]
    selection = Selection(_request_id(request), service, _kind(kind), without)
    show = EventLines().show if not as_json else _say_json
    following = JournalTail(directory) if follow else None
    found = newest(directory, _count(lines, request), selection)
    flaws = _show(found, show)
    if following is None:
        return end(flaws)
    seen = {(event.log, event.segment, event.byte_offset) for event in found}
    pause_s = STORE_POLL_EVERY_S if store_url(directory, "a journal is read from") else POLL_EVERY_S
    try:
        while True:
            new = following.news(selection)
            flaws += _show(
                [each for each in new if (each.log, each.segment, each.byte_offset) not in seen],
                show,
            )
            seen.clear()  # only the first read can overlap with `found`
            time.sleep(pause_s)
    except KeyboardInterrupt:
        return end(flaws)


def _show(events: Iterable[Event], show: Callable[[Event], None]) -> Counter[str]:
    """Show events; count those that could not be decoded, by reason."""
    flaws: Counter[str] = Counter()
    for event in events:
        show(event)
        if event.raw is not None:
            flaws[event.reason or ""] += 1
    return flaws


def _say_json(event: Event) -> None:
    say_json(event.record())


def _count(lines: int | None, request: str | None) -> int:
    if lines is not None:
        return lines
    return _LINES if request is None else sys.maxsize


def _request_id(text: str | None) -> str | None:
    if text is None or _ID.fullmatch(text.lower()):
        return text and text.lower()
    raise ConfigurationError(
        f"--request: a request ID has 32 hexadecimal digits; `{text}` is not one"
    )


def _kind(text: str | None) -> str | None:
    if text is None or text.lower() in KIND_NAMES.values() or text.startswith("unknown:"):
        return text and text.lower()
    raise ConfigurationError(
        f"--kind: no kind `{text}`; the kinds are {', '.join(KIND_NAMES.values())}"
    )
