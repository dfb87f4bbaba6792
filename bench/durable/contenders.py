"""The contenders: how each is started, and what is missing if it cannot be."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final, NamedTuple

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
    """A row: its name, its clients' role in `bench.durable.peer`, and its server."""

    name: str
    part: str
    serve: Serve
    lack: Callable[[], str | None]
    note: str


def _nobody(_folder: Path, _children: Children) -> Place:
    return Place()


def _nothing() -> None:
    return None


def _titanic(folder: Path, children: Children) -> Place:
    """Start a broker with an embedded Titanic."""
    bind, keep = "--bind=tcp://127.0.0.1:0", f"--titanic={folder / 'titanic'}"
    broker = children.start(
        [sys.executable, "-m", "requite.cli", "broker", bind, keep], name="the broker"
    )
    return Place(int(broker.wait_for(_LISTENING, _START_S)[1]), broker.pid)


def _needs(module: str) -> Callable[[], str | None]:
    def lack() -> str | None:
        if find_spec(module) is None:
            return f"no module {module}: run `scripts/setup bench`"
        return rabbitmq.unavailable()

    return lack


TITANIC: Final = Contender(
    "requite, a connection per client", "titanic", _titanic, _nothing, "broker with --titanic"
)
PIKA: Final = "RabbitMQ, pika"
AIO_PIKA: Final = "RabbitMQ, aio-pika"


@contextmanager
def contenders(folder: Path) -> Iterator[list[Contender]]:
    """Yield all contenders. RabbitMQ takes seconds to start, so it runs until the end."""
    shared = Contender(
        "requite, one connection", "titanic-shared", _titanic, _nothing, "broker with --titanic"
    )
    grouped = Contender(
        "SQLite, one writer", "sqlite-grouped", _nobody, _nothing, "in the clients' process"
    )
    alone = Contender("SQLite, a commit each", "sqlite", _nobody, _nothing, "likewise")
    fixed = [TITANIC, shared, grouped, alone]
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
