"""`requite spark watch`: print alerts while journals are written."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from math import inf
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event
from typing import TYPE_CHECKING, Annotated, Any, Final

from cyclopts import Parameter, validators

from requite.cli.exit_codes import ExitCode
from requite.cli.options import OUTPUT, JournalPlace, JsonFlag
from requite.cli.output import say, say_json
from requite.cli.spark.options import USUAL, SparkOptions
from requite.journal.folder import find_logs
from requite.storage.place import place_of

if TYPE_CHECKING:
    from types import FrameType

    from requite.spark.watch.watching import Alert

_CHECKPOINT: Final = "_checkpoint"


def watch(
    *,
    journal: JournalPlace,
    to: Annotated[
        Path | None,
        Parameter(
            group=OUTPUT,
            metavar="DIR",
            help="Append alerts to the table `alerts` in DIR, and resume there after a restart.",
        ),
    ] = None,
    for_: Annotated[
        float | None,
        Parameter(
            name="--for",
            metavar="SECONDS",
            validator=validators.Number(gt=0),
            help="Stop after this time. [default: run until Ctrl-C]",
        ),
    ] = None,
    spark: SparkOptions = USUAL,
    as_json: JsonFlag = False,
) -> int:
    """Print an alert within seconds of a missed deadline.

    Follows the journal, and prints a line for each request that did not end in
    time, ended more than once, was accepted twice, or was handled without being
    accepted. ENDED_LATE revokes a MISSED_DEADLINE: the request ended in time, but
    its event was read late. Alerts are not a proof; `requite spark run` is.

    With --json each alert is an object on its own line. The last line is an
    object: alerts (their number). Exit code 1: there were alerts.

      $ requite spark watch --journal journal
    """
    folder = place_of(journal, "a journal is read from")
    find_logs(folder)  # raises for a folder without a journal
    from requite.spark import register
    from requite.spark.watch.watching import Watching

    printer = _Printer(as_json)
    with (
        spark.session("requite spark watch") as session,
        _checkpoint(to) as checkpoint,
        _interruption() as interrupted,
    ):
        register(session)
        events = session.readStream.format("requite").load(folder)
        watching = Watching(events, printer.show, checkpoint=checkpoint, to=to)
        if not as_json:
            say(f"watching {journal}; Ctrl-C stops it")
        try:
            watching.wait(interrupted, inf if for_ is None else for_)
        finally:
            watching.stop()
    if as_json:
        say_json({"alerts": printer.count})
    return ExitCode.FAILED if printer.count else ExitCode.OK


class _Printer:
    """Prints and counts alerts."""

    def __init__(self, as_json: bool) -> None:
        self.count = 0
        self._as_json = as_json

    def show(self, alerts: Sequence[Alert]) -> None:
        for alert in alerts:
            self.count += 1
            if self._as_json:
                say_json(_record(alert))
            else:
                say(_line(alert))


def _record(alert: Alert) -> dict[str, Any]:
    times = {name: _text(alert[name]) for name in ("deadline", "noticed_at")}
    return {**alert, **times, "evidence": json.loads(alert["evidence"])}


def _text(instant: datetime | None) -> str | None:
    return None if instant is None else f"{instant:%Y-%m-%dT%H:%M:%S.%fZ}"


def _line(alert: Alert) -> str:
    last = _last_event(json.loads(alert["evidence"]))
    name = f"{alert['kind']} {alert['service'] or '-'} {alert['request_id']}"
    return f"{alert['noticed_at']:%H:%M:%SZ} {name}: {last}"


def _last_event(evidence: list[dict[str, Any]]) -> str:
    """Describe the newest event of the request."""
    event = evidence[-1]
    by = f", worker {event['worker']}" if "worker" in event else ""
    outcome = f" {event['outcome']}" if "outcome" in event else ""
    return f"last event {event['ts'][11:23]} of {event['log']}: {event['kind']}{outcome}{by}"


@contextmanager
def _checkpoint(to: Path | None) -> Iterator[Path]:
    """Yield the checkpoint folder: in `to`, or temporary if alerts are not stored."""
    if to is not None:
        yield to / _CHECKPOINT
        return
    with TemporaryDirectory(prefix="requite-watch-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


@contextmanager
def _interruption() -> Iterator[Event]:
    """Yield an event that the first Ctrl-C sets; Spark's own handler would abort the batch."""
    event = Event()
    before = signal.getsignal(signal.SIGINT)

    def interrupt(number: int, frame: FrameType | None) -> None:
        event.set()
        signal.signal(signal.SIGINT, before)

    signal.signal(signal.SIGINT, interrupt)
    try:
        yield event
    finally:
        signal.signal(signal.SIGINT, before)
