"""Rows per second of bulk calls to an echo service, and processor time per row of each process.

    python -m bench.spark bulk [--rows N] [--runs N] [--cores N] [--docs PAGE]

Each round has a turn of every variant. `Spark alone` passes the same rows through Python workers
that return them; `client alone` is one `AsyncClient` in one process, without Spark; the others are
bulk calls with that many requests in flight per task.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Final

from bench import machine, page, quiet
from bench.gauge import cpu_s
from bench.loop import run
from bench.quiet import Quiet
from requite.testing.processes import Children

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

GOAL_ROWS_PER_S: Final = 50_000
WINDOWS: Final = (64, 256, 1024)
DEFAULT: Final = "bulk call, window 256"
WHO: Final = ("Spark's JVM", "Python of the tasks", "broker", "service")
START_S: Final = 30.0


@dataclass(frozen=True)
class Turn:
    """A turn of a variant: rows per second, and microseconds per row of each process."""

    rows_per_s: float
    cpu_us: dict[str, float]


def main(arguments: Sequence[str]) -> int:
    """Measure and print; write the page of --docs."""
    given = parse(arguments)
    with services() as (url, pids):
        calm = Quiet(given.busy)
        turns = measure(url, pids, given, calm)
    text = report(turns, given, calm)
    print(text)
    if given.docs:
        page.write(given.docs, "bulk", text)
    return 0


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.spark bulk", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--rows", type=int, default=200_000, help="rows per turn (200000)")
    parser.add_argument("--runs", type=int, default=5, help="rounds (5)")
    parser.add_argument("--cores", type=int, default=2, help="parallel tasks (2)")
    parser.add_argument("--docs", type=Path, help="page to write the tables to")
    quiet.add_option(parser)
    return parser.parse_args(arguments)


@contextmanager
def services() -> Iterator[tuple[str, dict[str, int]]]:
    """Start a broker and an echo service; yield the URL and the process ids."""
    command = [sys.executable, "-u", "-m", "requite.cli"]
    with Children() as children:
        broker = children.start(
            [*command, "broker", "--bind", "tcp://127.0.0.1:0"], name="the broker"
        )
        endpoint = broker.wait_for(r"listening on tcp://(\S+)", START_S)[1]
        worker = children.start(
            [
                *(*command, "worker", "requite.examples:echo"),
                *("--connect", f"mdp://{endpoint}", "--capacity", "128"),
            ],
            name="the service",
        )
        yield f"mdp://{endpoint}/echo", {"broker": broker.pid, "service": worker.pid}


def measure(
    url: str, pids: dict[str, int], given: argparse.Namespace, calm: Quiet
) -> dict[str, list[Turn]]:
    """Run every variant in each round; the first round is a warm-up, and not counted."""
    from requite.spark.session import local_session

    spark = local_session("bench", cores=given.cores)
    df = spark.range(given.rows, numPartitions=given.cores).selectExpr(
        "id", "cast(id as string) AS body"
    )
    variants = dict(variants_of(df, url))
    turns: dict[str, list[Turn]] = {name: [] for name in variants}
    try:
        for number in range(given.runs + 1):
            taken = calm.take(
                lambda: {name: take_turn(act, pids, given.rows) for name, act in variants.items()}
            )
            for name, turn in taken.items() if number else ():
                turns[name].append(turn)
                print(f"{number}/{given.runs} {name:24} {turn.rows_per_s:9,.0f}/s", flush=True)
    finally:
        spark.stop()
    return turns


def variants_of(df: DataFrame, url: str) -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield the variants, by name."""
    rows = df.count()
    yield "Spark alone", lambda: write(df.mapInArrow(lambda batches: batches, df.schema))
    yield "client alone", lambda: run(call_without_spark(url, rows))
    for window in WINDOWS:
        yield f"bulk call, window {window}", partial(call_in_bulk, df, url, rows, window)


def write(frame: DataFrame) -> None:
    """Compute all rows, and drop them."""
    frame.write.format("noop").mode("overwrite").save()


