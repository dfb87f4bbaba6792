"""The processes of a run."""

from __future__ import annotations

from typing import Final

from requite.sim.freelance.clients import FlpClient
from requite.sim.freelance.intruder import FlpIntruder
from requite.sim.freelance.party import Party
from requite.sim.freelance.servers import FlpServer
from requite.sim.freelance.stage import FlpStage
from requite.sim.process import Process

_INTRUDERS: Final = 2


class FlpCast:
    """All processes of a run, not yet started."""

    def __init__(self, stage: FlpStage) -> None:
        knobs = stage.knobs
        self.world = stage.world
        self.network = stage.network
        self.clients = [FlpClient(spec, stage) for spec in knobs.clients]
        self.servers = [FlpServer(spec, stage) for spec in knobs.servers]
        self.intruders = [FlpIntruder(f"intruder-{i + 1}", stage) for i in range(_INTRUDERS)]
        self.parties: list[Party] = [*self.clients, *self.servers]
        self.honest: list[Process] = [*self.parties]
        self._by_name = {client.name: client for client in self.clients}

    def client(self, name: str) -> FlpClient:
        """Return the client of that name."""
        return self._by_name[name]
