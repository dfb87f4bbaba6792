"""Base of clients and workers: a process that stays connected to RabbitMQ."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from requite.framing.amqp import Amqp, AmqpSettings
from requite.framing.base import Framing
from requite.sim.amqp.stage import AmqpStage
from requite.sim.amqp.watch import Hub
from requite.sim.kernel.party import MESSAGE_SIZE_MAX, Party, watched
from requite.sim.rabbitmq.process import RABBIT

if TYPE_CHECKING:
    from requite.sim.kernel.stream import SimStream


class AmqpParty(Party[AmqpStage]):
    """A client or a worker."""

    hub: Hub
    observer = Hub
    keeps = ((RABBIT, None),)

    def make_framing(self, stream: SimStream, place: Any, accepted: bool) -> Framing:
        """Return the client's framing for a new connection."""
        timeout_s = self.stage.knobs.heartbeat_timeout_s
        settings = AmqpSettings(heartbeat_s=timeout_s, body_size_max=MESSAGE_SIZE_MAX)
        return watched(Amqp(settings), stream, self.stage.history)
