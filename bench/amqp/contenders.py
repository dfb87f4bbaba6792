"""The contenders: client and servant of each, and what is missing to run them."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any, Final, NamedTuple

from bench.builds import Build
from bench.job import Job
from requite.testing import rabbitmq


class Part(NamedTuple):
    """A client or servant: a module of this package and its argument."""

    module: str
    name: str

    def command(self, job: Job, python: str = sys.executable) -> list[str]:
        """Return the command line of its process."""
        return [python, "-m", f"bench.amqp.{self.module}", self.name, job.to_argument()]


@dataclass(frozen=True, slots=True)
class Contender:
    """A row: its name, client, servant, queue, the module that they need, and their Python."""

    name: str
    client: Part
    servant: Part
    queue: str = "quorum"
    needs: str = "requite"
    python: str = sys.executable

    def lack(self) -> str | None:
        """Return what is missing, or None."""
        if find_spec(self.needs) is None:
            return f"no module {self.needs}: run `scripts/setup bench`"
        return rabbitmq.unavailable()

    def in_builds(self, builds: Sequence[Build]) -> list[Contender]:
        """Return a contender per build if this is requite, and else itself."""
        if self.needs != "requite":
            return [self]
        return [replace(self, name=each.name(self.name), python=each.python) for each in builds]


QUEUES: Final[Mapping[str, dict[str, Any]]] = {
    "quorum": {"durable": True, "arguments": {"x-queue-type": "quorum"}},
    "classic": {"durable": False},
}
"""Arguments of the request queues: requite's, and those of a plain queue in memory."""

_WORKER: Final = Part("requite_peer", "worker")
_AIO_PIKA: Final = Part("aio_pika_peer", "servant")
_PIKA: Final = Part("pika_peer", "servant")

REQUITE: Final = "AsyncClient, Worker"
AIO_PIKA: Final = "aio-pika"
PIKA: Final = "pika"
REQUITE_BARE: Final = "AsyncClient, Worker: bare"
AIO_PIKA_BARE: Final = "aio-pika: bare"
PIKA_BARE: Final = "pika: bare"

CONTENDERS: Final = (
    Contender(REQUITE, Part("requite_peer", "async-client"), _WORKER),
    Contender("Client, Worker", Part("requite_peer", "client"), _WORKER),
    Contender(AIO_PIKA, Part("aio_pika_peer", "client"), _AIO_PIKA, needs="aio_pika"),
    Contender(PIKA, Part("pika_peer", "client"), _PIKA, needs="pika"),
    Contender(REQUITE_BARE, Part("requite_peer", "async-client-direct"), _WORKER, "classic"),
    Contender(
        AIO_PIKA_BARE,
        Part("aio_pika_peer", "client-bare"),
        Part("aio_pika_peer", "servant-bare"),
        "classic",
        "aio_pika",
    ),
    Contender(
        PIKA_BARE,
        Part("pika_peer", "client-bare"),
        Part("pika_peer", "servant-bare"),
        "classic",
        "pika",
    ),
)


def baseline_of(contender: Contender) -> str:
    """Return the name of the baseline of a contender."""
    return AIO_PIKA_BARE if contender.queue == "classic" else AIO_PIKA
