"""The command line: `python -m bench.durable --help`."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Final

import bench.durable
from bench import machine
from bench.durable.contenders import AIO_PIKA, PIKA, TITANIC, Contender, contenders
from bench.job import Job
from bench.spark import page
from requite.testing.processes import Children, ProcessFailed

CLIENTS: Final = (1, 16, 64)
GOAL: Final = 10.0  # times RabbitMQ's confirmed publishing, at 64 clients
SLACK_S: Final = 60.0
_BODY_SIZE: Final = 1024

Figures = dict[str, float]
Runs = dict[tuple[str, int], dict[int, Figures]]


def main(arguments: Sequence[str]) -> int:
    """Measure and report; return 1 if a contender failed."""
    given = parse(arguments)
    with TemporaryDirectory(prefix="requite-bench-") as name, contenders(Path(name)) as everybody:
        absent = {each.name: why for each in everybody if (why := each.lack()) is not None}
        present = [each for each in everybody if each.name not in absent]
        runs, failures = measure(present, given)
    how = f"Made by `{shlex.join(['python', '-m', 'bench.durable', *arguments])}`"
    text = report(runs, present, given, how, [*map(": ".join, absent.items())])
    print(text)
    if given.docs and not failures:
        page.write(given.docs, "durable", text, maker="bench")
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
    return parser.parse_args(arguments)


# --- measuring ------------------------------------------------------------------------------------
def measure(present: Sequence[Contender], given: argparse.Namespace) -> tuple[Runs, list[str]]:
    """Run all contenders in each round; skip a contender at a number of clients where it failed."""
    runs: Runs = {}
    failures: list[str] = []
    for clients, number, contender in _turns(present, given):
        failed = f"{contender.name}, {clients} clients: "
        if any(failure.startswith(failed) for failure in failures):
            continue
        try:
            figures = _turn(contender, clients, given)
        except ProcessFailed as failure:
            failures.append(f"{failed}{failure}")
            continue
        runs.setdefault((contender.name, clients), {})[number] = figures
        pace = figures["requests_per_s"]
        print(
            f"{number + 1}/{given.rounds} {contender.name:34} {clients:3} {pace:9,.0f}/s",
            flush=True,
        )
    return runs, failures


def _turns(
    present: Sequence[Contender], given: argparse.Namespace
) -> Iterator[tuple[int, int, Contender]]:
    for clients in given.clients:
        for number in range(given.rounds):
            for contender in present:
                if any(text in contender.name for text in given.only or [""]):
                    yield clients, number, contender


def _turn(contender: Contender, clients: int, given: argparse.Namespace) -> Figures:
    """Start new processes, measure, and end the processes."""
    with TemporaryDirectory(prefix="requite-bench-") as folder, Children() as children:
        try:
            place = contender.serve(Path(folder), children)
            job = _job(place.port, place.pid, clients, given)
            command = ["env", f"BENCH_FOLDER={folder}", sys.executable, "-m", "bench.durable.peer"]
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
    absent: Sequence[str],
) -> str:
    """Return the table, and whether the goal was reached."""
    header = ["kept by", "how", *(f"{n} clients: requests/s" for n in given.clients)]
    header += [f"{n} clients: CPU of clients / server, µs" for n in given.clients[-1:]]
    rows = [
        [each.name, each.note, *_row(runs, each.name, given.clients)]
        for each in present
        if any(name == each.name for name, _ in runs)
    ]
    facts = {name: fact for name, fact in machine.facts().items() if name in _OF_INTEREST}
    parts = [
        f"{how}: medians of {given.rounds} interleaved rounds, each turn of {given.seconds:g} s,"
        f" 1 KiB requests.",
        "; ".join(f"{what} {value}" for what, value in facts.items()) + ".",
        page.table(header, rows),
        *_verdict(runs, max(given.clients)),
        *(f"Skipped: {name}." for name in absent),
    ]
    return "\n\n".join(parts)


_OF_INTEREST: Final = ("cores", "system", "Python", "requite", "uvloop")


def _row(runs: Runs, name: str, clients: Sequence[int]) -> Iterator[str]:
    for number in clients:
        yield _median(runs, name, number, "requests_per_s", ",.0f")
    last = clients[-1]
    cpu = (_median(runs, name, last, f"{who}_cpu_us", ".0f") for who in ("client", "broker"))
    yield " / ".join(cpu)


def _median(runs: Runs, name: str, clients: int, figure: str, form: str) -> str:
    values = [figures[figure] for figures in runs.get((name, clients), {}).values()]
    return format(median(values), form) if values else "-"


def _verdict(runs: Runs, clients: int) -> Iterator[str]:
    mine = runs.get((TITANIC.name, clients), {})
    for name in (PIKA, AIO_PIKA):
        theirs = runs.get((name, clients), {})
        ratios = [
            mine[number]["requests_per_s"] / theirs[number]["requests_per_s"]
            for number in mine.keys() & theirs.keys()
        ]
        if ratios:
            verdict = "reached" if median(ratios) >= GOAL else "not reached"
            yield (
                f"With {clients} clients, {TITANIC.name}: {median(ratios):.1f} times {name}"
                f" (goal: at least {GOAL:g}): {verdict}."
            )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
