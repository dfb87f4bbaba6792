"""Run the lines of a cell interleaved: each round has one run of each (A B C, A B C, ...)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial

from bench.job import Job
from bench.quiet import Quiet
from bench.sp.cells import Cell, Line
from requite.testing.processes import Children, ProcessFailed

START_S = 60.0
SLACK_S = 30.0
_LISTENING = r"^listening on \S+:(\d+)$"

Figures = dict[str, float]


@dataclass(frozen=True, slots=True)
class Settings:
    """Number and duration of runs; `Job` describes how `seconds` and `requests` combine."""

    rounds: int
    seconds: float
    requests: int
    warm_up_s: float


@dataclass(frozen=True, slots=True)
class Run:
    """A run of a line in a round: its figures, or the reason of a failure."""

    cell: Cell
    line: Line
    round: int
    figures: Figures | None = None
    failure: str = ""


def run_all(
    cells: Iterable[Cell],
    lines_of: Callable[[Cell], list[Line]],
    settings: Settings,
    quiet: Quiet,
) -> Iterator[Run]:
    """Yield the runs of each round as it ends. After a failure, skip the contender for the rest of
    the cell."""
    for cell in cells:
        lines = lines_of(cell)
        for number in range(settings.rounds):
            runs = quiet.take(partial(run_round, cell, lines, number, settings))
            lines = [run.line for run in runs if not run.failure]
            yield from runs


def run_round(cell: Cell, lines: Iterable[Line], number: int, settings: Settings) -> list[Run]:
    """Run each line once."""
    return [run_once(cell, line, number, settings) for line in lines]


def run_once(cell: Cell, line: Line, number: int, settings: Settings) -> Run:
    """Start new processes, measure, and end the processes."""
    with Children() as children:
        try:
            figures = measure(line, first_job(cell, settings), children)
        except ProcessFailed as failure:
            return Run(cell, line, number, failure=f"{failure}\n{children.report()}")
        return Run(cell, line, number, figures)


def first_job(cell: Cell, settings: Settings) -> Job:
    """Return the job, without the ports and process ids of processes that are not started yet."""
    return Job(
        port=0,
        broker_pid=0,
        worker_pids=[],
        dialect="sp",
        window=cell.section.window,
        workers=1,
        body_size_bytes=cell.body_size_bytes,
        capacity=cell.section.window,
        seconds=settings.seconds,
        requests=settings.requests,
        warm_up_s=settings.warm_up_s,
    )


def measure(line: Line, job: Job, children: Children) -> Figures:
    """Start service, device and client in this order; return what the client measured."""
    service = children.start(line.service.command(job, line.python), name="the service")
    port = int(service.wait_for(_LISTENING, START_S)[1])
    job = replace(job, port=port, worker_pids=[service.pid])
    if line.device is not None:
        device = children.start(line.device.command(job, line.python), name="the device")
        port = int(device.wait_for(_LISTENING, START_S)[1])
        job = replace(job, port=port, broker_pid=device.pid)
    client = children.start(line.client.command(job, line.python), name="the client")
    patience_s = job.warm_up_s + 3 * job.seconds + SLACK_S
    figures: Figures = json.loads(client.wait_for(r"^\{.*\}$", patience_s)[0])
    return figures
