"""Intruders at the address where the servers of a pair listen for each other.

They send random bytes, invalid messages, and floods of requests. They do not pose as the peer: the
link has no password, and a server trusts any valid message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from random import Random
from typing import TYPE_CHECKING, Any, Final

from requite.engine import (
    Cause,
    Connect,
    Disconnect,
    Effect,
    Input,
    PeerJoined,
    PeerLost,
    Send,
    Wake,
)
from requite.framing import Framing, SocketType, Zmtp
from requite.protocols.binarystar.table import PairRole, State
from requite.protocols.binarystar.wire import Ask, Refused, Switch, View, Word, encode
from requite.shell.host import Host
from requite.sim.kernel.engine_process import EngineProcess
from requite.sim.kernel.raw_bytes import RawBytes, spoil
from requite.sim.pair.server import PORT

if TYPE_CHECKING:
    from requite.sim.kernel.stream import SimStream
    from requite.sim.pair.server import PairStage

Messages = list[list[bytes]]
_WORD: Final = Word(PairRole.PRIMARY, State.ACTIVE, True, 1000, 1, 1, 1, 1, 1)
_LATE_EPOCH: Final = 1 << 40  # no run reaches it: a switch in this epoch has no effect


def _noise(rng: Random) -> Messages:
    sizes = (0, 1, 5, 6, 7, 30, 60)
    return [[rng.randbytes(rng.choice(sizes)) for _ in range(rng.randint(1, 3))] for _ in range(4)]


def _spoilt(rng: Random) -> Messages:
    """Return malformed messages: truncated or extended ones."""
    (frame,) = encode(_WORD)
    return [[frame[: rng.randrange(len(frame))]], [frame + rng.randbytes(1)]]


def _questions(rng: Random) -> Messages:
    return [encode(Ask())] * rng.randint(1, 50)


def _void_switches(rng: Random) -> Messages:
    return [encode(Switch(_LATE_EPOCH + rng.randrange(1000)))] * rng.randint(1, 5)


def _answers(_rng: Random) -> Messages:
    view = View(PairRole.PRIMARY, State.ACTIVE, True, False, 0, 0, 0, 1)
    return [encode(Refused("no")), encode(view)]


def _version(rng: Random) -> Messages:
    return [[b"BSTAR" + bytes((rng.randint(2, 255), rng.randint(0, 9))) + rng.randbytes(8)]]


_KINDS: Final[tuple[Callable[[Random], Messages], ...]] = (
    _noise,
    _spoilt,
    _questions,
    _void_switches,
    _answers,
    _version,
)


class _GarbageEngine:
    """The engine of an intruder: one kind of garbage on each connection."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._dial_at = 0.0
        self._peers: dict[Any, None] = {}

    def handle(self, events: Sequence[Input], now: float) -> Iterable[Effect]:
        """See `requite.engine.Engine.handle`."""
        return [effect for event in events for effect in self._handle(event, now)]

    def _handle(self, event: Input, now: float) -> Iterator[Effect]:
        match event:
            case PeerJoined(peer):
                self._peers[peer] = None
                kind = self._rng.choice(_KINDS)
                yield from (Send(peer, message) for message in kind(self._rng))
            case PeerLost(peer):
                self._peers.pop(peer, None)
            case Wake() if now >= self._dial_at:
                self._dial_at = now + self._rng.uniform(0.02, 0.4)
                if self._peers and self._rng.random() < 0.5:
                    peer, _ = self._peers.popitem()
                    yield Disconnect(peer, "enough", Cause.DONE)
                yield Connect()

    def deadline(self) -> float | None:
        """See `requite.engine.Engine.deadline`."""
        return self._dial_at

    def snapshot(self) -> int:
        """Return the number of connections."""
        return len(self._peers)


class PairIntruder(EngineProcess):
    """A process that sends garbage."""

    is_honest = False

    def __init__(self, name: str, stage: PairStage) -> None:
        super().__init__(name, stage.world, stage.network, stage.knobs.pace, stage.supervisor)

    def make_host(self) -> Host:
        """Return a host with an engine that sends garbage."""
        return Host(
            _GarbageEngine(self.rng),
            self.clock,
            lambda: RawBytes(b""),
            wake_at=self.wake_at,
            want_flush=self.want_flush,
            connect=self._connect,
            logger="requite.sim",
        )

    def _connect(self) -> None:
        framing = _draw_framing(self.rng)
        self.network.dial(
            self,
            f"{self.rng.choice([role.name.lower() for role in PairRole])}:{PORT}",
            lambda stream: self.adopt(stream, lambda: self._open(stream, framing)),
            lambda _why: None,
        )

    def _open(self, stream: SimStream, framing: Framing) -> None:
        self.host.opened(stream, kept=True, framing=framing)


def _draw_framing(rng: Random) -> Framing:
    """Draw ZMTP with a random socket type, or bytes that only resemble it."""
    kind = rng.choice((SocketType.DEALER, SocketType.DEALER, SocketType.ROUTER, SocketType.REQ))
    if rng.random() < 0.7:
        return Zmtp(kind)
    opening = Zmtp(kind).opening()
    return RawBytes(rng.choice((opening, spoil(rng, opening), rng.randbytes(100), opening * 2)))
