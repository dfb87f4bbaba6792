"""Reading the journal through `format("requite")`, compared with the same rows in Parquet.

    python -m bench.spark source [--events N] [--runs N] [--cores N] [--docs PAGE]

The journal is of a broker with eight clients, four workers and two services; every second request
was queued. Both are read completely into Spark's `noop` sink, so that Spark only creates the rows.
Rounds are interleaved; the first is not counted.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import TYPE_CHECKING, Final

from bench import machine, page, quiet
from bench.gauge import cpu_s
from bench.quiet import Quiet
from bench.spark.bulk import descendants, name_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from requite.chronicle import SpanRow

GOAL: Final = 1.5  # times the time that Parquet takes
EVENTS_PER_CALL: Final = 3.5
NOON_US: Final = 1_772_452_800_000_000  # 2026-03-02 12:00 UTC
HEADER: Final = ("", "s", "fastest to slowest", "events/s", "JVM, µs/event", "Python, µs/event")
FEW: Final = "ts,kind,request_id,service"
JOURNAL, PARQUET = "journal", "Parquet"
FEW_JOURNAL, FEW_PARQUET = "journal, four columns", "Parquet, four columns"


@dataclass(frozen=True)
class Turn:
    """A turn of a variant: its seconds, and the processor time of the JVM and of Python."""

    seconds: float
    jvm_s: float
    python_s: float


def main(arguments: Sequence[str]) -> int:
    """Measure and print; write the page of --docs."""
    given = parse(arguments)
    with TemporaryDirectory(prefix="requite-bench-") as folder:
        calm = Quiet(given.busy)
        turns, events, sizes = measure(given, Path(folder), calm)
    text = report(turns, given, events, sizes, calm)
    print(text)
    if given.docs:
        page.write(given.docs, "source", text)
    return 0


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.spark source", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--events", type=int, default=2_000_000, help="rows (2000000)")
    parser.add_argument("--runs", type=int, default=7, help="rounds (7)")
    parser.add_argument("--cores", type=int, default=2, help="parallel tasks (2)")
    parser.add_argument("--docs", type=Path, help="page to write the tables to")
    quiet.add_option(parser)
    return parser.parse_args(arguments)


# --- the journal ----------------------------------------------------------------------------------
def write_journal(folder: Path, calls: int) -> None:
    """Write the log of a broker with `calls` calls."""
    from requite.chronicle import WriterRole
    from requite.journal import JournalSettings
    from requite.journal.blocks import PURPOSE
    from requite.journal.folder import log_name
    from requite.journal.writer import BlockWriter
    from requite.storage import Log, LogSettings

    size = JournalSettings().segment_size_bytes
    settings = LogSettings(segment_size_bytes=size, sync=False)
    log = Log.open(
        folder / log_name(WriterRole.BROKER, bytes(8)), purpose=PURPOSE, settings=settings
    )
    writer = BlockWriter(log, {})
    for start in range(0, calls, 512):
        writer.write_spans(list(spans(start, min(start + 512, calls))), NOON_US)
    log.close()


def spans(start: int, stop: int) -> Iterator[SpanRow]:
    """Yield calls, 10,000 per second."""
    for number in range(start, stop):
        at = number * 1e-4
        dispatched = at + (3e-4 if number % 2 else 0.0)
        call_id = (number % 8).to_bytes(8, "big") + number.to_bytes(8, "big")
        service, worker = (b"echo", b"enrich")[number % 2], (number % 4 + 1).to_bytes(8, "big")
        yield at, dispatched, dispatched + 2e-3, at + 5, call_id, service, worker, 100, 200


# --- measuring ------------------------------------------------------------------------------------
def measure(
    given: argparse.Namespace, folder: Path, calm: Quiet
) -> tuple[dict[str, list[Turn]], int, dict[str, int]]:
    """Run every variant in each round; return turns, rows and file sizes."""
    from requite.spark.session import local_session

    write_journal(folder / "journal", round(given.events / EVENTS_PER_CALL))
    spark = local_session("bench", cores=given.cores)
    try:
        variants = variants_of(spark, folder)
        turns: dict[str, list[Turn]] = {name: [] for name in variants}
        for number in range(given.runs + 1):
            taken = calm.take(lambda: {name: take_turn(act) for name, act in variants.items()})
            for name, turn in taken.items() if number else ():
                turns[name].append(turn)
                print(f"{number}/{given.runs} {name:24} {turn.seconds:6.2f} s", flush=True)
        events = spark.read.parquet(str(folder / "parquet")).count()
    finally:
        spark.stop()
    return turns, events, {name: size_of(folder / name) for name in ("journal", "parquet")}


def variants_of(spark: SparkSession, folder: Path) -> dict[str, Callable[[], object]]:
    """Write the Parquet files; return the variants by name."""
    journal = spark.read.format("requite")
    every = journal.load(str(folder / "journal"))
    every.write.parquet(str(folder / "parquet"))
    parquet = spark.read.parquet(str(folder / "parquet"))

    def write(frame: DataFrame) -> Callable[[], object]:
        return lambda: frame.write.format("noop").mode("overwrite").save()

    few = journal.option("columns", FEW).load(str(folder / "journal"))
    return {
        JOURNAL: write(every),
        PARQUET: write(parquet),
        FEW_JOURNAL: write(few),
        FEW_PARQUET: write(parquet.select(FEW.split(","))),
    }


def take_turn(act: Callable[[], object]) -> Turn:
    """Run a variant; return its time and processor time."""
    before, started = spent(), perf_counter()
    act()
    seconds, after = perf_counter() - started, spent()
    return Turn(seconds, after[0] - before[0], after[1] - before[1])


def spent() -> tuple[float, float]:
    """Return the processor time of the JVM and of its Python workers so far."""
    java = [pid for pid in descendants("self") if name_of(pid) == "java"]
    tasks = [pid for parent in java for pid in descendants(parent)]
    return sum(map(cpu_s, java)), sum(map(cpu_s, tasks))


def size_of(folder: Path) -> int:
    """Return the total size of the files in a folder, in bytes."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


