"""`requite spark run`: the pipeline over journals, and the audit's verdict."""

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
        Parameter(metavar="FILE", group=OUTPUT, help="Write the report there, as one HTML file."),
    ] = None,
    as_of: Annotated[
        str | None,
        Parameter(
            metavar="TIME",
            help="Judge as of then (ISO 8601, UTC, or `now`); without, of the newest event.",
        ),
    ] = None,
    spark: SparkOptions = USUAL,
    as_json: JsonFlag = False,
) -> int:
    """Prove from journals that every accepted request ended exactly once.

    Reads what is new in the journals into the lake, brings its tables up to date
    and judges each request. A second run processes only what has come since, a
    run that was interrupted is simply repeated.

    With --json the last line is an object: audit (accepted, exactly_one, missing,
    duplicate, in_flight, orphan, accepted_twice, dropped_events, damaged), ok,
    complete, faults (what is missing in the journal, by name), and what the run did.
    Exit code 1: there were violations or contradictions, or the journal is incomplete.

      $ requite spark run --journal journal --lake lake --report report.html
    """
    judged_at = _instant(as_of)
    # Refuses at once what is no journal; Spark takes seconds to start.
    find_logs(journal)
    from requite.spark.marker import require_reachable

    require_reachable(place_of(lake, "a lake is kept in"))
    from requite.spark import runner  # loads Spark
    from requite.spark.session import ONCE

    with spark.session("requite spark run", ONCE) as session, _progress() as tell:
        summary = runner.run(
            session, journal, lake, report=report, as_of=judged_at, on_progress=tell
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
            f"--as-of: {text!r} is no time; write it like 2026-03-02T12:00:00Z, or `now`"
        ) from None
    aware = instant if instant.tzinfo else instant.replace(tzinfo=UTC)
    if aware < _EARLIEST:
        raise ConfigurationError(f"--as-of: no journal tells of {text}: give a time since 1970")
    return aware


@contextmanager
def _progress() -> Iterator[OnProgress]:
    """Show on stderr which step is under way; in a pipe, each step when it is done."""
    console = stderr_console()
    with console.status("starting Spark") as status:

        def tell(progress: Progress) -> None:
            name = progress.step.replace("_", " ")
            if progress.rows is None:
                status.update(name)
            else:
                console.print(f"[dim]{name:<24}[/dim]{progress.rows:>12,}")

        yield tell


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
        yield "the journal is empty: there is nothing to judge"
    if summary.quarantined:
        yield f"{summary.quarantined:,} rows did not decode; the table bronze_quarantine has them"
    if summary.clock_went_back:
        yield f"a clock went back during {summary.clock_went_back:,} requests: 0 stands for it"
    if summary.audit.violations:
        yield "the table audit_verdicts has the evidence: the events of each such request"
    if summary.audit.contradictions:
        yield "the table audit_contradictions has the evidence: who tells what of the same request"
    if summary.report is not None:
        yield f"report: {summary.report}"
