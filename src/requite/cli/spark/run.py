"""`requite spark run`: run the pipeline over journals, and print the result of the audit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from cyclopts import Parameter

from requite.cli.exit_codes import ExitCode
from requite.cli.options import OUTPUT, JournalPlace, JsonFlag, LakePlace
from requite.cli.output import say, say_json, stderr_console, stdout_console
from requite.cli.spark.options import USUAL, SparkOptions
from requite.errors import ConfigurationError
from requite.journal.folder import find_logs
from requite.storage.place import place_of

if TYPE_CHECKING:
    from requite.spark.audit import Summary
    from requite.spark.refresh import OnProgress, Progress
    from requite.spark.runner import RunSummary

_NOW: Final = "now"
_EARLIEST: Final = datetime(1970, 1, 1, tzinfo=UTC)


def run(
    *,
    journal: JournalPlace,
    lake: LakePlace,
    report: Annotated[
        Path | None,
        Parameter(metavar="FILE", group=OUTPUT, help="Write a report to this file (HTML)."),
    ] = None,
    as_of: Annotated[
        str | None,
        Parameter(
            metavar="TIME",
            help="Audit as of this time (ISO 8601, UTC), or `now`. [default: the time of the "
            "newest event]",
        ),
    ] = None,
    spark: SparkOptions = USUAL,
    as_json: JsonFlag = False,
) -> int:
    """Prove from journals that every accepted request ended exactly once.

    Reads new events of the journals into the lake, updates its tables, and audits
    each request. The next run processes only events written since. After an
    interrupted run, run it again.

    With --json the last line is an object: audit (accepted, exactly_one, missing,
    duplicate, in_flight, orphan, accepted_twice, dropped_events, damaged), ok,
    complete, faults (gaps of the journal, by name), and figures of the run. Exit
    code 1: there were violations or contradictions, or the journal is incomplete.

      $ requite spark run --journal journal --lake lake --report report.html
    """
    judged_at = _instant(as_of)
    find_logs(journal)  # raises for a folder without a journal, before Spark starts (seconds)
    from requite.spark.marker import require_reachable

    require_reachable(place_of(lake, "a lake is stored in"))
    from requite.spark import runner  # loads Spark
    from requite.spark.session import ONCE

    with spark.session("requite spark run", ONCE) as session, _progress() as on_progress:
        summary = runner.run(
            session, journal, lake, report=report, as_of=judged_at, on_progress=on_progress
        )
    _show(summary)
    if as_json:
        say_json(summary.record())
    return ExitCode.OK if summary.audit.ok and summary.audit.complete else ExitCode.FAILED


def _instant(text: str | None) -> datetime | None:
    if text is None:
        return None
    if text == _NOW:
        return datetime.now(UTC)
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigurationError(
            f"--as-of: {text!r} is not a time; write 2026-03-02T12:00:00Z, or `now`"
        ) from None
    aware = instant if instant.tzinfo else instant.replace(tzinfo=UTC)
    if aware < _EARLIEST:
        raise ConfigurationError(f"--as-of: {text} is before 1970; journals have no earlier events")
    return aware


@contextmanager
def _progress() -> Iterator[OnProgress]:
    """Show the current step on stderr; in a pipe, print each step when it is done."""
    console = stderr_console()
    with console.status("starting Spark") as status:

        def show(progress: Progress) -> None:
            name = progress.step.replace("_", " ")
            if progress.rows is None:
                status.update(name)
            else:
                console.print(f"[dim]{name:<24}[/dim]{progress.rows:>12,}")

        yield show


def _show(summary: RunSummary) -> None:
    from rich.table import Table

    table = Table(title="Audit", title_justify="left")
    table.add_column("verdict")
    table.add_column("requests", justify="right")
    for name, count, is_bad in _verdicts(summary.audit):
        style = "bold red" if is_bad and count else None
        table.add_row(name, f"{count:,}", style=style)
    stdout_console().print(table)
    for line in _lines(summary):
        say(line)


def _verdicts(audit: Summary) -> list[tuple[str, int, bool]]:
    return [
        ("accepted", audit.accepted, False),
        ("ended exactly once", audit.exactly_one, False),
        ("in flight", audit.in_flight, False),
        ("undecided", audit.undecided, True),
        ("ended too late", audit.late, True),
        ("missing", audit.missing, True),
        ("ended more than once", audit.duplicate, True),
        ("ended, never accepted", audit.orphan, True),
        ("accepted twice", audit.accepted_twice, True),
        ("contradictions", audit.contradictions, True),
    ]


def _lines(summary: RunSummary) -> Iterator[str]:
    yield summary.audit.sentence()
    yield f"{summary.new_events:,} new events in {summary.seconds:.1f} s"
    if summary.as_of is None:
        yield "the journal is empty: nothing to audit"
    if summary.quarantined:
        rows = f"{summary.quarantined:,} rows"
        yield f"{rows} could not be decoded; they are in the table bronze_quarantine"
    if summary.clock_went_back:
        yield (
            f"a clock was set back during {summary.clock_went_back:,} requests; their duration"
            " counts as 0 s"
        )
    if summary.audit.violations:
        yield "evidence: the table audit_verdicts has the events of each such request"
    if summary.audit.contradictions:
        yield "evidence: the table audit_contradictions has the logs that disagree on a request"
    if summary.report is not None:
        yield f"report: {summary.report}"
