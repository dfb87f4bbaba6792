"""The processes of RPC over AMQP: all but RabbitMQ keep a connection to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from requite.engine import Engine
from requite.framing.amqp import Amqp, AmqpSettings
from requite.framing.base import Message
from requite.protocols.amqp.caller import AmqpCaller
from requite.protocols.amqp.responder import AmqpResponder
from requite.sim.amqp.knobs import AmqpKnobs
from requite.sim.amqp.server import heartbeat_s
from requite.sim.amqp.watch import Hub
from requite.sim.history import History
from requite.sim.party import MESSAGE_SIZE_MAX, KeepingParty, telling_who_is_expelled
from requite.sim.process import Supervisor

if TYPE_CHECKING:
    from requite.sim.network import Network
    from requite.sim.stream import SimStream
    from requite.sim.transcript import Transcript
    from requite.sim.world import World

RABBIT: Final = "rabbit"


@dataclass(frozen=True, slots=True)
class AmqpParts:
    """The engines under test. Mutation tests put broken ones here."""

    caller: Callable[..., Engine] = AmqpCaller
    responder: Callable[..., Engine] = AmqpResponder


@dataclass(frozen=True, slots=True)
class AmqpStage:
    """What all processes of a run share. `names` are the numbers of calls by what they are called
    in messages."""

    world: World
    network: Network
    history: History
    supervisor: Supervisor
    knobs: AmqpKnobs
    parts: AmqpParts = field(default_factory=AmqpParts)
    transcript: Transcript | None = None
    names: dict[str, int] = field(default_factory=dict)


class _Framing(Amqp):
    """The framing of one connection; RabbitMQ never breaks a rule of it."""

    def __init__(self, settings: AmqpSettings, stream: SimStream, history: History) -> None:
        super().__init__(settings)
        self._stream = stream
        self._history = history

    def receive(self, chunk: bytes) -> list[Message]:
        """Take bytes, and note if they are refused."""
        with telling_who_is_expelled(self._history, self._stream):
            return super().receive(chunk)


class AmqpParty(KeepingParty[AmqpStage]):
    """A client or a worker."""

    hub: Hub

    def make_hub(self) -> Hub:
        """See `KeepingParty.make_hub`."""
        return Hub(self.make_engine(), self, self.stage)

    def make_framing(self, stream: SimStream, place: Any, accepted: bool) -> _Framing:
        """Make the client's side of a connection."""
        timeout_s = heartbeat_s(self.stage.knobs)
        settings = AmqpSettings(heartbeat_s=timeout_s, body_size_max=MESSAGE_SIZE_MAX)
        return _Framing(settings, stream, self.stage.history)

    def started(self) -> None:
        """Dial RabbitMQ."""
        super().started()
        self.keep(RABBIT, None)
