"""The contenders: how each is started, and what is missing if it cannot be."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Final, NamedTuple

from bench.builds import Build
from requite.testing import rabbitmq
from requite.testing.processes import Children

_START_S: Final = 15.0
_LISTENING: Final = r"^listening on \S+:(\d+)$"


class Place(NamedTuple):
    """Address of a server; without port and process if the clients need no server."""

    port: int = 0
    pid: int = 0


Serve = Callable[[Path, Children], Place]


@dataclass(frozen=True, slots=True)
class Contender:
    """A row: its name, its clients' role in `bench.durable.peer`, its server, and the clients'
    Python."""

    name: str
    part: str
    serve: Serve
    lack: Callable[[], str | None]
    note: str
    python: str = sys.executable


def _nobody(_folder: Path, _children: Children) -> Place:
    return Place()


def _nothing() -> None:
    return None


def _titanic(build: Build, folder: Path, children: Children) -> Place:
    """Start a broker with an embedded Titanic."""
    bind, keep = "--bind=tcp://127.0.0.1:0", f"--titanic={folder / 'titanic'}"
    broker = children.start(build.command("broker", bind, keep), name="the broker")
    return Place(int(broker.wait_for(_LISTENING, _START_S)[1]), broker.pid)


def _needs(module: str) -> Callable[[], str | None]:
    def lack() -> str | None:
        if find_spec(module) is None:
            return f"no module {module}: run `scripts/setup bench`"
        return rabbitmq.unavailable()

    return lack


PIKA: Final = "RabbitMQ, pika"
AIO_PIKA: Final = "RabbitMQ, aio-pika"
_REQUITE: Final = {
    "requite, a connection per client": "titanic",
    "requite, one connection": "titanic-shared",
}
_WITH_TITANIC: Final = "broker with --titanic"


@contextmanager
def contenders(folder: Path, builds: Sequence[Build]) -> Iterator[list[Contender]]:
    """Yield all contenders. RabbitMQ takes seconds to start, so it runs until the end."""
    requites = [
        Contender(
            build.name(name), part, partial(_titanic, build), _nothing, _WITH_TITANIC, build.python
        )
        for name, part in _REQUITE.items()
        for build in builds
    ]
    grouped = Contender(
        "SQLite, one writer", "sqlite-grouped", _nobody, _nothing, "in the clients' process"
    )
    alone = Contender("SQLite, a commit each", "sqlite", _nobody, _nothing, "likewise")
    fixed = [*requites, grouped, alone]
    if rabbitmq.unavailable() is not None:
        yield [*fixed, *_on_rabbit(Place())]
        return
    with rabbitmq.RabbitServer(folder, management=False) as server:
        yield [*fixed, *_on_rabbit(Place(server.port, server.pid))]


def _on_rabbit(place: Place) -> list[Contender]:
    def serve(_folder: Path, _children: Children) -> Place:
        return place

    what = "durable queue, persistent, confirmed"
    return [
        Contender(PIKA, "pika", serve, _needs("pika"), what),
        Contender(AIO_PIKA, "aio-pika", serve, _needs("aio_pika"), what),
    ]
