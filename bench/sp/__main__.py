"""The command line: `python -m bench.sp --help`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

import bench.sp
from bench import builds, goals, machine, page, quiet
from bench.builds import Build
from bench.quiet import Quiet
from bench.sp import native
from bench.sp.cells import SECTIONS, SIZES, Cell, Line
from bench.sp.report import report
from bench.sp.results import Results
from bench.sp.runner import Run, Settings, run_all

JSON: Final = Path("build/bench-sp.json")


def main(arguments: Sequence[str]) -> int:
    """Measure and report; return 1 if a line failed or the run was interrupted."""
    given = parse(arguments)
    settings = Settings(given.rounds, given.seconds, given.requests, given.warm_up)
    absent = lacks()
    for why, names in absent.items():
        print(f"skipped: {'; '.join(names)}: {why}", flush=True)
    calm = Quiet(given.busy)
    results, complete = measure(given, settings, calm)
    how = f"Made by `{builds.shown('bench.sp', arguments)}`: {words(settings)} {calm.words()}"
    found = facts(builds.all_of(given))
    text = report(results, how, found, absent)
    print(text)
    write_json(given.json, results, settings, found)
    if given.docs and complete and not results.failures():
        page.write(given.docs, "sp", text, maker="bench")
        goals.write(given.docs, results.goals())
    for run in results.failures():
        print(f"\n{run.line.name}, {run.cell}: {run.failure}", file=sys.stderr)
    return 0 if complete and not results.failures() else 1


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    sections = "; ".join(f"{n}: {each.title}" for n, each in enumerate(SECTIONS, start=1))
    parser = argparse.ArgumentParser(prog="python -m bench.sp", description=bench.sp.__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--rounds", type=int, default=5, help="turns per line (5)")
    parser.add_argument("--seconds", type=float, default=2.0, help="measured time of a turn (2)")
    parser.add_argument(
        "--requests",
        type=int,
        default=10_000,
        help="requests per turn, for up to three times its seconds (10000)",
    )
    parser.add_argument("--warm-up", type=float, default=0.5, help="seconds of warm-up (0.5)")
    parser.add_argument("--section", type=int, nargs="+", help=f"only these sections: {sections}")
    parser.add_argument(
        "--size", type=int, nargs="+", choices=SIZES, help="only bodies of these sizes"
    )
    parser.add_argument("--line", nargs="+", metavar="TEXT", help="only lines with TEXT in them")
    parser.add_argument("--json", type=Path, default=JSON, help=f"file for the runs ({JSON})")
    parser.add_argument("--docs", type=Path, help="page to write the tables to")
    builds.add_option(parser)
    quiet.add_option(parser)
    return parser.parse_args(arguments)


def lacks() -> dict[str, list[str]]:
    """Return each missing program or package, with the lines that need it."""
    found: dict[str, list[str]] = {}
    for line in dict.fromkeys(line for section in SECTIONS for line in section.lines):
        why = line.lack()
        if why is not None and line.name not in found.setdefault(why, []):
            found[why].append(line.name)
    return found


def measure(given: argparse.Namespace, settings: Settings, calm: Quiet) -> tuple[Results, bool]:
    """Run the chosen lines, and print progress; after Ctrl-C return the results so far."""
    results = Results()
    cells = [
        Cell(section, size)
        for number, section in enumerate(SECTIONS, start=1)
        for size in SIZES
        if number in (given.section or [number]) and size in (given.size or [size])
    ]

    def lines_of(cell: Cell) -> list[Line]:
        lines = cell.section.in_builds(builds.all_of(given))
        texts = given.line or [""]
        return [
            each for each in lines if not each.lack() and any(text in each.name for text in texts)
        ]

    try:
        for run in run_all(cells, lines_of, settings, calm):
            results.add(run)
            print(f"{run.round + 1}/{settings.rounds} {progress(run)}", flush=True)
    except KeyboardInterrupt:
        print("interrupted: the tables show what was measured so far")
        return results, False
    return results, True


def progress(run: Run) -> str:
    """Return a line of text about a run."""
    what = f"{run.cell!s:44} {run.line.name:36}"
    return f"{what} {run.figures['requests_per_s']:9,.0f}/s" if run.figures else f"{what} failed"


def words(settings: Settings) -> str:
    """Describe how the figures were measured."""
    return (
        f"medians of {settings.rounds} interleaved rounds, each turn of at least"
        f" {settings.seconds:g} s and, as far as three times that allows,"
        f" {settings.requests:,} requests; ratios are taken within a round."
    )


def facts(measured: Sequence[Build]) -> dict[str, str]:
    """Return facts of the machine, and the versions of the contenders."""
    found = machine.facts(measured)
    if (native_version := native.version()) is not None:
        found["nng in C"] = native_version
    try:
        import pynng

        found["pynng"] = version("pynng")
        found["its nng"] = pynng.ffi.string(pynng.lib.nng_version()).decode()
    except (ImportError, PackageNotFoundError):
        pass
    return found


def write_json(path: Path, results: Results, settings: Settings, found: dict[str, str]) -> None:
    """Write all runs, for further analysis."""
    runs = [
        {
            "cell": str(run.cell),
            "line": run.line.name,
            "round": run.round,
            "figures": run.figures,
            "failure": run.failure,
        }
        for run in results.runs()
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    whole = {"machine": found, "settings": asdict(settings), "runs": runs}
    path.write_text(json.dumps(whole, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
