"""`requite demo`: watch requests get their replies while everything around them dies."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Final

from cyclopts import Group, Parameter, validators

from requite.cli.exit_codes import ExitCode
from requite.cli.options import QUIET, JsonFlag, Logging
from requite.cli.output import complain, say_json, stdout_console

if TYPE_CHECKING:
    from rich.console import RenderableType

    from requite.cli.show.tally import Verdict

_FAULTS: Final = Group("Faults", sort_key=10)
_AT_LEAST_ONE: Final = validators.Number(gte=1)
_NOT_NEGATIVE: Final = validators.Number(gte=0)


def demo(
    *,
    requests: Annotated[
        int | None,
        Parameter(
            metavar="N",
            validator=_AT_LEAST_ONE,
            help="How many requests; by default one per airport.",
        ),
    ] = None,
    workers: Annotated[
        int, Parameter(metavar="N", validator=validators.Number(gte=2), help="Worker processes.")
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
        Parameter(metavar="N", validator=_NOT_NEGATIVE, group=_FAULTS, help="SIGKILLs of workers."),
    ] = 6,
    broker_kills: Annotated[
        int,
        Parameter(
            metavar="N", validator=_NOT_NEGATIVE, group=_FAULTS, help="SIGKILLs of the broker."
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
    as_json: JsonFlag = False,
    logging: Logging = QUIET,
) -> int:
    """Watch requests get their replies while everything around them dies.

    Starts a broker and workers, and asks them for the nearest neighbours of each
    of the world's 28,000 airports. Meanwhile it kills workers, freezes one until
    it counts as lost, and kills and restarts the broker. Then it compares every
    answer with a direct computation of its own.

    Exit code 0 means that every request was answered exactly once and correctly.
    With --json the last line is an object: requests, answered, correct, lost,
    duplicated, retries, worker_kills, broker_kills, requests_per_s, p50_ms,
    p99_ms. Needs the package airportsdata (extra `demo`).
    """
    import asyncio

    from requite.cli.show.play import Plot, play
    from requite.cli.show.processes import ShowFailed

    logging.start()
    plot = Plot(requests, workers, clients, concurrency, worker_kills, broker_kills, stops)
    try:
        verdict = play(plot)
    except asyncio.CancelledError:
        return ExitCode.STOPPED
    except ShowFailed as error:
        complain(str(error))
        return ExitCode.FAILED
    stdout_console().print(_report(verdict))
    if as_json:
        say_json(asdict(verdict))
    return ExitCode.OK if verdict.is_good else ExitCode.FAILED


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
