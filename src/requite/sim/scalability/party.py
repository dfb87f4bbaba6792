"""A process with an endpoint of the scalability protocols: it listens, and it keeps connected.

What `requite.shell.aio` does with sockets is done here on the simulated network, with the same host
and the same `Kept` connections.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from requite.engine import Engine
from requite.errors import CallError, RemoteViolation, TransportError
from requite.framing.base import Limits, Message
from requite.framing.sp import SpStream
from requite.protocols.scalability.device import ScalabilityDevice
from requite.protocols.scalability.policy import Place
from requite.protocols.scalability.rep import ScalabilityWorker
from requite.protocols.scalability.req import ScalabilityClient
from requite.protocols.scalability.wire import REP, REQ
from requite.shell.host import Host
from requite.shell.keeping import Endpoint, Kept, no_framing
from requite.shell.link import Link
from requite.sim.history import History
from requite.sim.process import Process, Supervisor
from requite.sim.scalability.knobs import ScalabilityKnobs
from requite.sim.scalability.stack import IDS
from requite.sim.scalability.topology import BACK, FRONT, Edge
from requite.sim.scalability.watch import Hub, watch
from requite.transport.address import InprocAddress
from requite.transport.backoff import Backoff

if TYPE_CHECKING:
    from requite.sim.network import Network
    from requite.sim.stream import SimStream
    from requite.sim.transcript import Transcript
    from requite.sim.world import World

MESSAGE_SIZE_MAX: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class SpParts:
    """The engines under test. Mutation tests put broken ones here."""

    client: Callable[..., Engine] = ScalabilityClient
    worker: Callable[..., Engine] = ScalabilityWorker
    device: Callable[..., Engine] = ScalabilityDevice


@dataclass(frozen=True, slots=True)
class SpStage:
    """What all processes of a run share."""

    world: World
    network: Network
    history: History
    supervisor: Supervisor
    knobs: ScalabilityKnobs
    parts: SpParts = field(default_factory=SpParts)
    transcript: Transcript | None = None


class SpFraming(SpStream):
    """The framing of one connection; whoever is honest never breaks a rule of it."""

    __slots__ = ("_history", "_stream")

    def __init__(self, side: str, stream: SimStream, stage: SpStage) -> None:
        own, peer = (REP, REQ) if side == FRONT else (REQ, REP)
        limits = Limits(message_size_bytes_max=MESSAGE_SIZE_MAX)
        super().__init__(own, peer, in_band=stage.knobs.in_band, limits=limits)
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
    """A client, a worker or a device."""

    kind: str
    hub: Hub  # its engine, looked at from outside; one for each life

    def __init__(self, name: str, stage: SpStage, first_id: int | None) -> None:
        super().__init__(name, stage.world, stage.network, stage.knobs.pace, stage.supervisor)
        self.stage = stage
        self.first_id = 0  # of this life
        self._given_id = first_id
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

    def draw_first_id(self) -> int:
        """Draw where the ids of a life begin: where the knobs say in the first life.

        Later lives draw anew: that ids of two lives never meet is what makes them safe.
        """
        given_id, self._given_id = self._given_id, None
        self.first_id = self.rng.randrange(IDS) if given_id is None else given_id
        return self.first_id

    # --- life -------------------------------------------------------------------------------------
    def make_host(self) -> Host:
        """Make an engine that remembers nothing, and its host."""
        stage = self.stage
        engine = self.make_engine()
        self.hub = watch(engine, self, self.kind, stage.history, stage.transcript)
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
            limits=stage.knobs.limits,
            logger="requite.sim",
        )

    def started(self) -> None:
        """Listen at each port that somebody dials, and dial who listens."""
        self._ways = []
        for edge in self.stage.knobs.edges:
            if edge.listener == self.name:
                self._listen(edge)
            if edge.dialler == self.name:
                self._keep(edge)
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
    def _listen(self, edge: Edge) -> None:
        place = _place(edge, FRONT if edge.upper_dials else BACK)

        def accept(stream: SimStream) -> None:
            framing = SpFraming(place.side, stream, self.stage)
            options: dict[str, Any] = {"accepted": True, "framing": framing, "place": place}
            self.adopt(stream, lambda: self.host.opened(stream, **options))

        self.network.listen(self, edge.port, accept)

    def _keep(self, edge: Edge) -> None:
        place = _place(edge, BACK if edge.upper_dials else FRONT)
        endpoint = Endpoint(InprocAddress(edge.address), no_framing, place)
        way = _Way(edge.address, place, Kept(endpoint, Backoff(self.rng.random), self.clock))
        self._ways.append(way)
        self._dial_later(way)

    def _dial_later(self, way: _Way) -> None:
        self.later(way.kept.pause_s(), self._dial, way)

    def _dial(self, way: _Way) -> None:
        if not self.drained:
            self.network.dial(
                self,
                way.address,
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
        framing = SpFraming(way.place.side, stream, self.stage)
        link = self.host.opened(stream, kept=True, framing=framing, place=way.place)
        way.kept.opened(way.kept.current, link)

    def _link_ended(self, link: Link, reason: str) -> None:
        for way in self._ways:
            if way.kept.ended(link, reason):
                self._dial_later(way)


class _Way(NamedTuple):
    """A connection that a process keeps up by dialling."""

    address: str
    place: Place
    kept: Kept


def _place(edge: Edge, side: str) -> Place:
    """Return what to call an edge at one of its ends: only those who send requests rank it."""
    return Place(side) if side == FRONT else Place(side, edge.priority, edge.weight)
