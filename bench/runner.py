"""Run contenders interleaved: each round has one run of each (A B C, A B C, ...)."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

from bench.brokers.native import load_command
from bench.cells import Cell
from bench.contenders import Contender
from bench.job import Job
from bench.quiet import Quiet
from requite.testing.processes import Child, Children, ProcessFailed

START_S = 60.0
SLACK_S = 30.0

Figures = dict[str, float]


@dataclass(frozen=True, slots=True)
class Settings:
    """Number and duration of runs; `Job` describes how `seconds` and `requests` combine."""

    runs: int
    seconds: float
    requests: int
    warm_up_s: float
    capacity: int


@dataclass(frozen=True, slots=True)
class Run:
    """A run of a contender in a round: its figures, or the reason of a failure."""

    cell: Cell
    contender: Contender
    round: int
    figures: Figures | None = None
    failure: str = ""


def run_all(
    cells: Iterable[Cell], contenders: Sequence[Contender], settings: Settings, quiet: Quiet
) -> Iterator[Run]:
    """Yield the runs of each round as it ends. After a failure, skip the contender for the rest of
    the cell."""
    for cell in cells:
        taking_part = [each for each in contenders if each.kind == cell.kind]
        for number in range(settings.runs):
            runs = quiet.take(partial(run_round, cell, taking_part, number, settings))
            taking_part = [run.contender for run in runs if not run.failure]
            yield from runs


def run_round(
    cell: Cell, contenders: Sequence[Contender], number: int, settings: Settings
) -> list[Run]:
    """Run each contender once."""
    return [run_once(cell, contender, number, settings) for contender in contenders]


def run_once(cell: Cell, contender: Contender, number: int, settings: Settings) -> Run:
    """Start new processes, measure, and end the processes."""
    with Children() as children:
        try:
            figures = measure(cell, contender, settings, children)
        except ProcessFailed as failure:
            why = f"{failure}\n{children.report()}"
            return Run(cell, contender, number, failure=why)
        return Run(cell, contender, number, figures)


def measure(cell: Cell, contender: Contender, settings: Settings, children: Children) -> Figures:
    """Start broker, workers and client in this order; return what the client measured."""
    broker = children.start(contender.broker(), name="the broker")
    port = int(broker.wait_for(contender.listening, START_S)[1])
    job = make_job(cell, contender, settings, port, broker.pid)
    workers = start_workers(contender, job, children)
    for worker in workers:
        worker.wait_for("^ready$", START_S)
    job = replace(job, worker_pids=[worker.pid for worker in workers])
    client = children.start(_command(contender, "client", job), name="the client")
    line = client.wait_for(r"^\{.*\}$", settings.warm_up_s + 3 * settings.seconds + SLACK_S)[0]
    figures: Figures = json.loads(line)
    return figures


def make_job(
    cell: Cell, contender: Contender, settings: Settings, port: int, broker_pid: int
) -> Job:
    """Return the job for the processes of a run."""
    return Job(
        port=port,
        broker_pid=broker_pid,
        worker_pids=[],
        dialect=contender.dialect,
        window=cell.window,
        workers=cell.workers,
        body_size_bytes=cell.body_size_bytes,
        capacity=settings.capacity,
        seconds=settings.seconds,
        requests=settings.requests,
        warm_up_s=settings.warm_up_s,
        query=contender.query(),
    )


def start_workers(contender: Contender, job: Job, children: Children) -> list[Child]:
    """Start the workers: raw ones in one process, a contender's own in one process each."""
    processes = 1 if contender.dialect else job.workers
    command = _command(contender, "worker", job)
    return [children.start(command, name=f"worker {n}") for n in range(1, processes + 1)]


def _command(contender: Contender, role: Literal["client", "worker"], job: Job) -> list[str]:
    if contender.kind == "native":
        return load_command(role, job)
    if contender.peer:
        module = f"bench.peers.{contender.peer}"
        return [contender.python, "-m", module, role, job.to_argument()]
    module = {"client": "bench.load.client", "worker": "bench.load.workers"}[role]
    return [sys.executable, "-m", module, job.to_argument()]
