"""A process of the Freelance pattern: it listens, or it keeps connected to those who do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from requite.engine import Engine
from requite.framing import SocketType, Zmtp
from requite.framing.base import Limits, Message
from requite.protocols.freelance.agent import AgentClient
from requite.protocols.freelance.failover import FailoverClient
from requite.protocols.freelance.server import FreelanceServer
from requite.protocols.freelance.shotgun import ShotgunClient
from requite.protocols.freelance.wire import Model
from requite.sim.freelance.knobs import FreelanceKnobs
from requite.sim.freelance.watch import Hub
from requite.sim.history import History
from requite.sim.party import MESSAGE_SIZE_MAX, KeepingParty, telling_who_is_expelled
from requite.sim.process import Supervisor

if TYPE_CHECKING:
    from requite.sim.network import Network
    from requite.sim.stream import SimStream
    from requite.sim.transcript import Transcript
    from requite.sim.world import World

SOCKETS: Final = {
    Model.FAILOVER: SocketType.REQ,
    Model.SHOTGUN: SocketType.DEALER,
    Model.AGENT: SocketType.ROUTER,
}
_CLIENTS: Final[dict[Model, Callable[..., Engine]]] = {
    Model.FAILOVER: FailoverClient,
    Model.SHOTGUN: ShotgunClient,
    Model.AGENT: AgentClient,
}


@dataclass(frozen=True, slots=True)
class FlpParts:
    """The engines under test. Mutation tests put broken ones here."""

    clients: Mapping[Model, Callable[..., Engine]] = field(default_factory=lambda: _CLIENTS)
    server: Callable[..., Engine] = FreelanceServer


@dataclass(frozen=True, slots=True)
class FlpStage:
    """What all processes of a run share."""

    world: World
    network: Network
    history: History
    supervisor: Supervisor
    knobs: FreelanceKnobs
    parts: FlpParts = field(default_factory=FlpParts)
    transcript: Transcript | None = None


class FlpFraming(Zmtp):
    """The framing of one connection; whoever is honest never breaks a rule of it."""

    __slots__ = ("_history", "_stream")

    def __init__(
        self, socket_type: SocketType, identity: bytes, stream: SimStream, stage: FlpStage
    ) -> None:
        limits = Limits(message_size_bytes_max=MESSAGE_SIZE_MAX)
        super().__init__(socket_type, identity=identity, limits=limits)
        self._stream = stream
        self._history = stage.history

    def receive(self, chunk: bytes) -> list[Message]:
        """Take bytes, and note if they are refused."""
        with telling_who_is_expelled(self._history, self._stream):
            return super().receive(chunk)


class Party(KeepingParty[FlpStage]):
    """A client or a server."""

    hub: Hub

    def make_hub(self) -> Hub:
        """See `KeepingParty.make_hub`."""
        return Hub(self.make_engine(), self, self.stage)

    def make_framing(self, stream: SimStream, place: Any, accepted: bool) -> FlpFraming:
        """Whoever listens is a ROUTER with the own address as its identity."""
        if accepted:
            identity = f"tcp://{self.name}".encode()
            return FlpFraming(SocketType.ROUTER, identity, stream, self.stage)
        return FlpFraming(SOCKETS[self.stage.knobs.model], b"", stream, self.stage)
