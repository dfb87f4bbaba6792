"""One server of a pair as a simulated process; `requite.pair.Pair` does the same with sockets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from requite.backoff import Backoff
from requite.engine import Effect, Engine, Input
from requite.errors import TransportError
from requite.framing import SocketType, Zmtp
from requite.framing.base import Limits
from requite.protocols.binarystar.peer import DIALLED, BinaryStarPeer
from requite.protocols.binarystar.policy import BinaryStarPolicy
from requite.protocols.binarystar.table import PairRole, State
from requite.protocols.binarystar.view import PairView, SwitchOver, Vote
from requite.protocols.binarystar.wire import MESSAGE_SIZE_MAX
from requite.shell.connections import Endpoint, PersistentConnection, no_framing
from requite.shell.host import Host
from requite.shell.link import Link, LinkLimits
from requite.sim.kernel.engine_process import EngineProcess
from requite.sim.kernel.process import Supervisor
from requite.transport.address import TcpAddress

if TYPE_CHECKING:
    from requite.sim.kernel.network import Network
    from requite.sim.kernel.stream import SimStream
    from requite.sim.kernel.transcript import Transcript
    from requite.sim.kernel.world import World
    from requite.sim.pair.knobs import PairKnobs

_PORT: Final = 5560
_LIMITS: Final = Limits(message_size_bytes_max=MESSAGE_SIZE_MAX, frames_max=2)
_HANDSHAKE_S_MIN: Final = 1.0  # that of `requite.pair.Pair`


@dataclass(frozen=True, slots=True)
class PairParts:
    """The engine under test. Mutation tests pass a broken one."""

    engine: Callable[..., BinaryStarPeer] = BinaryStarPeer


@dataclass(frozen=True, slots=True)
class PairStage:
    """The state that all processes of a run share. `changed` is called when a server's state
    changes."""

    world: World
    network: Network
    changed: Callable[[PairServer, PairView], object]
    supervisor: Supervisor
    knobs: PairKnobs
    parts: PairParts
    transcript: Transcript | None = None


class _Watched:
    """The engine, observed for the transcript."""

    def __init__(self, engine: BinaryStarPeer, server: PairServer, transcript: Transcript) -> None:
        self._engine = engine
        self._server = server
        self._transcript = transcript
        self.deadline = engine.deadline
        self.snapshot = engine.snapshot

    def handle(self, events: Sequence[Input], now: float) -> list[Effect]:
        """Feed the engine, and write its effects to the transcript."""
        effects = list(self._engine.handle(events, now))
        self._transcript.effects(self._server, effects)
        return effects


class PairServer(EngineProcess):
    """A server; `half` is its half of the pair, new after each start."""

    half: BinaryStarPeer

    def __init__(self, role: PairRole, stage: PairStage) -> None:
        name = role.name.lower()
        super().__init__(name, stage.world, stage.network, stage.knobs.pace, stage.supervisor)
        self.role = role
        self._stage = stage
        self._policy = BinaryStarPolicy(role, stage.knobs.heartbeat_s)
        self._peer_at = TcpAddress(role.other.name.lower(), _PORT)

    # --- whether to serve: see `requite.pair.Pair` ------------------------------------------------
    @property
    def serves(self) -> bool:
        """Whether it may answer."""
        return self.clock() < self.half.serves_until

    def vote(self) -> bool:
        """Handle a client's request: return whether it may be answered."""
        if not self.serves and self.half.state is not State.FAILED:
            self.host.submit(Vote())
        return self.serves

    def switch(self) -> None:
        """Switch as an operator does, if possible."""
        if self.alive and not self.frozen and not self.half.objection(self.clock()):
            self.turn(self.host.submit, SwitchOver())

    def reached(self, act: Callable[[], object]) -> None:
        """Deliver a client's request. A process that resumes may handle it first."""
        if self.frozen:
            self._unread = {act: act, **self._unread}
        else:
            self.turn(act)

    # --- life -------------------------------------------------------------------------------------
    def make_host(self) -> Host:
        """Return a host with a new half of the pair."""
        stage = self._stage
        self.half = stage.parts.engine(self._policy, instance=self.rng.getrandbits(63) + 1)
        self._way = PersistentConnection(
            Endpoint(self._peer_at, no_framing), Backoff(self.rng.random), self.clock
        )
        engine: Engine = self.half
        if stage.transcript is not None:
            engine = _Watched(self.half, self, stage.transcript)
        return Host(
            engine,
            self.clock,
            lambda: Zmtp(SocketType.DEALER, limits=_LIMITS),
            wake_at=self.wake_at,
            want_flush=self.want_flush,
            deliver=self._told,
            ended=self._link_ended,
            stopped=self.has_stopped,
            limits=LinkLimits(handshake_timeout_s=max(_HANDSHAKE_S_MIN, self._policy.failover_s)),
            logger="requite.sim",
        )

    def started(self) -> None:
        """Listen, and connect to the other server."""
        self.network.listen(self)
        self._dial()
        self.host.wake()

    def _end(self, what: str) -> None:
        super()._end(what)
        self.network.listen_no_more(self)

    def has_stopped(self) -> None:
        """Accept no more connections, and exit."""
        self.network.listen_no_more(self)
        super().has_stopped()

    def _told(self, _token: Any, view: PairView) -> None:
        self._stage.changed(self, view)
        if self._stage.transcript is not None:
            self._stage.transcript.event(
                self.name, f"is {view.state.name.lower()}, epoch {view.epoch}"
            )

    # --- the connection that it dials -------------------------------------------------------------
    def _dial(self) -> None:
        if not self.drained:
            self.network.dial(self, self._peer_at.host, self._connected, self._not_connected)

    def _connected(self, stream: SimStream) -> None:
        self.adopt(stream, lambda: self._open(stream))

    def _open(self, stream: SimStream) -> None:
        self._way.opened(self._peer_at, self.host.opened(stream, kept=True, place=DIALLED))

    def _not_connected(self, why: str) -> None:
        self.later(0.0, self._dial_again, why)

    def _dial_again(self, why: str) -> None:
        self._way.failed(self._peer_at, TransportError(why))
        self.later(self._way.pause_s(), self._dial)

    def _link_ended(self, link: Link, reason: str) -> None:
        if self._way.ended(link, reason):
            self.later(self._way.pause_s(), self._dial)
