"""A point of a curve, and how the raw load measures one."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

from bench.job import Job
from requite.testing.processes import Child, Children, ProcessFailed

START_S: Final = 180.0  # ten thousand workers register
_REQUESTS: Final = 1_000  # on a slow machine, a point may take three times `seconds`
_SLACK_S: Final = 180.0  # ten thousand clients connect

Figures = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Settings:
    """`points` is the number of points per curve, the smallest first (None: all). `seconds` is the
    measured time of a point; `is_long` adds the points that take many minutes."""

    seconds: float
    points: int | None
    is_long: bool


class Point(NamedTuple):
    """What was measured where the varied quantity was `at`."""

    line: str
    at: float
    figures: Figures


class Broker(NamedTuple):
    """A broker as a process."""

    child: Child
    port: int


def start_broker(children: Children, options: Sequence[str] = ()) -> Broker:
    """Start a broker as a user does."""
    command = [sys.executable, "-m", "requite.cli", "broker", "--bind=tcp://127.0.0.1:0", *options]
    child = children.start(command, name="the broker")
    return Broker(child, int(child.wait_for(r"^listening on \S+:(\d+)$", START_S)[1]))


@contextmanager
def folder() -> Iterator[Path]:
    """Yield a temporary folder."""
    with TemporaryDirectory(prefix="requite-bench-") as name:
        yield Path(name)


def job_for(settings: Settings, **varied: float) -> Job:
    """Return the job of a point: 64 requests in flight and 4 workers, unless `varied`."""
    usual = Job(
        port=0,
        broker_pid=0,
        worker_pids=[],
        dialect="mdp-0.3",
        window=64,
        workers=4,
        body_size_bytes=11,
        capacity=16,
        seconds=settings.seconds,
        requests=_REQUESTS,
        warm_up_s=settings.seconds / 4,
    )
    return replace(usual, **varied)  # type: ignore[arg-type]


def measure(job: Job, options: Sequence[str] = ()) -> Figures:
    """Start a broker and its load, and return what the client measured. Raises `ProcessFailed`."""
    with Children() as children:
        try:
            [figures] = measure_at(children, job, [start_broker(children, options)])
        except ProcessFailed as failure:
            raise ProcessFailed(f"{failure}\n{children.report()}") from None
    return figures


def measure_at(children: Children, job: Job, brokers: Sequence[Broker]) -> list[Figures]:
    """Run the load at all brokers at the same time, and return the figures of each."""
    jobs = [replace(job, port=each.port, broker_pid=each.child.pid) for each in brokers]
    crews = [_start(children, "workers", each) for each in jobs]
    for crew in crews:
        crew.wait_for("^ready$", START_S)
    clients = [
        _start(children, "client", replace(each, worker_pids=[crew.pid]))
        for each, crew in zip(jobs, crews, strict=True)
    ]
    patience_s = job.warm_up_s + job.rest_s + 3 * job.seconds + job.timeout_s + _SLACK_S
    return [json.loads(each.wait_for(r"^\{.*\}$", patience_s)[0]) for each in clients]


def _start(children: Children, role: str, job: Job) -> Child:
    command = [sys.executable, "-m", f"bench.load.{role}", job.to_argument()]
    return children.start(command, name=role)
