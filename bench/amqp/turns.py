"""A turn of a contender with a new queue, servants and a client; and the shared RabbitMQ."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from base64 import b64encode
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from bench import machine, page
from bench.amqp.contenders import QUEUES, Contender, Part
from bench.builds import THIS, Build
from bench.job import Job
from requite.testing.processes import Children, ProcessFailed
from requite.testing.rabbitmq import RabbitServer

START_S: Final = 60.0
SLACK_S: Final = 60.0
_FIGURES_MS: Final = 5000  # the default of RabbitMQ

Figures = dict[str, float]


@dataclass(frozen=True, slots=True)
class Settings:
    """Number and duration of turns, in seconds."""

    rounds: int
    seconds: float
    warm_up_s: float


def settings_of(given: Namespace) -> Settings:
    """Return the settings of the command line."""
    return Settings(given.rounds, given.seconds, 0.2 if given.quick else 0.5)


@contextmanager
def shared_rabbit() -> Iterator[RabbitServer]:
    """Run a RabbitMQ with its management API."""
    with (
        TemporaryDirectory(prefix="requite-bench-") as name,
        RabbitServer(Path(name), figures_ms=_FIGURES_MS) as rabbit,
    ):
        yield rabbit


def make_job(rabbit: RabbitServer, settings: Settings, window: int, size: int, queue: str) -> Job:
    """Return the job for the processes of a run."""
    return Job(
        port=rabbit.port,
        broker_pid=rabbit.pid,
        worker_pids=[],
        dialect=queue,
        window=window,
        workers=1,
        body_size_bytes=size,
        capacity=window,
        seconds=settings.seconds,
        requests=0,
        warm_up_s=settings.warm_up_s,
    )


def take_turn(rabbit: RabbitServer, contender: Contender, job: Job) -> Figures:
    """Run a turn of a contender. Raises `ProcessFailed`."""
    declare(rabbit, job.dialect)
    return measure(contender.client, contender.servant, job, contender.python)


def measure(client: Part, servant: Part, job: Job, python: str = sys.executable) -> Figures:
    """Start the servants of the job, then a client; return the client's figures."""
    with Children() as children:
        try:
            servants = [
                children.start(servant.command(job, python), name=f"servant {number}")
                for number in range(1, job.workers + 1)
            ]
            for each in servants:
                each.wait_for("^ready$", START_S)
            complete = replace(job, worker_pids=[each.pid for each in servants])
            caller = children.start(client.command(complete, python), name="the client")
            patience_s = job.warm_up_s + 3 * job.seconds + SLACK_S
            figures: Figures = json.loads(caller.wait_for(r"^\{.*\}$", patience_s)[0])
        except ProcessFailed as failure:
            raise ProcessFailed(f"{failure}\n{children.report()}") from None
    return figures


def declare(rabbit: RabbitServer, queue: str) -> None:
    """Delete and declare the queue, so that it has no messages of earlier turns."""
    with suppress(HTTPError):  # no such queue
        ask(rabbit, f"/queues/%2F/{queue}", "DELETE")
    ask(rabbit, f"/queues/%2F/{queue}", "PUT", QUEUES[queue])


def ask(rabbit: RabbitServer, path: str, method: str = "GET", body: object = None) -> Any:
    """Query the management API; `path` has no /api."""
    request = Request(
        f"http://127.0.0.1:{rabbit.management_port}/api{path}",
        None if body is None else json.dumps(body).encode(),
        {
            "Authorization": f"Basic {b64encode(b'guest:guest').decode()}",
            "Content-Type": "application/json",
        },
        method=method,
    )
    with urlopen(request) as answer:
        text = answer.read()
    return json.loads(text) if text else None


def facts(rabbit: RabbitServer, measured: Sequence[Build] = (THIS,)) -> str:
    """Return facts of the machine, and the versions of the contenders."""
    found = machine.facts(measured, ("aio-pika", "aiormq", "pika"))
    found["RabbitMQ"] = ask(rabbit, "/overview")["rabbitmq_version"]
    return page.sentence(found)


def publish(given: Namespace, name: str, text: str, to: str = "performance.md") -> None:
    """Print a report; with --docs write it to its page."""
    print(f"\n{text}\n", flush=True)
    if given.docs is not None:
        page.write(given.docs / to, name, text, maker="bench")
