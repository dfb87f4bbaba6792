"""The processes of a run."""

from __future__ import annotations

from requite.sim.amqp.clients import AmqpClient
from requite.sim.amqp.stage import AmqpStage
from requite.sim.amqp.store import AmqpStore
from requite.sim.amqp.workers import AmqpWorker
from requite.sim.kernel.cast import Cast
from requite.sim.kernel.fault_injection import NodePair, choose
from requite.sim.kernel.party import Party
from requite.sim.rabbitmq.process import RabbitParty


class AmqpCast(Cast):
    """RabbitMQ, clients and workers."""

    def __init__(self, stage: AmqpStage) -> None:
        knobs = stage.knobs
        self.store = AmqpStore(stage.world, knobs)
        self.rabbit = RabbitParty(stage, self.store, knobs.server)
        self.clients = [AmqpClient(spec, stage) for spec in knobs.clients]
        self.workers = [AmqpWorker(spec, stage) for spec in knobs.workers]
        self.parties: list[Party[AmqpStage]] = [self.rabbit, *self.clients, *self.workers]
        super().__init__(
            stage, {"rabbit": [self.rabbit], "client": self.clients, "worker": self.workers}
        )

    def choose_nodes(self, lot: float) -> NodePair:
        """Choose a client or worker, and RabbitMQ."""
        return choose([*self.clients, *self.workers], lot).name, self.rabbit.name
