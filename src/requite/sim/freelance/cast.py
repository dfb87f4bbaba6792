"""The processes of a run."""

from __future__ import annotations

from typing import Final

from requite.sim.freelance.clients import FlpClient
from requite.sim.freelance.intruder import FlpIntruder
from requite.sim.freelance.party import Party
from requite.sim.freelance.servers import FlpServer
from requite.sim.freelance.stage import FlpStage
from requite.sim.kernel.cast import Cast
from requite.sim.kernel.fault_injection import NodePair, choose, spare

_INTRUDERS: Final = 2


class FlpCast(Cast):
    """Clients and servers."""

    def __init__(self, stage: FlpStage) -> None:
        self.clients = [FlpClient(spec, stage) for spec in stage.knobs.clients]
        self.servers = [FlpServer(spec, stage) for spec in stage.knobs.servers]
        self.parties: list[Party] = [*self.clients, *self.servers]
        super().__init__(
            stage,
            {"client": self.clients, "server": self.servers},
            [FlpIntruder(f"intruder-{i + 1}", stage) for i in range(_INTRUDERS)],
        )

    def choose_nodes(self, lot: float) -> NodePair:
        """Choose a pair of client and server."""
        return choose(self.clients, lot).name, choose(self.servers, spare(lot)).name
