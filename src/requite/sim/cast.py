"""The processes of a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from requite.sim.clients import ClientProcess
from requite.sim.intruder import Intruder
from requite.sim.roles import Broker, Stage
from requite.sim.workers import WorkerProcess

if TYPE_CHECKING:
    from requite.sim.process import Process

_INTRUDERS = 3


class Cast:
    """All processes of a run, not yet started."""

    make_client: type[ClientProcess] = ClientProcess
    make_worker: type[WorkerProcess] = WorkerProcess

    def __init__(self, stage: Stage) -> None:
        self.world = stage.world
        self.network = stage.network
        self.broker = Broker(stage)
        self.brokers: Sequence[Broker] = [self.broker]
        self.clients = [self.make_client(spec, stage) for spec in stage.knobs.clients]
        self.workers = [self.make_worker(spec, stage) for spec in stage.knobs.workers]
        self.intruders = [Intruder(f"intruder-{i + 1}", stage) for i in range(_INTRUDERS)]
        self.peers: list[Process] = [*self.clients, *self.workers]
        self.honest: list[Process] = [self.broker, *self.peers]
        self._by_name = {client.name: client for client in self.clients}

    def client(self, name: str) -> ClientProcess:
        """Return the client of that name."""
        return self._by_name[name]
