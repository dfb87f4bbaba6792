"""The processes of a run."""

from __future__ import annotations

from typing import Final

from requite.sim.process import Process
from requite.sim.scalability.clients import SpClient
from requite.sim.scalability.devices import Device
from requite.sim.scalability.intruder import SpIntruder
from requite.sim.scalability.party import Party, SpStage
from requite.sim.scalability.workers import SpWorker

_INTRUDERS: Final = 3


class SpCast:
    """All processes of a run, not yet started."""

    def __init__(self, stage: SpStage) -> None:
        knobs = stage.knobs
        self.world = stage.world
        self.network = stage.network
        self.edges = knobs.edges
        self.clients = [SpClient(spec, stage) for spec in knobs.clients]
        self.devices = [Device(spec, stage) for spec in knobs.devices]
        self.workers = [SpWorker(spec, stage) for spec in knobs.workers]
        self.intruders = [SpIntruder(f"intruder-{i + 1}", stage) for i in range(_INTRUDERS)]
        self.parties: list[Party] = [*self.clients, *self.devices, *self.workers]
        self.honest: list[Process] = [*self.parties]
        self._by_name = {client.name: client for client in self.clients}

    def client(self, name: str) -> SpClient:
        """Return the client of that name."""
        return self._by_name[name]
