"""The processes of a run."""

from __future__ import annotations

from typing import Final

from requite.sim.kernel.cast import Cast
from requite.sim.kernel.fault_injection import NodePair, choose
from requite.sim.scalability.clients import SpClient
from requite.sim.scalability.devices import Device
from requite.sim.scalability.intruder import SpIntruder
from requite.sim.scalability.party import Party, SpStage
from requite.sim.scalability.workers import SpWorker

_INTRUDERS: Final = 3


class SpCast(Cast):
    """Clients, devices and workers of a topology."""

    def __init__(self, stage: SpStage) -> None:
        knobs = stage.knobs
        self.edges = knobs.edges
        self.clients = [SpClient(spec, stage) for spec in knobs.clients]
        self.devices = [Device(spec, stage) for spec in knobs.devices]
        self.workers = [SpWorker(spec, stage) for spec in knobs.workers]
        self.parties: list[Party] = [*self.clients, *self.devices, *self.workers]
        super().__init__(
            stage,
            {"client": self.clients, "device": self.devices, "worker": self.workers},
            [SpIntruder(f"intruder-{i + 1}", stage) for i in range(_INTRUDERS)],
        )

    def choose_nodes(self, lot: float) -> NodePair:
        """Choose two connected processes."""
        edge = choose(self.edges, lot)
        return edge.upper, edge.lower
