"""The processes of a run."""

from __future__ import annotations

from requite.sim.amqp.clients import AmqpClient
from requite.sim.amqp.rabbit import RabbitParty
from requite.sim.amqp.stage import AmqpStage
from requite.sim.amqp.workers import AmqpWorker
from requite.sim.party import BaseParty
from requite.sim.process import Process


class AmqpCast:
    """All processes of a run, not yet started."""

    def __init__(self, stage: AmqpStage) -> None:
        knobs = stage.knobs
        self.world = stage.world
        self.network = stage.network
        self.rabbit = RabbitParty(stage)
        self.clients = [AmqpClient(spec, stage) for spec in knobs.clients]
        self.workers = [AmqpWorker(spec, stage) for spec in knobs.workers]
        self.parties: list[BaseParty[AmqpStage]] = [self.rabbit, *self.clients, *self.workers]
        self.honest: list[Process] = [*self.parties]
        self.intruders: list[Process] = []
        self._by_name = {client.name: client for client in self.clients}

    def client(self, name: str) -> AmqpClient:
        """Return the client of that name."""
        return self._by_name[name]
