"""Base of clients and workers: a process that stays connected to RabbitMQ."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from requite.framing.amqp import Amqp, AmqpSettings
from requite.framing.base import Message
from requite.sim.amqp.stage import AmqpStage
from requite.sim.amqp.watch import Hub
from requite.sim.kernel.history import History
from requite.sim.kernel.party import MESSAGE_SIZE_MAX, Party, telling_who_is_expelled
from requite.sim.rabbitmq.process import RABBIT

if TYPE_CHECKING:
    from requite.sim.kernel.stream import SimStream


class _Framing(Amqp):
    """The framing of one connection; it reports if it refuses bytes of RabbitMQ, which are always
    valid."""

    def __init__(self, settings: AmqpSettings, stream: SimStream, history: History) -> None:
        super().__init__(settings)
        self._stream = stream
        self._history = history

    def receive(self, chunk: bytes) -> list[Message]:
        """Decode bytes; report bytes that are refused."""
        with telling_who_is_expelled(self._history, self._stream):
            return super().receive(chunk)


class AmqpParty(Party[AmqpStage]):
    """A client or a worker."""

    hub: Hub
    observer = Hub
    keeps = ((RABBIT, None),)

    def make_framing(self, stream: SimStream, place: Any, accepted: bool) -> _Framing:
        """Return the client's framing for a new connection."""
        timeout_s = self.stage.knobs.heartbeat_timeout_s
        settings = AmqpSettings(heartbeat_s=timeout_s, body_size_max=MESSAGE_SIZE_MAX)
        return _Framing(settings, stream, self.stage.history)
