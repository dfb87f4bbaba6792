"""`requite spark watch`: print alerts while journals are written."""

from __future__ import annotations

import json
import signal
from collections import Counter
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
from requite.cli.monitored import run_monitored
from requite.cli.options import OUTPUT, JournalPlace, JsonFlag
from requite.cli.output import say, say_json
from requite.cli.spark.options import USUAL, SparkOptions
from requite.cli.watching import UNWATCHED, Watching
from requite.journal.folder import find_logs
from requite.shell import clock
from requite.storage.place import place_of

if TYPE_CHECKING:
    from types import FrameType

    from requite.metrics.families import Family
    from requite.metrics.monitor import Watched
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
    watching: Watching = UNWATCHED,
    as_json: JsonFlag = False,
) -> int:
    """Print an alert within seconds of a missed deadline.

    Follows the journal, and prints a line for each request that did not end in
    time, ended more than once, was accepted twice, or was handled without being
    accepted. ENDED_LATE revokes a MISSED_DEADLINE: the request ended in time, but
    its event was read late. Alerts are not a proof; `requite spark run` is.
    --http shows metrics, such as the time since the last batch.

    With --json each alert is an object on its own line. The last line is an
    object: alerts (their number). Exit code 1: there were alerts.

      $ requite spark watch --journal journal
    """
    folder = place_of(journal, "a journal is read from")
    find_logs(folder)  # raises for a folder without a journal
    audit = _Audit(as_json)
    monitor = watching.monitor("spark watch", lambda: _watched(audit))

    def run() -> None:
        from requite.spark import register
        from requite.spark.watch.watching import Watching as Query

        with (
            spark.session("requite spark watch") as session,
            _checkpoint(to) as checkpoint,
            _interruption() as interrupted,
        ):
            register(session)
            events = session.readStream.format("requite").load(folder)
            on_batch = None if monitor is None else audit.count
            query = Query(events, audit.show, checkpoint=checkpoint, to=to, on_batch=on_batch)
            if not as_json:
                say(f"watching {journal}; Ctrl-C stops it")
            try:
                query.wait(interrupted, inf if for_ is None else for_)
            finally:
                if monitor is not None:
                    monitor.draining()
                query.stop()

    if not run_monitored(monitor, run, as_json=as_json):
        return ExitCode.CANNOT_LISTEN
    count = audit.alerts.total()
    if as_json:
        say_json({"alerts": count})
    return ExitCode.FAILED if count else ExitCode.OK


class _Audit:
    """Prints and counts alerts, and counts batches. The monitor reads it in its thread."""

    def __init__(self, as_json: bool) -> None:
        self._as_json: Final = as_json
        self._batch_at = clock.now()
        self.alerts: Final[Counter[str]] = Counter()
        self.batches = 0
        self.rows = 0

    @property
    def since_batch_s(self) -> float:
        """Time since the last batch, or since the start."""
        return clock.now() - self._batch_at

    @property
    def trouble(self) -> str:
        """See `Watched.trouble`."""
        return "" if self.batches else "the first batch has not ended"

    def count(self, rows: int) -> None:
        """Count a batch."""
        self._batch_at = clock.now()
        self.batches += 1
        self.rows += rows

    def show(self, alerts: Sequence[Alert]) -> None:
        """Print alerts, and count them."""
        for alert in alerts:
            self.alerts[alert["kind"]] += 1
            if self._as_json:
                say_json(_record(alert))
            else:
                say(_line(alert))


def _watched(audit: _Audit) -> Watched:
    from requite.metrics.servers import of_watch
    from requite.metrics.watched import WatchedServer

    def read() -> list[Family]:
        from requite.spark.watch.watched_request import Alert as Kind  # after Spark itself

        alerts = {kind.value: audit.alerts[kind.value] for kind in Kind}
        return of_watch(audit.batches, audit.rows, audit.since_batch_s, alerts)

    return WatchedServer(audit, read)


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
