"""The command line: `python -m bench --help`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console

import bench
from bench import builds, goals, page, quiet
from bench.cells import FULL, KINDS, QUICK, Cell
from bench.contenders import BASELINE, Contender, contenders, versions
from bench.machine import facts
from bench.quiet import Quiet
from bench.report import lead, sections, show, write_json
from bench.results import Results
from bench.runner import Run, Settings, run_all

JSON = Path("build/bench.json")
PACKAGES = ("pyzmq", "majortomo", "nats-py")


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
    measured = builds.all_of(arguments)
    chosen, absent = choose(contenders(measured), arguments.only, console)
    cells = [
        cell
        for cell in arguments.matrix
        if cell.kind in arguments.kind and short(cell) in (arguments.cell or [short(cell)])
    ]
    if not chosen or not cells:
        console.print("nothing to measure: see --only, --kind and --cell in --help")
        return 1
    calm = Quiet(arguments.busy)
    results, complete = run(cells, chosen, settings, calm, console)
    found = facts(measured, PACKAGES) | versions()
    show(console, results)
    console.print(page.sentence(found), calm.words())
    write_json(arguments.json, results, found, asdict(settings))
    console.print(f"every run: {arguments.json}")
    for failed in results.failures():
        console.print(f"{failed.contender.name}, {failed.cell}: {failed.failure}", markup=False)
    if not complete or results.failures():
        return 1
    if arguments.docs:
        command = builds.shown("bench", sys.argv[1:])
        how = lead(command, describe(settings), found, calm.words(), absent)
        for name, text in sections(results, how).items():
            page.write(arguments.docs, name, text, maker="bench")
        goals.write(arguments.docs, [row for kind in KINDS for row in results.goals(kind)])
        console.print(f"tables: {arguments.docs}")
    return 0


def run(
    cells: Sequence[Cell],
    contenders: Sequence[Contender],
    settings: Settings,
    calm: Quiet,
    console: Console,
) -> tuple[Results, bool]:
    """Run all cells, and print progress; after Ctrl-C return the results so far."""
    results = Results()
    total = settings.runs * sum(each.kind == cell.kind for cell in cells for each in contenders)
    try:
        for number, done in enumerate(run_all(cells, contenders, settings, calm), start=1):
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


def choose(
    everybody: Sequence[Contender], only: Sequence[str], console: Console
) -> tuple[list[Contender], dict[str, str]]:
    """Return the chosen contenders, and the missing ones with the reason; print the latter."""
    wanted = [each for each in everybody if not only or is_wanted(each, everybody, only)]
    absent = {f"{each.name}, {each.kind}": lack for each in wanted if (lack := each.lack())}
    for name, lack in absent.items():
        console.print(f"skipped: {name}: {lack}", markup=False, soft_wrap=True)
    return [each for each in wanted if not each.lack()], absent


def is_wanted(contender: Contender, everybody: Sequence[Contender], only: Sequence[str]) -> bool:
    """Return whether `--only` names the contender, or one that is compared with it."""
    compared = {BASELINE[each.kind] for each in everybody if each.name in only}
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
    names = list(dict.fromkeys(each.name for each in contenders(builds.KINDS)))
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
        "--kind", nargs="+", default=KINDS, choices=KINDS, help="some kinds of measurements (all)"
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
    parser.add_argument("--docs", type=Path, help="page to write the tables to")
    builds.add_option(parser)
    quiet.add_option(parser)
    return with_defaults(parser.parse_args(arguments))


def with_defaults(given: argparse.Namespace) -> argparse.Namespace:
    """Set the defaults that depend on `--quick`."""
    for name, quick, full in (("runs", 1, 5), ("seconds", 0.5, 2.0), ("requests", 2000, 20_000)):
        if getattr(given, name) is None:
            setattr(given, name, quick if given.quick else full)
    given.matrix = QUICK if given.quick and not given.cell else FULL
    return given


if __name__ == "__main__":
    sys.exit(main())
