"""The command line: `python -m bench --help`."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console

import bench
from bench.cells import FULL, QUICK, Cell
from bench.contenders import BASELINE, CONTENDERS, Contender
from bench.machine import facts
from bench.report import markdown, show, write_json, write_page
from bench.results import Results
from bench.runner import Run, Settings, run_all

DOCS = Path("docs/performance.md")
JSON = Path("build/bench.json")


def main() -> int:
    """Measure and report; return 1 if a contender failed or the run was interrupted."""
    arguments = parse(sys.argv[1:])
    console = Console()
    settings = Settings(
        runs=arguments.runs,
        seconds=arguments.seconds,
        requests=arguments.requests,
        warm_up_s=arguments.warm_up,
        capacity=arguments.capacity,
    )
    contenders, absent = choose(arguments.only, console)
    cells = [
        cell for cell in arguments.matrix if not arguments.cell or short(cell) in arguments.cell
    ]
    if not contenders or not cells:
        console.print("nothing to measure: see --only and --cell in --help")
        return 1
    results, complete = run(cells, contenders, settings, console)
    found = facts()
    show(console, results)
    console.print("; ".join(f"{what} {value}" for what, value in found.items()))
    write_json(arguments.json, results, found, asdict(settings))
    console.print(f"every run: {arguments.json}")
    if arguments.docs and complete:
        command = shlex.join(["python", "-m", "bench", *sys.argv[1:]])
        write_page(arguments.docs, markdown(results, found, describe(settings), command, absent))
        console.print(f"tables: {arguments.docs}")
    return 0 if complete and not results.failures() else 1


def run(
    cells: Sequence[Cell], contenders: Sequence[Contender], settings: Settings, console: Console
) -> tuple[Results, bool]:
    """Run all cells, and print progress; after Ctrl-C return the results so far."""
    results = Results()
    total = settings.runs * sum(each.kind == cell.kind for cell in cells for each in contenders)
    try:
        for number, done in enumerate(run_all(cells, contenders, settings), start=1):
            results.add(done)
            line = f"{number:4}/{total} {progress(done)}"
            console.print(line, markup=False, highlight=False, soft_wrap=True)
    except KeyboardInterrupt:
        console.print("interrupted: the tables show what was measured so far")
        return results, False
    return results, True


def progress(done: Run) -> str:
    """Return a line of text about a run."""
    what = f"{done.cell.kind:10} {done.cell!s:32} {done.contender.name:13}"
    if done.figures is None:
        return f"{what} failed: {done.failure}"
    rate, cost = done.figures["requests_per_s"], done.figures["broker_cpu_us"]
    return f"{what} {rate:9,.0f}/s  broker {cost:6.1f} µs/request"


def choose(only: Sequence[str], console: Console) -> tuple[list[Contender], dict[str, str]]:
    """Return the chosen contenders, and the missing ones with the reason; print the latter."""
    wanted = [each for each in CONTENDERS if not only or is_wanted(each, only)]
    absent = {f"{each.name}, {each.kind}": lack for each in wanted if (lack := each.lack())}
    for name, lack in absent.items():
        console.print(f"skipped: {name}: {lack}", markup=False, soft_wrap=True)
    return [each for each in wanted if not each.lack()], absent


def is_wanted(contender: Contender, only: Sequence[str]) -> bool:
    """Return whether `--only` names the contender, or one that is compared with it."""
    compared = {BASELINE[each.kind] for each in CONTENDERS if each.name in only}
    return contender.name in only or contender.name in compared


def short(cell: Cell) -> str:
    """Return a cell in the format of `--cell`."""
    return f"{cell.window}x{cell.workers}x{cell.body_size_bytes}"


def describe(settings: Settings) -> str:
    """Describe how the figures were measured."""
    return (
        f"medians of {settings.runs} interleaved runs of at least {settings.seconds:g} s "
        f"and, as far as three times that allows, {settings.requests:,} requests; "
        f"0.3 workers have a capacity of {settings.capacity}"
    )


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line; `--quick` sets the other options to a run of one minute."""
    names = list(dict.fromkeys(each.name for each in CONTENDERS))
    parser = argparse.ArgumentParser(prog="python -m bench", description=bench.__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--runs", type=int, help="rounds per cell (5)")
    parser.add_argument("--seconds", type=float, help="minimum measured time of a run (2)")
    parser.add_argument("--requests", type=int, help="requests per run (20000)")
    parser.add_argument("--warm-up", type=float, default=0.5, help="seconds of warm-up (0.5)")
    parser.add_argument(
        "--capacity", type=int, default=16, help="capacity of an MDP 0.3 worker (16)"
    )
    parser.add_argument(
        "--only",
        nargs="+",
        default=[],
        choices=names,
        metavar="NAME",
        help=f"some of: {', '.join(names)}; their baselines are added",
    )
    parser.add_argument(
        "--cell",
        nargs="+",
        default=[],
        choices=list(dict.fromkeys(map(short, FULL))),
        metavar="CELL",
        help="some cells: WINDOWxWORKERSxBYTES, such as 64x4x11",
    )
    parser.add_argument("--quick", action="store_true", help="few cells, one short run each")
    parser.add_argument("--json", type=Path, default=JSON, help=f"file for the runs ({JSON})")
    parser.add_argument(
        "--docs", type=Path, help=f"page to write the tables to ({DOCS}; with --quick: none)"
    )
    parser.add_argument("--no-docs", action="store_true", help="write no page")
    return with_defaults(parser.parse_args(arguments))


def with_defaults(given: argparse.Namespace) -> argparse.Namespace:
    """Set the defaults that depend on `--quick`, `--cell` and `--only`."""
    for name, quick, full in (("runs", 1, 5), ("seconds", 0.5, 2.0), ("requests", 2000, 20_000)):
        if getattr(given, name) is None:
            setattr(given, name, quick if given.quick else full)
    given.matrix = QUICK if given.quick and not given.cell else FULL
    whole = not (given.quick or given.only or given.cell or given.no_docs)
    given.docs = None if given.no_docs else given.docs or (DOCS if whole else None)
    return given


if __name__ == "__main__":
    sys.exit(main())