def call_in_bulk(df: DataFrame, url: str, rows: int, window: int) -> None:
    """Call with each row; raises `RuntimeError` if a row has no reply."""
    from pyspark.sql import Observation

    import requite.spark

    seen = Observation()
    write(requite.spark.call(df, url, body="body", key="id", window=window, observation=seen))
    if seen.get["ok"] != rows:
        raise RuntimeError(f"not every row of {rows} has a reply: {seen.get}")


async def call_without_spark(url: str, rows: int, window: int = 256) -> None:
    """Make one call per row, as fast as one client can."""
    import requite

    async with requite.AsyncClient(url, timeout=30) as client:
        bodies = (b"%d" % row for row in range(rows))
        async for _ in client.map(bodies, concurrency=window, as_completed=True):
            pass


# --- processor time -------------------------------------------------------------------------------
def take_turn(act: Callable[[], object], pids: dict[str, int], rows: int) -> Turn:
    """Run a variant once; return the rate, and the processor time per row of each process."""
    before, begin = spent(pids), perf_counter()
    act()
    seconds = perf_counter() - begin
    after = spent(pids)
    return Turn(rows / seconds, {who: (after[who] - before[who]) / rows * 1e6 for who in after})


def spent(pids: dict[str, int]) -> dict[str, float]:
    """Return the processor time of each process so far, in seconds."""
    java = [pid for pid in descendants("self") if name_of(pid) == "java"]
    tasks = [pid for parent in java for pid in descendants(parent)]
    used = {"Spark's JVM": sum(map(cpu_s, java)), "Python of the tasks": sum(map(cpu_s, tasks))}
    return used | {who: cpu_s(pid) for who, pid in pids.items()}


def descendants(pid: int | str) -> list[int]:
    """Return the descendants of a process (proc(5), task/TID/children)."""
    found = []
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, children.read_text().split()):
            found += [child, *descendants(child)]
    return found


def name_of(pid: int) -> str:
    """Return the name of a process."""
    return Path(f"/proc/{pid}/comm").read_text().strip()


# --- the report -----------------------------------------------------------------------------------
def report(turns: dict[str, list[Turn]], given: argparse.Namespace, calm: Quiet) -> str:
    """Return both tables and the verdict, in Markdown."""
    default = turns[DEFAULT]
    pace = median(turn.rows_per_s for turn in default)
    verdict = "reached" if pace >= GOAL_ROWS_PER_S else "not reached"
    return "\n\n".join(
        [
            f"Made by `python -m bench.spark bulk --rows {given.rows} --runs {given.runs} --cores"
            f" {given.cores}`: medians of {given.runs} interleaved runs. The goal of"
            f" {GOAL_ROWS_PER_S:,} rows a second is {verdict}. {calm.words()}",
            page.sentence(machine.facts()),
            page.table(["", "rows per second", "slowest to fastest"], pace_rows(turns)),
            f"What a row costs, of `{DEFAULT}`, in processor time:",
            page.table(["who", "µs per row", "share"], cost_rows(default, given.cores)),
        ]
    )


def pace_rows(turns: dict[str, list[Turn]]) -> list[list[str]]:
    """Return a row per variant."""
    paces = {name: sorted(turn.rows_per_s for turn in some) for name, some in turns.items()}
    return [
        [name, f"{median(some):,.0f}", f"{some[0]:,.0f} to {some[-1]:,.0f}"]
        for name, some in paces.items()
    ]


def cost_rows(turns: list[Turn], cores: int) -> list[list[str]]:
    """Return processor time by process, and the rows per second that it allows on idle cores."""
    costs = {who: median(turn.cpu_us[who] for turn in turns) for who in WHO}
    total = sum(costs.values())
    rows = [[who, f"{cost:.1f}", f"{cost / total:.0%}"] for who, cost in costs.items()]
    bound = cores * 1e6 / total
    return [
        *rows,
        ["all", f"{total:.1f}", ""],
        [f"rows per second if {cores} cores did nothing else", f"{bound:,.0f}", ""],
    ]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
