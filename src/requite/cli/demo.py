"""`requite demo`: watch requests get their replies while everything around them dies."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from cyclopts import Group, Parameter, validators

from requite.cli.exit_codes import ExitCode
from requite.cli.options import QUIET, JsonFlag, Logging
from requite.cli.output import complain, say_json, stdout_console
from requite.cli.show.names import PATTERNS, find_pattern
from requite.errors import ConfigurationError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from requite.cli.show.audit import Archive, Outcome
    from requite.cli.show.pattern import Plot
    from requite.cli.show.tally import Verdict

_FAULTS: Final = Group("Faults", sort_key=10)
_AT_LEAST_ONE: Final = validators.Number(gte=1)
_AUDIT: Final = Group("Audit", sort_key=20)
_NOT_NEGATIVE: Final = validators.Number(gte=0)
_AUDITED: Final = "majordomo"


def _known_pattern(_kind: object, name: str) -> None:
    find_pattern(name)


def demo(
    *,
    pattern: Annotated[
        str,
        Parameter(
            metavar="NAME",
            validator=_known_pattern,
            help=f"What to show: {', '.join(PATTERNS)}; a part such as `paranoid` or `freelance` "
            "(its agent) will do.",
        ),
    ] = _AUDITED,
    requests: Annotated[
        int | None,
        Parameter(
            metavar="N",
            validator=_AT_LEAST_ONE,
            help="How many requests; by default one per airport.",
        ),
    ] = None,
    workers: Annotated[
        int,
        Parameter(
            metavar="N",
            validator=validators.Number(gte=2),
            help="Processes that do the work; a Lazy Pirate has one.",
        ),
    ] = 4,
    clients: Annotated[
        int,
        Parameter(metavar="N", validator=_AT_LEAST_ONE, help="Clients, a connection each."),
    ] = 2,
    concurrency: Annotated[
        int,
        Parameter(metavar="N", validator=_AT_LEAST_ONE, help="Calls outstanding per client."),
    ] = 64,
    worker_kills: Annotated[
        int,
        Parameter(metavar="N", validator=_NOT_NEGATIVE, group=_FAULTS, help="SIGKILLs of those."),
    ] = 6,
    broker_kills: Annotated[
        int,
        Parameter(
            metavar="N",
            validator=_NOT_NEGATIVE,
            group=_FAULTS,
            help="SIGKILLs of what stands in between, where something does.",
        ),
    ] = 2,
    stops: Annotated[
        int,
        Parameter(
            metavar="N",
            validator=_NOT_NEGATIVE,
            group=_FAULTS,
            help="SIGSTOPs of a worker that last until it is given up.",
        ),
    ] = 1,
    no_audit: Annotated[
        bool,
        Parameter(
            show_default=False, group=_AUDIT, help="Keep no journal, and leave the audit out."
        ),
    ] = False,
    keep: Annotated[
        Path | None,
        Parameter(
            metavar="DIR",
            group=_AUDIT,
            help="Keep journal, lake and report in DIR; without, only the report is left.",
        ),
    ] = None,
    as_json: JsonFlag = False,
    logging: Logging = QUIET,
) -> int:
    """Watch requests get their replies while everything around them dies.

    Starts a broker and workers, and asks them for the nearest neighbours of each
    of the world's 28,000 airports. Meanwhile it kills workers, freezes one until
    it counts as lost, and kills and restarts the broker. Then it compares every
    answer with a direct computation of its own. At last Spark reads the journals
    that everybody kept, proves from them alone that each request ended exactly
    once, and writes a report.

    With --pattern it shows another pattern of reliable request-reply in the same
    way, without the audit: who serves, who stands in between, and what is killed
    is that pattern's.

    Exit code 0 means that every request was answered exactly once and correctly,
    and that the audit found the same. With --json the last line is an object:
    requests, answered, correct, lost, duplicated, retries, worker_kills,
    broker_kills, requests_per_s, p50_ms, p99_ms, audit (accepted, exactly_one,
    missing, duplicate, in_flight; null with --no-audit). Needs airportsdata
    (extra `demo`), for the audit also Spark (extras `spark` and `report`).
    """
    import asyncio

    from requite.cli.show.audit import Archive, require_spark
    from requite.cli.show.pattern import Plot
    from requite.cli.show.processes import ShowFailed

    logging.start()
    pattern = find_pattern(pattern)
    if keep and no_audit:
        raise ConfigurationError("--keep: with --no-audit there is nothing to keep")
    if keep and pattern != _AUDITED:
        raise ConfigurationError(f"--keep: only the pattern {_AUDITED} keeps journals")
    plot = Plot(pattern, requests, workers, clients, concurrency, worker_kills, broker_kills, stops)
    no_audit = no_audit or pattern != _AUDITED
    if not no_audit:
        require_spark()
    archive = None if no_audit else Archive(keep)
    try:
        verdict, outcome = _show(plot, archive)
    except asyncio.CancelledError:
        return ExitCode.STOPPED
    except ShowFailed as error:
        complain(str(error))
        return ExitCode.FAILED
    finally:
        if archive is not None:
            archive.clear()
    if as_json:
        say_json({**asdict(verdict), "audit": outcome and outcome.record()})
    is_good = verdict.is_good and (outcome is None or outcome.agrees_with(verdict))
    return ExitCode.OK if is_good else ExitCode.FAILED


def _show(plot: Plot, archive: Archive | None) -> tuple[Verdict, Outcome | None]:
    """Let the show run, then the audit; print what comes of each."""
    from requite.cli.show.audit import Auditor
    from requite.cli.show.play import play

    if archive is None:
        verdict = play(plot)
        stdout_console().print(_report(verdict))
        return verdict, None
    with Auditor(archive) as auditor:
        verdict = play(replace(plot, journal=archive.journal))
        stdout_console().print(_report(verdict))
        outcome = auditor.audit()
        stdout_console().print(_findings(outcome, verdict))
        return verdict, outcome


_LABELS: Final = {
    "requests": "requests made",
    "answered": "answered",
    "correct": "answered correctly",
    "lost": "lost",
    "duplicated": "duplicated",
    "retries": "sent or delivered again",
    "worker_kills": "workers killed",
    "broker_kills": "brokers killed",
    "requests_per_s": "requests per second",
    "p50_ms": "median latency, ms",
    "p99_ms": "99th percentile, ms",
}


_WRONG: Final = {
    "missing": "never ended",
    "duplicate": "ended more than once",
    "in_flight": "under way",
    "orphan": "ended without being accepted",
    "accepted_twice": "accepted twice",
    "dropped_events": "events were dropped by the journal",
    "damaged": "rows of the journal are damaged",
}


def _report(verdict: Verdict) -> RenderableType:
    from rich.console import Group
    from rich.table import Table

    table = Table.grid(padding=(0, 2))
    table.add_column()
    table.add_column(justify="right")
    for name, value in asdict(verdict).items():
        table.add_row(_LABELS[name], f"{value:,}")
    return Group("", table, "", _conclusion(verdict))


def _conclusion(verdict: Verdict) -> str:
    if verdict.is_good:
        return "[green]Every request was answered exactly once and correctly.[/]"
    wrong = verdict.answered - verdict.correct
    return (
        f"[red]{verdict.lost:,} requests were lost, {verdict.duplicated:,} answers came twice, "
        f"{wrong:,} are wrong.[/]"
    )


def _findings(outcome: Outcome, verdict: Verdict) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    counts = outcome.counts
    told = f"{counts['accepted']:,} accepted, {counts['exactly_one']:,} ended exactly once"
    wrong = [f"{n:,} {_WRONG[name]}" for name, n in counts.items() if n and name in _WRONG]
    agrees = outcome.agrees_with(verdict)
    style, conclusion = ("green", "agrees") if agrees else ("red", "DISAGREES")
    return Group(
        "",
        f"The audit read {outcome.events:,} events in {outcome.seconds:.1f} s: "
        f"{', '.join([told, *wrong])}.",
        Text(f"It {conclusion} with what was counted.", style=style),
        Text(f"Report: {outcome.report}"),
    )
