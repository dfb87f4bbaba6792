"""Run a demo and its audit, print both results, and return the exit code."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Final

from requite.cli.exit_codes import ExitCode
from requite.cli.output import complain, say_json, stdout_console
from requite.cli.show.audit import Archive, Auditor, Outcome, require_spark
from requite.cli.show.demos import DEMOS
from requite.cli.show.options import Scale
from requite.cli.show.replies import Verdict
from requite.cli.show.run import run_demo
from requite.errors import ConfigurationError
from requite.testing.processes import ProcessFailed

if TYPE_CHECKING:
    from rich.console import RenderableType


def show(name: str, scale: Scale, *, as_json: bool) -> int:
    """Run a demo, then the audit; print the results, and return the exit code.

    Raises `ConfigurationError` if something is not installed, or `--keep` cannot be used.
    """
    archive = _archive(name, no_audit=scale.no_audit, keep=scale.keep)
    try:
        verdict, outcome = _run(name, scale, archive)
    except asyncio.CancelledError:
        return ExitCode.STOPPED
    except ProcessFailed as error:
        complain(str(error))
        return ExitCode.FAILED
    finally:
        if archive is not None:
            archive.clear()
    if as_json:
        say_json({**verdict.record(), "audit": outcome and outcome.record()})
    is_good = verdict.is_good and (outcome is None or outcome.agrees_with(verdict))
    return ExitCode.OK if is_good else ExitCode.FAILED


def _archive(name: str, *, no_audit: bool, keep: Path | None) -> Archive | None:
    """Return the folder for journals, or None without an audit. Checks what the demo needs."""
    if keep and no_audit:
        raise ConfigurationError(
            "--keep cannot be combined with --no-audit, which writes no journals"
        )
    demo = DEMOS[name]
    if keep and not demo.is_audited:
        audited = " and ".join(name for name, demo in DEMOS.items() if demo.is_audited)
        raise ConfigurationError(f"--keep: only the patterns {audited} write journals")
    is_audited = demo.is_audited and not no_audit
    if is_audited:
        require_spark()
    demo.run.require()
    return Archive(keep) if is_audited else None


def _run(name: str, scale: Scale, archive: Archive | None) -> tuple[Verdict, Outcome | None]:
    """Run the demo, then the audit; print both results."""
    demo = DEMOS[name]
    if archive is None:
        verdict = run_demo(demo.run(demo, scale, None))
        stdout_console().print(_report(verdict))
        return verdict, None
    with Auditor(archive) as auditor:
        verdict = run_demo(demo.run(demo, scale, archive.journal))
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
    "retries": "retried or redelivered",
    "worker_kills": "workers killed",
    "broker_kills": "brokers killed",
    "manager_kills": "managers killed",
    "requests_per_s": "requests per second",
    "p50_ms": "median latency, ms",
    "p99_ms": "99th percentile, ms",
}


_WRONG: Final = {
    "late": "ended too late",
    "missing": "never ended",
    "duplicate": "ended more than once",
    "in_flight": "under way",
    "orphan": "ended without being accepted",
    "accepted_twice": "accepted twice",
    "contradictions": "contradictions between journals",
    "undecided": "cannot be judged",
    "one_sided": "seen from one side",
    "dropped_events": "events were dropped by the journal",
    "damaged": "rows of the journal are damaged",
}


def _report(verdict: Verdict) -> RenderableType:
    from rich.console import Group
    from rich.table import Table

    table = Table.grid(padding=(0, 2))
    table.add_column()
    table.add_column(justify="right")
    for name, value in verdict.record().items():
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
    settled = f"{counts['accepted']:,} accepted, {counts['exactly_one']:,} ended exactly once"
    wrong = [f"{n:,} {_WRONG[name]}" for name, n in counts.items() if n and name in _WRONG]
    agrees = outcome.agrees_with(verdict)
    style, conclusion = ("green", "agrees") if agrees else ("red", "DISAGREES")
    return Group(
        "",
        f"The audit read {outcome.events:,} events in {outcome.seconds:.1f} s: "
        f"{', '.join([settled, *wrong])}.",
        Text(f"It {conclusion} with what was counted.", style=style),
        Text(f"Report: {outcome.report}"),
    )
