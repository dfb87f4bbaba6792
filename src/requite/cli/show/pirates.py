"""The Pirates: a client that asks again, a queue in the middle, and heartbeats."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar, Final

from requite.cli.show.pattern import SERVICE, Plot
from requite.cli.show.traffic import RETRY
from requite.cli.show.troupe import Start, Troupe, command
from requite.client import AsyncClient
from requite.testing.processes import free_ports

# A request that a dead server or worker had is lost, and found out by the time alone.
_RETRY: Final = replace(RETRY, attempt_timeout=0.5)


class _Pirates(Troupe):
    """Clients ask at the first port."""

    def __init__(self, plot: Plot) -> None:
        super().__init__(plot)
        self._front, self._back = free_ports(2)

    def new_client(self) -> AsyncClient:
        """Make a Lazy Pirate."""
        slots = self.plot.concurrency
        url = f"pirate://127.0.0.1:{self._front}"
        return AsyncClient(url, retry=_RETRY, slots=slots, connections=slots)


class LazyPirates(_Pirates):
    """One server, which comes back; the clients ask again until it does."""

    def middles(self) -> Sequence[Start]:
        """Nobody stands in between."""
        return []

    def workers(self) -> Sequence[Start]:
        """One server, whatever the number of workers."""
        place = f"--bind=pirate://127.0.0.1:{self._front}"
        return [command("server", "worker", SERVICE, place)]


class _Queued(_Pirates):
    """A queue, and workers that sign up at it."""

    protocol: ClassVar[str]
    habits: ClassVar[tuple[str, ...]] = ()

    def middles(self) -> Sequence[Start]:
        """The queue."""
        places = (f"--front=tcp://127.0.0.1:{self._front}", f"--back=tcp://127.0.0.1:{self._back}")
        return [
            command("queue", "queue", f"--protocol={self.protocol}", *places, *self.habits),
        ]

    def workers(self) -> Sequence[Start]:
        """Workers, one request each at a time."""
        url = f"pirate://127.0.0.1:{self._back}?protocol={self.protocol}"
        return [
            command(f"worker {number}", "worker", SERVICE, f"--connect={url}", *self.habits)
            for number in range(1, self.plot.workers + 1)
        ]


class SimplePirates(_Queued):
    """READY and nothing else: that a worker is gone is noticed by its connection."""

    protocol = "simple"


class ParanoidPirates(_Queued):
    """Heartbeats in both directions."""

    protocol = "paranoid"
    habits = ("--heartbeat-interval=0.2", "--liveness=4")
