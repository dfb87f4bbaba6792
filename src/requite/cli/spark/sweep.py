"""`requite spark sweep`: run seeds of the simulator in parallel on Spark."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from cyclopts import Parameter, validators

from requite.cli.exit_codes import ExitCode
from requite.cli.options import OUTPUT, JsonFlag
from requite.cli.output import say, say_json, stderr_console
from requite.cli.spark.options import USUAL, SparkOptions

if TYPE_CHECKING:
    from pyspark.sql import Row

    from requite.spark.sweep.runs import Total

_FRESH_SEEDS: Final = 1 << 31
_SEEDS_DEFAULT: Final = 1000
_SHOWN_MAX: Final = 20  # seeds; --to stores all
_POSITIVE: Final = validators.Number(gt=0)


def sweep(
    *,
    seeds: Annotated[
        int, Parameter(metavar="N", validator=_POSITIVE, help="How many seeds to run.")
    ] = _SEEDS_DEFAULT,
    first_seed: Annotated[
        int | None,
        Parameter(
            metavar="K",
            validator=validators.Number(gte=0),
            help="The first seed. [default: random]",
        ),
    ] = None,
    scenario: Annotated[
        list[str] | None,
        Parameter(
            metavar="NAME",
            negative_iterable="",
            consume_multiple=True,
            help="Scenarios of faults to simulate, in turn; `all` for all. [default: swarm]",
        ),
    ] = None,
    seed_timeout: Annotated[
        float,
        Parameter(
            metavar="SECONDS",
            validator=_POSITIVE,
            help="Stop a seed that takes longer, and count it as HUNG.",
        ),
    ] = 60.0,
    to: Annotated[
        Path | None,
        Parameter(
            group=OUTPUT,
            metavar="DIR",
            help="Append the results to the tables sim_runs and sim_violations in DIR (Parquet).",
        ),
    ] = None,
    spark: SparkOptions = USUAL,
    as_json: JsonFlag = False,
) -> int:
    """Run seeds of the simulator in parallel on Spark.

    The runs are those of `requite sim`, distributed over all cores, and over all
    machines of a cluster. The sweep reports a seed that hangs or crashes its
    process, and continues.

    For each failed seed it prints the violations, and the command that replays
    it. With --json the last line is an object: seeds, ok, violated, hung, crashed,
    violations, seconds. Exit code 1: a seed failed.

      $ requite spark sweep --seeds 10000 --scenario all --to sweeps
    """
    from requite.sim.kernel.sandboxed import Limits
    from requite.spark.sweep.runs import find_scenarios
    from requite.spark.sweep.runs import sweep as run_sweep

    first = secrets.randbelow(_FRESH_SEEDS) if first_seed is None else first_seed
    named = scenario or ["swarm"]
    scenarios = find_scenarios(named)
    say(f"{seeds} seeds, from {first}, of {', '.join(named)}")
    with spark.session("requite spark sweep") as session, _report(seeds) as on_wave:
        total = run_sweep(
            session,
            first_seed=first,
            seeds=seeds,
            scenarios=scenarios,
            to=to,
            limits=Limits(run_s=seed_timeout),
            on_wave=on_wave,
        )
    say(_sentence(total))
    if as_json:
        say_json(total.record())
    return ExitCode.OK if total.is_clean else ExitCode.FAILED


@contextmanager
def _report(seeds: int) -> Iterator[Callable[[Sequence[Row]], None]]:
    """Yield the function to call with the results of each wave; it prints failures and progress."""
    shown = 0

    def show(rows: Sequence[Row]) -> None:
        nonlocal shown
        bad = [row for row in rows if row.status != "OK"]
        for row in bad[: _SHOWN_MAX - shown]:
            _show(row)
        if bad and shown < _SHOWN_MAX <= shown + len(bad):
            say("further failed seeds are not printed; --to DIR stores all")
        shown = min(_SHOWN_MAX, shown + len(bad))
        advance(len(rows))

    with _progress(seeds) as advance:
        yield show


def _show(row: Row) -> None:
    say(f"\nseed {row.seed} of {row.scenario}: {row.status}")
    for violation in row.violations:
        say(f"  {violation.invariant} {violation.detail}")
    for line in (row.error or "").splitlines():
        say(f"  {line}")
    say(f"replay: {row.replay}")


@contextmanager
def _progress(seeds: int) -> Iterator[Callable[[int], None]]:
    """Show a progress bar on a terminal; yield the function that adds a number of seeds."""
    from rich.progress import MofNCompleteColumn, Progress, TimeRemainingColumn

    console = stderr_console()
    columns = (*Progress.get_default_columns()[:2], MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        yield partial(progress.advance, progress.add_task("seeds", total=seeds))


def _sentence(total: Total) -> str:
    ends = [f"{count:,} {name}" for name, count in sorted(total.outcomes.items())]
    found = f"{total.violations:,} violations" if total.violations else "no violation"
    return f"{total.runs:,} seeds in {total.seconds:,.0f} s: {', '.join(ends)}; {found}"
