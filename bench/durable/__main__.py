"""The command line: `python -m bench.durable --help`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Final

import bench.durable
from bench import builds, goals, machine, page, quiet
from bench.durable.contenders import Contender, contenders
from bench.job import Job
from bench.quiet import Quiet
from requite.testing.processes import Children, ProcessFailed

CLIENTS: Final = (1, 16, 64)
SLACK_S: Final = 60.0
_BODY_SIZE: Final = 1024

Figures = dict[str, float]
Turns = dict[str, Figures]
Runs = dict[tuple[str, int], dict[int, Figures]]


def main(arguments: Sequence[str]) -> int:
    """Measure and report; return 1 if a contender failed."""
    given = parse(arguments)
    measured = builds.all_of(given)
    with (
        TemporaryDirectory(prefix="requite-bench-") as name,
        contenders(Path(name), measured) as everybody,
    ):
        absent = {each.name: why for each in everybody if (why := each.lack()) is not None}
        present = [each for each in everybody if each.name not in absent]
        calm = Quiet(given.busy)
        runs, failures = measure(present, given, calm)
    how = f"Made by `{builds.shown('bench.durable', arguments)}`"
    text = report(runs, present, given, how, calm, [*map(": ".join, absent.items())])
    print(text)
    if given.docs and not failures:
        page.write(given.docs, "durable", text, maker="bench")
        goals.write(given.docs, goal_rows(runs))
    for failure in failures:
        print(f"\n{failure}", file=sys.stderr)
    return 1 if failures else 0


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.durable", description=bench.durable.__doc__
    )
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--rounds", type=int, default=5, help="turns per contender (5)")
    parser.add_argument("--seconds", type=float, default=2.0, help="measured time of a turn (2)")
    parser.add_argument("--warm-up", type=float, default=1.0, help="seconds of warm-up (1)")
    parser.add_argument("--clients", type=int, nargs="+", default=CLIENTS, help="(1 16 64)")
    parser.add_argument("--only", nargs="+", metavar="TEXT", help="only contenders with TEXT")
    parser.add_argument("--docs", type=Path, help="page to write the tables to")
    builds.add_option(parser)
    quiet.add_option(parser)
    return parser.parse_args(arguments)


# --- measuring ------------------------------------------------------------------------------------
def measure(
    present: Sequence[Contender], given: argparse.Namespace, calm: Quiet
) -> tuple[Runs, list[str]]:
    """Run all contenders in each round; skip a contender at a number of clients where it failed."""
    runs: Runs = {}
    failures: list[str] = []

    def take_round(clients: int, number: int, taking_part: Sequence[Contender]) -> Turns:
        turns = {}
        for contender in taking_part:
            try:
                figures = _turn(contender, clients, given)
            except ProcessFailed as failure:
                failures.append(f"{contender.name}, {clients} clients: {failure}")
                continue
            turns[contender.name] = figures
            pace = figures["requests_per_s"]
            place = f"{number + 1}/{given.rounds} {contender.name:40} {clients:3}"
            print(f"{place} {pace:9,.0f}/s", flush=True)
        return turns

    for clients in given.clients:
        taking_part = [
            each for each in present if any(text in each.name for text in given.only or [""])
        ]
        for number in range(given.rounds):
            turns = calm.take(partial(take_round, clients, number, taking_part))
            taking_part = [each for each in taking_part if each.name in turns]
            for name, figures in turns.items():
                runs.setdefault((name, clients), {})[number] = figures
    return runs, failures


def _turn(contender: Contender, clients: int, given: argparse.Namespace) -> Figures:
    """Start new processes, measure, and end the processes."""
    with TemporaryDirectory(prefix="requite-bench-") as folder, Children() as children:
        try:
            place = contender.serve(Path(folder), children)
            job = _job(place.port, place.pid, clients, given)
            command = ["env", f"BENCH_FOLDER={folder}", contender.python]
            command += ["-m", "bench.durable.peer"]
            client = children.start([*command, contender.part, job.to_argument()], name="clients")
            patience_s = job.warm_up_s + 3 * job.seconds + SLACK_S
            figures: Figures = json.loads(client.wait_for(r"^\{.*\}$", patience_s)[0])
        except ProcessFailed as failure:
            raise ProcessFailed(f"{failure}\n{children.report()}") from None
    return figures


def _job(port: int, pid: int, clients: int, given: argparse.Namespace) -> Job:
    return Job(
        port=port,
        broker_pid=pid,
        worker_pids=[],
        dialect="",
        window=clients,
        workers=0,
        body_size_bytes=_BODY_SIZE,
        capacity=0,
        seconds=given.seconds,
        requests=0,
        warm_up_s=given.warm_up,
    )


# --- reporting ------------------------------------------------------------------------------------
def report(
    runs: Runs,
    present: Sequence[Contender],
    given: argparse.Namespace,
    how: str,
    calm: Quiet,
    absent: Sequence[str],
) -> str:
    """Return the table, and which goals were reached."""
    header = ["kept by", "how", *(f"{n} clients: requests/s" for n in given.clients)]
    header += [f"{n} clients: CPU of clients / server, µs" for n in given.clients[-1:]]
    rows = [
        [each.name, each.note, *_row(runs, each.name, given.clients)]
        for each in present
        if any(name == each.name for name, _ in runs)
    ]
    facts = machine.facts(builds.all_of(given), ("aio-pika", "pika"))
    parts = [
        f"{how}: medians of {given.rounds} interleaved rounds, each turn of {given.seconds:g} s,"
        f" 1 KiB requests. {calm.words()}",
        page.sentence(facts),
        page.table(header, rows),
        "**Goals**",
        goals.table(goal_rows(runs)),
        *(f"Skipped: {name}." for name in absent),
    ]
    return "\n\n".join(parts)


def goal_rows(runs: Runs) -> list[list[str]]:
    """Return the rows of the goals."""

    def figures_of(cell: str, name: str, figure: str) -> dict[int, float]:
        rounds = runs.get((name, int(cell.removesuffix(" clients"))), {})
        return {number: each[figure] for number, each in rounds.items()}

    return goals.rows("durable", figures_of)


def _row(runs: Runs, name: str, clients: Sequence[int]) -> Iterator[str]:
    for number in clients:
        yield _median(runs, name, number, "requests_per_s", ",.0f")
    last = clients[-1]
    cpu = (_median(runs, name, last, f"{who}_cpu_us", ".0f") for who in ("client", "broker"))
    yield " / ".join(cpu)


def _median(runs: Runs, name: str, clients: int, figure: str, form: str) -> str:
    values = [figures[figure] for figures in runs.get((name, clients), {}).values()]
    return format(median(values), form) if values else "-"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