# --- the report -----------------------------------------------------------------------------------
def report(
    turns: dict[str, list[Turn]],
    given: argparse.Namespace,
    events: int,
    sizes: dict[str, int],
    calm: Quiet,
) -> str:
    """Return the table and the verdict, in Markdown."""
    ratio = median(ratios(turns, JOURNAL, PARQUET))
    verdict = "reached" if ratio <= GOAL else "not reached"
    rows = [row(name, some, events) for name, some in turns.items()]
    return "\n\n".join(
        [
            f"Made by `python -m bench.spark source --events {given.events} --runs {given.runs}"
            f" --cores {given.cores}`: medians of {given.runs} interleaved runs over {events:,}"
            f" events ({sizes['journal'] / 1e6:.0f} MB of journal, {sizes['parquet'] / 1e6:.0f} MB"
            f" of Parquet). Reading the journal takes {ratio:.2f} times as long as reading Parquet;"
            f" the goal of at most {GOAL:g} is {verdict}. {calm.words()}",
            page.sentence(machine.facts()),
            page.table(HEADER, rows),
            f"With four columns: {median(ratios(turns, FEW_JOURNAL, FEW_PARQUET)):.2f} times.",
        ]
    )


def ratios(turns: dict[str, list[Turn]], one: str, other: str) -> list[float]:
    """Return the ratio of two variants' times in each round."""
    pairs = zip(turns[one], turns[other], strict=True)
    return [first.seconds / second.seconds for first, second in pairs]


def row(name: str, turns: Sequence[Turn], events: int) -> list[str]:
    """Return the row of a variant."""
    seconds = sorted(turn.seconds for turn in turns)
    costs = [[turn.jvm_s for turn in turns], [turn.python_s for turn in turns]]
    return [
        name,
        f"{median(seconds):.2f}",
        f"{seconds[0]:.2f} to {seconds[-1]:.2f}",
        f"{events / median(seconds):,.0f}",
        *(f"{median(cost) / events * 1e6:.2f}" for cost in costs),
    ]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
