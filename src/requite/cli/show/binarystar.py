"""Binary Star: two brokers of which one serves; the other takes over when that is gone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from requite.cli.show.majordomo import HEARTBEAT, HEARTBEAT_OPTIONS
from requite.cli.show.pattern import SERVICE, Plot
from requite.cli.show.traffic import RETRY
from requite.cli.show.troupe import Start, Troupe, command
from requite.client import AsyncClient
from requite.testing.processes import free_ports

_SERVICE_NAME: Final = "nearest"
_ROLES: Final = ("primary", "backup")
# Short, so that one sees it happen; the default is a second.
_PAIR_HEARTBEAT: Final = "--pair-heartbeat=0.25"


class BinaryStar(Troupe):
    """Clients and workers know both brokers. Each is killed in its turn: whichever serves by then,
    the other one has it all from there on, and nobody falls back by himself."""

    def __init__(self, plot: Plot) -> None:
        super().__init__(plot)
        self._fronts, self._links = free_ports(2), free_ports(2)

    def middles(self) -> Sequence[Start]:
        """Primary and backup."""
        links = [f"tcp://127.0.0.1:{port}" for port in self._links]
        return [
            command(
                role,
                "broker",
                f"--{role}",
                f"--bind=tcp://127.0.0.1:{front}",
                f"--pair-bind={mine}",
                f"--peer={other}",
                _PAIR_HEARTBEAT,
                *HEARTBEAT_OPTIONS,
            )
            for role, front, mine, other in zip(
                _ROLES, self._fronts, links, reversed(links), strict=True
            )
        ]

    def workers(self) -> Sequence[Start]:
        """Workers that register with whichever serves."""
        place = f"--connect={self._url}"
        return [
            command(f"worker {number}", "worker", SERVICE, place, *HEARTBEAT_OPTIONS)
            for number in range(1, self.plot.workers + 1)
        ]

    def new_client(self) -> AsyncClient:
        """Make a client that knows both."""
        return AsyncClient(
            self._url,
            service=_SERVICE_NAME,
            retry=RETRY,
            heartbeat=HEARTBEAT,
            slots=self.plot.concurrency,
        )

    @property
    def _url(self) -> str:
        return "mdp://" + ",".join(f"127.0.0.1:{port}" for port in self._fronts)
