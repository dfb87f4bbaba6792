"""The command line: `python -m bench.growth --help`."""

from __future__ import annotations

import argparse
import resource
import sys
from collections.abc import Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from time import perf_counter
from typing import Final

import bench.growth
from bench import builds, machine, page, quiet
from bench.growth import backlog, brokers, overload, pool, report, requests
from bench.growth.curve import Curve
from bench.growth.point import Point, Settings
from bench.quiet import Quiet
from requite.testing.processes import ProcessFailed

_MODULES: Final = (requests, pool, backlog, overload, brokers)
CURVES: Final = {each.name: each for each in chain(*(module.CURVES for module in _MODULES))}
CSV: Final = Path("build/growth")
_DESCRIPTORS: Final = 20_000


def main(arguments: Sequence[str]) -> int:
    """Measure and report; return 1 if a curve failed."""
    given = parse(arguments)
    raise_descriptor_limit()
    settings = Settings(given.seconds, given.points, given.long)
    how = f"Made by `{builds.shown('bench.growth', arguments)}`"
    failures = []
    for name in given.curve:
        curve = CURVES[name]
        if (lack := curve.lack()) is not None:
            failures.append(f"{name}: {lack}")
            continue
        calm = Quiet(given.busy)
        began = perf_counter()
        try:
            points = calm.take(partial(measure, curve, settings))
        except (ProcessFailed, TimeoutError) as failure:
            failures.append(f"{name}: {failure}")
            continue
        took_s = perf_counter() - began
        found = page.sentence(machine.facts())
        lead = f"{how}, in {took_s:.0f} s. {calm.words()} {found}"
        print(f"\n{report.text(curve, points)}\n\n{took_s:.0f} s\n", flush=True)
        report.write_csv(given.csv / f"{name}.csv", curve, points)
        if given.docs:
            report.write_page(given.docs, curve, points, lead)
    for text in failures:
        print(f"\n{text}", file=sys.stderr)
    return 1 if failures else 0


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.growth", description=bench.growth.__doc__
    )
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "--curve",
        nargs="+",
        choices=[*CURVES],
        default=[*CURVES],
        metavar="NAME",
        help=f"some of {', '.join(CURVES)} (all)",
    )
    parser.add_argument("--points", type=int, help="points per curve, the smallest first (all)")
    parser.add_argument("--seconds", type=float, default=2.0, help="measured time of a point (2)")
    parser.add_argument("--long", action="store_true", help="a backlog of 10 million requests, too")
    parser.add_argument("--csv", type=Path, default=CSV, help=f"folder of the figures ({CSV})")
    parser.add_argument("--docs", type=Path, help="page to write to; charts are put beside it")
    quiet.add_option(parser)
    return parser.parse_args(arguments)


def measure(curve: Curve, settings: Settings) -> list[Point]:
    """Measure a curve, and print each point. Raises `ProcessFailed` and `TimeoutError`."""
    points = []
    for point in curve.points(settings):
        points.append(point)
        figures = ", ".join(
            f"{shown.title} {point.figures[shown.figure]:{shown.form}}"
            for shown in curve.shown
            if shown.figure in point.figures
        )
        print(f"{curve.name} {point.at:,g}, {point.line}: {figures}", flush=True)
    return points


def raise_descriptor_limit() -> None:
    """Allow this process and its children a connection for each of 10,000 peers."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _DESCRIPTORS if hard == resource.RLIM_INFINITY else min(_DESCRIPTORS, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
