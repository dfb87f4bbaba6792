"""A process of the Freelance pattern: it listens, or it keeps connected to those who do.

What `requite.shell.aio` does with sockets is done here on the simulated network, with the same host
and the same `Kept` connections.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from requite.engine import Engine
from requite.errors import CallError, RemoteViolation, TransportError
from requite.framing import SocketType, Zmtp
from requite.framing.base import Limits, Message
from requite.protocols.freelance.agent import AgentClient
from requite.protocols.freelance.failover import FailoverClient
from requite.protocols.freelance.server import FreelanceServer
from requite.protocols.freelance.shotgun import ShotgunClient
from requite.protocols.freelance.wire import Model
from requite.shell.host import Host
from requite.shell.keeping import Endpoint, Kept, no_framing
from requite.shell.link import Link
from requite.sim.freelance.knobs import FreelanceKnobs
from requite.sim.freelance.watch import Hub
from requite.sim.history import History
from requite.sim.process import Process, Supervisor
from requite.transport.address import InprocAddress
from requite.transport.backoff import Backoff

if TYPE_CHECKING:
    from requite.sim.network import Network
    from requite.sim.stream import SimStream
    from requite.sim.transcript import Transcript
    from requite.sim.world import World

MESSAGE_SIZE_MAX: Final = 1 << 20
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
        try:
            return super().receive(chunk)
        except RemoteViolation as violation:
            self._history.tell("expelled", self._stream.other.process, str(violation))
            raise


class Party(Process):
    """A client or a server."""

    kind: str
    hub: Hub  # its engine, looked at from outside; one for each life

    def __init__(self, name: str, stage: FlpStage) -> None:
        super().__init__(name, stage.world, stage.network, stage.knobs.pace, stage.supervisor)
        self.stage = stage
        self._ways: list[_Way] = []

    # --- for subclasses ---------------------------------------------------------------------------
    def make_engine(self) -> Engine:
        """Make the engine of a new life."""
        raise NotImplementedError

    def deliver(self, token: Any, what: Any) -> None:
        """Take what the engine delivers."""
        raise AssertionError(f"{self.name} was delivered {what!r}")

    def fail(self, token: Any, error: CallError) -> None:
        """Take a failure."""
        raise AssertionError(f"{self.name} was told {error!r}")

    def abandon(self, token: Any, reason: str) -> None:
        """Give work up."""
        raise AssertionError(f"{self.name} was told to give up: {reason}")

    # --- life -------------------------------------------------------------------------------------
    def make_host(self) -> Host:
        """Make an engine that remembers nothing, and its host."""
        self.hub = Hub(self.make_engine(), self, self.stage)
        return Host(
            self.hub,
            self.clock,
            no_framing,
            wake_at=self.wake_at,
            want_flush=self.want_flush,
            ended=self._link_ended,
            deliver=self.deliver,
            fail=self.fail,
            abandon=self.abandon,
            stopped=self.has_stopped,
            limits=self.stage.knobs.limits,
            logger="requite.sim",
        )

    def started(self) -> None:
        """Begin."""
        self._ways = []
        self.stage.history.tell("hub_started", self.hub)

    def _end(self, what: str) -> None:
        super()._end(what)
        self.network.listen_no_more(self)
        self.stage.history.tell("hub_ended", self.hub)

    def has_stopped(self) -> None:
        """Take no more connections, and leave."""
        self.network.listen_no_more(self)
        super().has_stopped()

    # --- connections ------------------------------------------------------------------------------
    def take_connections(self) -> None:
        """Listen, as a ROUTER with the own address as its identity."""

        def accept(stream: SimStream) -> None:
            identity = f"tcp://{self.name}".encode()
            framing = FlpFraming(SocketType.ROUTER, identity, stream, self.stage)
            options: dict[str, Any] = {"accepted": True, "framing": framing}
            self.adopt(stream, lambda: self.host.opened(stream, **options))

        self.network.listen(self, accept=accept)

    def keep(self, server: str) -> None:
        """Stay connected to a server."""
        endpoint = Endpoint(InprocAddress(server), no_framing, server)
        way = _Way(server, Kept(endpoint, Backoff(self.rng.random), self.clock))
        self._ways.append(way)
        self._dial_later(way)

    def _dial_later(self, way: _Way) -> None:
        self.later(way.kept.pause_s(), self._dial, way)

    def _dial(self, way: _Way) -> None:
        if not self.drained:
            self.network.dial(
                self,
                way.server,
                lambda stream: self.adopt(stream, lambda: self._open(way, stream)),
                lambda why: self.later(0.0, self._not_connected, way, why),
            )

    def _not_connected(self, way: _Way, why: str) -> None:
        way.kept.failed(way.kept.current, TransportError(why))
        self._dial_later(way)

    def _open(self, way: _Way, stream: SimStream) -> None:
        if self.drained:
            del self.streams[stream]
            stream.die(politely=False)
            return
        framing = FlpFraming(SOCKETS[self.stage.knobs.model], b"", stream, self.stage)
        link = self.host.opened(stream, kept=True, framing=framing, place=way.server)
        way.kept.opened(way.kept.current, link)

    def _link_ended(self, link: Link, reason: str) -> None:
        for way in self._ways:
            if way.kept.ended(link, reason):
                self._dial_later(way)


class _Way(NamedTuple):
    """A connection that a process keeps up by dialling."""

    server: str
    kept: Kept
