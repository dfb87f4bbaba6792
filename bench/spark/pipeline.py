"""The pipeline over journals of several sizes: how long it takes, and how much memory.

    python -m bench.spark pipeline [--events N ...] [--cores N] [--docs PAGE]

Every size has a process, a JVM and a lake of its own; starting them is not counted. Memory is the
most that was resident (proc(5), VmHWM) of the JVM, whose heap may have 2 GB, and of all Python
processes together. "Again" is a second run over the same journal, which finds nothing new.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event, Thread
from time import perf_counter
from typing import Any, Final

from bench.spark import page
from bench.spark.bulk import descendants, name_of

SIZES: Final = (100_000, 1_000_000, 3_000_000)
HEADER: Final = (
    *("events", "calls", "journal", "first run", "events/s", "again"),
    *("JVM", "Python", "slowest steps"),
)
_LOOK_EVERY_S: Final = 0.2
_STEPS_SHOWN: Final = 3


def main(arguments: Sequence[str]) -> int:
    """Measure, print, and write the page where asked to."""
    given = parse(arguments)
    if given.one:
        print(json.dumps(measure(given.one, given.cores)))
        return 0
    results = []
    for events in given.events:
        results.append(in_a_process(events, given.cores))
        print(json.dumps(results[-1]), flush=True)
    text = report(results, given)
    print(text)
    if given.docs:
        page.write(given.docs, "pipeline", text)
    return 0


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.spark pipeline", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--events", type=int, nargs="+", default=SIZES, help="sizes of journals")
    parser.add_argument("--cores", type=int, default=2, help="tasks at a time (2)")
    parser.add_argument("--docs", type=Path, help="the page to write the table to")
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def in_a_process(events: int, cores: int) -> dict[str, Any]:
    """Measure one size in a fresh process."""
    command = [sys.executable, "-m", "bench.spark", "pipeline", "--one", str(events)]
    words = [*command, "--cores", str(cores)]
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def measure(events: int, cores: int) -> dict[str, Any]:
    """Write a journal, and run the pipeline over it twice."""
    from bench.spark.traffic import write_journal
    from requite.spark.runner import run
    from requite.spark.session import local_session

    with TemporaryDirectory(prefix="requite-bench-") as name:
        folder = Path(name)
        write_journal(folder / "journal", events)
        spark = local_session("bench", cores=cores, conf={"spark.local.dir": str(folder)})
        spark.range(10).count()  # a session that has done something: starting it is not counted
        steps: list[tuple[str, float]] = []
        with Memory() as memory:
            first = run(
                spark,
                folder / "journal",
                folder / "lake",
                on_progress=lambda progress: steps.append((progress.step, perf_counter())),
            )
        again = run(spark, folder / "journal", folder / "lake")
        spark.stop()
        assert first.audit.ok
        assert again.new_events == 0
        return {
            "events": first.new_events,
            "calls": first.audit.accepted,
            "journal_mb": sum(file.stat().st_size for file in folder.rglob("*.seg")) / 1e6,
            "first_s": first.seconds,
            "again_s": again.seconds,
            "jvm_mb": memory.jvm_mb,
            "python_mb": memory.python_mb,
            "steps": _durations(steps),
        }


def _durations(steps: list[tuple[str, float]]) -> dict[str, float]:
    """Return the seconds from the beginning of each step to its end."""
    begun: dict[str, float] = {}
    took: dict[str, float] = {}
    for step, at in steps:
        if step in begun:
            took[step] = took.get(step, 0.0) + at - begun.pop(step)
        else:
            begun[step] = at
    return took


class Memory:
    """Looks, while it is open, how much memory the processes below this one have had at most."""

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
            # A process may end while it is looked at; the next look sees those that are left.
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
def report(results: Sequence[dict[str, Any]], given: argparse.Namespace) -> str:
    """Return the table in Markdown."""
    sizes = " ".join(str(events) for events in given.events)
    made = f"Made by `python -m bench.spark pipeline --events {sizes} --cores {given.cores}`."
    return f"{made}\n\n{page.table(HEADER, [row(result) for result in results])}"


def row(result: dict[str, Any]) -> list[str]:
    """Return the line of a size."""
    slowest = sorted(result["steps"].items(), key=lambda step: -step[1])[:_STEPS_SHOWN]
    return [
        f"{result['events']:,}",
        f"{result['calls']:,}",
        f"{result['journal_mb']:.0f} MB",
        f"{result['first_s']:.1f} s",
        f"{result['events'] / result['first_s']:,.0f}",
        f"{result['again_s']:.1f} s",
        f"{result['jvm_mb']:,.0f} MB",
        f"{result['python_mb']:,.0f} MB",
        ", ".join(f"{name} {seconds:.1f} s" for name, seconds in slowest),
    ]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
