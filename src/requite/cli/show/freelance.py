"""Freelance: several equal servers and nobody in between, in its three models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from requite.cli.show.pattern import SERVICE, Plot
from requite.cli.show.traffic import RETRY
from requite.cli.show.troupe import Start, Troupe, command
from requite.client import AsyncClient
from requite.request import RetryPolicy
from requite.testing.processes import free_ports


class _Freelance(Troupe):
    """Servers that every client knows."""

    model: ClassVar[str]
    retry: ClassVar[RetryPolicy | None] = replace(RETRY, attempt_timeout=0.5)

    def __init__(self, plot: Plot) -> None:
        super().__init__(plot)
        self._ports = free_ports(plot.workers)

    def middles(self) -> Sequence[Start]:
        """Nobody stands in between."""
        return []

    def workers(self) -> Sequence[Start]:
        """The servers."""
        places = [f"--bind={self._url(f'127.0.0.1:{port}')}" for port in self._ports]
        return [
            command(f"server {number}", "worker", SERVICE, place)
            for number, place in enumerate(places, 1)
        ]

    def new_client(self) -> AsyncClient:
        """Make a client that knows all servers."""
        places = ",".join(f"127.0.0.1:{port}" for port in self._ports)
        return AsyncClient(self._url(places), retry=self.retry, slots=self.plot.concurrency)

    def _url(self, places: str) -> str:
        return f"flp://{places}?model={self.model}"


class Failover(_Freelance):
    """Model one: ask the next server when one does not answer."""

    model = "failover"


class Shotgun(_Freelance):
    """Model two: ask all servers at once; the first answer wins."""

    model = "shotgun"
    retry = None


class Agent(_Freelance):
    """Model three: know by pings who is there."""

    model = "agent"
