"""Time and memory of the pipeline over journals of several sizes.

    python -m bench.spark pipeline [--events N ...] [--cores N] [--docs PAGE]

A lake is updated three times: with 99 % of a journal, with the last 1 %, and without new events.
Each run is a process with its own JVM; its start is not counted. Processor time is the total of all
processes, also per event ("CPU", in microseconds). Memory is the maximum resident size (proc(5),
VmHWM) of the JVM, with a heap of up to 2 GB, and of all Python processes together. The exponent is
the growth of a first run's processor time from the previous size: 1 is linear.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event, Thread
from time import perf_counter
from typing import Any, Final

from bench import machine, page, quiet
from bench.quiet import Quiet
from bench.spark.bulk import descendants, name_of
from bench.spark.traffic import write_journal

SIZES: Final = (100_000, 1_000_000, 3_000_000)
NEWS: Final = 0.01
HEADER: Final = (
    *("events", "calls", "journal", "first run", "events/s", "CPU", "exponent"),
    *("1 % news", "of its CPU", "again", "JVM", "Python", "slowest steps"),
)
_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
_LOOK_EVERY_S: Final = 0.2
_STEPS_SHOWN: Final = 3


def main(arguments: Sequence[str]) -> int:
    """Measure and print; write the page of --docs."""
    given = parse(arguments)
    if given.run:
        print(json.dumps(measure(given.run, given.cores)))
        return 0
    calm = Quiet(given.busy)
    results = []
    for events in given.events:
        results.append(calm.take(partial(in_processes, events, given.cores)))
        print(json.dumps(results[-1]), flush=True)
    text = report(results, given, calm)
    print(text)
    if given.docs:
        page.write(given.docs, "pipeline", text)
    return 0


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.spark pipeline", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--events", type=int, nargs="+", default=SIZES, help="sizes of journals")
    parser.add_argument("--cores", type=int, default=2, help="parallel tasks (2)")
    parser.add_argument("--docs", type=Path, help="page to write the table to")
    parser.add_argument("--run", type=Path, help=argparse.SUPPRESS)
    quiet.add_option(parser)
    return parser.parse_args(arguments)


def in_processes(events: int, cores: int) -> dict[str, Any]:
    """Measure one size: a first run, one with new events, and one without."""
    with TemporaryDirectory(prefix="requite-bench-") as name:
        folder = Path(name)
        journal = write_journal(folder / "journal", events, news=NEWS)
        next(journal)
        first = _run(folder, cores)
        next(journal)
        news = _run(folder, cores)
        again = _run(folder, cores)
        assert again["events"] == 0
        size = sum(file.stat().st_size for file in folder.glob("journal/**/*.seg"))
        return {"first": first, "news": news, "again": again, "journal_mb": size / 1e6}


def _run(folder: Path, cores: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "bench.spark", "pipeline", "--run", str(folder)]
    words = [*command, "--cores", str(cores)]
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def measure(folder: Path, cores: int) -> dict[str, Any]:
    """Run the pipeline over the current journal."""
    from requite.spark.runner import run
    from requite.spark.session import ONCE, local_session

    conf = {**ONCE, "spark.local.dir": str(folder)}  # as the command
    spark = local_session("bench", cores=cores, conf=conf)
    spark.range(10).count()  # warm up the session: its start is not counted
    steps: list[tuple[str, float]] = []
    begun_s = processor_s()
    with Memory() as memory:
        summary = run(
            spark,
            folder / "journal",
            folder / "lake",
            on_progress=lambda progress: steps.append((progress.step, perf_counter())),
        )
    took_s = processor_s() - begun_s
    spark.stop()
    assert summary.audit.ok
    return {
        "events": summary.new_events,
        "calls": summary.audit.accepted,
        "seconds": summary.seconds,
        "processor_s": took_s,
        "jvm_mb": memory.jvm_mb,
        "python_mb": memory.python_mb,
        "steps": _durations(steps),
    }


def processor_s() -> float:
    """Return the processor time of this process and its descendants (proc(5), stat)."""
    ticks = 0
    for pid in ("self", *descendants("self")):
        with suppress(OSError):  # it has ended: its parent has its time
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += sum(map(int, fields[11:15]))
    return ticks / _TICKS_PER_S


def _durations(steps: list[tuple[str, float]]) -> dict[str, float]:
    """Return the duration of each step, in seconds."""
    begun: dict[str, float] = {}
    took: dict[str, float] = {}
    for step, at in steps:
        if step in begun:
            took[step] = took.get(step, 0.0) + at - begun.pop(step)
        else:
            begun[step] = at
    return took


class Memory:
    """Polls, while open, the maximum memory of the descendants of this process."""

    def __init__(self) -> None:
        self.jvm_mb = self.python_mb = 0.0
        self._over = Event()
        self._thread = Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Memory:
        self._thread.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(_LOOK_EVERY_S):
            # A process may end while it is polled; the next poll sees the remaining ones.
            with suppress(OSError):
                self._look()

    def _look(self) -> None:
        java = [pid for pid in descendants("self") if name_of(pid) == "java"]
        tasks = [pid for parent in java for pid in descendants(parent)]
        self.jvm_mb = max(self.jvm_mb, sum(_status_mb(pid, "VmHWM") for pid in java))
        python = sum(_status_mb(pid, "VmRSS") for pid in ["self", *tasks])
        self.python_mb = max(self.python_mb, python)


def _status_mb(pid: int | str, field: str) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    found = (line.split()[1] for line in lines if line.startswith(f"{field}:"))
    return int(next(found, "0")) / 1024


# --- the report -----------------------------------------------------------------------------------
def report(results: Sequence[dict[str, Any]], given: argparse.Namespace, calm: Quiet) -> str:
    """Return the table in Markdown."""
    sizes = " ".join(str(events) for events in given.events)
    made = f"Made by `python -m bench.spark pipeline --events {sizes} --cores {given.cores}`."
    rows = [row(found, before) for found, before in zip(results, [None, *results], strict=False)]
    lead = f"{made} {calm.words()}\n\n{page.sentence(machine.facts())}"
    return f"{lead}\n\n{page.table(HEADER, rows)}"


def row(result: dict[str, Any], before: dict[str, Any] | None) -> list[str]:
    """Return the row of a size; `before` is the previous size."""
    first, news, again = result["first"], result["news"], result["again"]
    slowest = sorted(first["steps"].items(), key=lambda step: -step[1])[:_STEPS_SHOWN]
    return [
        f"{first['events']:,}",
        f"{first['calls']:,}",
        f"{result['journal_mb']:.0f} MB",
        f"{first['seconds']:.1f} s",
        f"{first['events'] / first['seconds']:,.0f}",
        f"{1e6 * first['processor_s'] / first['events']:.1f} µs",
        f"{exponent(first, before['first']):.2f}" if before else "",
        f"{news['seconds']:.1f} s",
        f"{100 * news['processor_s'] / first['processor_s']:.0f} %",
        f"{again['seconds']:.1f} s",
        f"{first['jvm_mb']:,.0f} MB",
        f"{first['python_mb']:,.0f} MB",
        ", ".join(f"{name} {seconds:.1f} s" for name, seconds in slowest),
    ]


def exponent(larger: dict[str, Any], smaller: dict[str, Any]) -> float:
    """Return the growth exponent of processor time by events: 1 is linear."""
    growth = math.log(larger["processor_s"] / smaller["processor_s"])
    return growth / math.log(larger["events"] / smaller["events"])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
