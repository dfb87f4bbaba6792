"""The command line: `python -m bench.memory --help`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import bench.memory
from bench import builds, machine, page
from bench.growth.__main__ import raise_descriptor_limit
from bench.memory.cases import CASES, Case
from bench.memory.stage import Stage, own_memory, settle, trace
from requite.testing.processes import ProcessFailed

_HEADER: Final = ("one more", "kind", "in the process of the", "bytes")
_FIRST: Final = 4  # a quarter comes first, so that one-time costs do not count


def main(arguments: Sequence[str]) -> int:
    """Measure and report; return 1 if a case failed."""
    given = parse(arguments)
    raise_descriptor_limit()
    rows, failures = [], []
    for name, case in CASES.items():
        if not any(text in name for text in given.only):
            continue
        if (lack := case.lack()) is not None:
            failures.append(f"{name}: {lack}")
            continue
        count = given.count or case.count
        try:
            size = measure(case, count, traced=False)
            print(f"{name}: {size:,.0f} bytes", flush=True)
            if given.trace:
                measure(case, count, traced=True)
        except (ProcessFailed, OSError) as failure:
            failures.append(f"{name}: {failure}")
            continue
        rows.append([case.what, case.how, case.process, f"{size:,.0f}"])
    table = page.table(_HEADER, rows)
    print(f"\n{table}\n")
    if given.docs:
        how = f"Made by `{builds.shown('bench.memory', arguments)}`. "
        how += page.sentence(machine.facts())
        page.write(given.docs, "memory", f"{how}\n\n{table}", maker="bench")
    for text in failures:
        print(f"\n{text}", file=sys.stderr)
    return 1 if failures else 0


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.memory", description=bench.memory.__doc__
    )
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "--only", nargs="+", default=[""], metavar="TEXT", help="only cases with TEXT (all)"
    )
    parser.add_argument("--count", type=int, help="things to add (2,000 to 20,000)")
    parser.add_argument("--trace", action="store_true", help="print what has allocated the memory")
    parser.add_argument("--docs", type=Path, metavar="PAGE", help="page to write the table to")
    return parser.parse_args(arguments)


def measure(case: Case, count: int, *, traced: bool) -> float:
    """Return the bytes per added thing; if `traced`, print what has allocated them. Raises
    `ProcessFailed`."""
    with Stage(traced=traced) as stage:
        try:
            child, add = case.start(stage)
            add(max(1, count // _FIRST))
            settle(child)
            if traced:
                trace(child)
            before = own_memory(child.pid)
            add(count)
            settle(child)
            after = own_memory(child.pid)
            if traced:
                _print_trace(trace(child), count)
        except ProcessFailed as failure:
            raise ProcessFailed(f"{failure}\n{stage.report()}") from None
    return (after - before) / count


def _print_trace(lines: Sequence[str], count: int) -> None:
    for line in lines:
        size, number, place = line.split(maxsplit=2)
        print(f"{int(size) / count:9.1f} B {int(number) / count:6.2f} x  {place}", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
