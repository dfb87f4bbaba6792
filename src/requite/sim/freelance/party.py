"""A process of the Freelance pattern: it listens, or stays connected to listeners."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from requite.framing import SocketType, Zmtp
from requite.framing.base import Limits, Message
from requite.protocols.freelance.wire import Model
from requite.sim.freelance.stage import FlpStage
from requite.sim.freelance.watch import Hub
from requite.sim.kernel.party import MESSAGE_SIZE_MAX, KeepingParty, telling_who_is_expelled

if TYPE_CHECKING:
    from requite.sim.kernel.stream import SimStream

SOCKETS: Final = {
    Model.FAILOVER: SocketType.REQ,
    Model.SHOTGUN: SocketType.DEALER,
    Model.AGENT: SocketType.ROUTER,
}


class FlpFraming(Zmtp):
    """The framing of one connection; it reports honest peers whose bytes it refuses."""

    __slots__ = ("_history", "_stream")

    def __init__(
        self, socket_type: SocketType, identity: bytes, stream: SimStream, stage: FlpStage
    ) -> None:
        limits = Limits(message_size_bytes_max=MESSAGE_SIZE_MAX)
        super().__init__(socket_type, identity=identity, limits=limits)
        self._stream = stream
        self._history = stage.history

    def receive(self, chunk: bytes) -> list[Message]:
        """Receive bytes; report if they are refused."""
        with telling_who_is_expelled(self._history, self._stream):
            return super().receive(chunk)


class Party(KeepingParty[FlpStage]):
    """A client or a server."""

    hub: Hub

    def make_hub(self) -> Hub:
        """See `KeepingParty.make_hub`."""
        return Hub(self.make_engine(), self, self.stage)

    def make_framing(self, stream: SimStream, place: Any, accepted: bool) -> FlpFraming:
        """Return the framing of a connection: a listener is a ROUTER with its address as
        identity."""
        if accepted:
            identity = f"tcp://{self.name}".encode()
            return FlpFraming(SocketType.ROUTER, identity, stream, self.stage)
        return FlpFraming(SOCKETS[self.stage.knobs.model], b"", stream, self.stage)
