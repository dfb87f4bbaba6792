"""Peers that send servers what they should not. Whatever they do, nobody else may notice (I13)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from random import Random
from typing import Any, Final

from requite.engine import (
    Connect,
    Disconnect,
    Effect,
    Input,
    PeerJoined,
    PeerLost,
    Send,
    Wake,
)
from requite.framing import SocketType, Zmtp
from requite.framing.base import Framing
from requite.shell.host import Host
from requite.sim.freelance.party import FlpStage
from requite.sim.process import Process
from requite.sim.raw_bytes import RawBytes, spoil
from requite.sim.stream import SimStream

_GIVE_UP_S: Final = 1.0
_FLOOD_SIZE: Final = 5000
_FLOOD: Final = 40

Messages = list[list[bytes]]


def _noise(rng: Random) -> Messages:
    return [[rng.randbytes(rng.choice((0, 4, 40))) for _ in range(rng.randint(1, 4))]]


def _alone(_rng: Random) -> Messages:
    return [[word] for word in (b"", b"PONG", b"PANG", b"ping", b"PINGPING")]


def _pings(rng: Random) -> Messages:
    return [[b"PING"]] * rng.randint(1, 50)


def _envelopes(rng: Random) -> Messages:
    return [[b""], [b"", b""], [b"", b"1"], [b"hop", b""], [b"hop", b"", b"9", rng.randbytes(3)]]


def _strange(rng: Random) -> Messages:
    """Ask what nobody understands, under control frames of any kind."""
    controls = (b"", b"PING", b"1", rng.randbytes(300))
    return [[control, b"?" * rng.randint(0, 30)] for control in controls]


def _flood(_rng: Random) -> Messages:
    """Send more than is read; `_Mischief` does not read after this one."""
    return [[b"1", b"x" * _FLOOD_SIZE]] * _FLOOD


_KINDS: Final[tuple[Callable[[Random], Messages], ...]] = (
    _noise,
    _alone,
    _pings,
    _envelopes,
    _strange,
    _flood,
)


class _Mischief:
    """The engine of an intruder: on every connection, one kind of mischief."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._dial_at = 0.0
        self._peers: dict[Any, None] = {}
        self._leave_at: float | None = None

    def handle(self, event: Input, now: float) -> Iterable[Effect]:
        """See `requite.engine.Engine.handle`."""
        return list(self._handle(event, now))

    def _handle(self, event: Input, now: float) -> Iterator[Effect]:
        if isinstance(event, PeerJoined):
            yield from self._play(event.peer, now)
        elif isinstance(event, PeerLost):
            self._peers.pop(event.peer, None)
        elif isinstance(event, Wake):
            if now >= self._dial_at:
                self._dial_at = now + self._rng.uniform(0.02, 0.4)
                yield Connect()
            if self._leave_at is not None and now >= self._leave_at:
                self._leave_at = None
                yield from (Disconnect(peer, "enough") for peer in self._peers)
                self._peers.clear()

    def _play(self, peer: Any, now: float) -> Iterator[Effect]:
        self._peers[peer] = None
        kind = self._rng.choice(_KINDS)
        if kind is _flood:
            peer.stream.pause_reading()
        yield from (Send(peer, message) for message in kind(self._rng))
        if self._rng.random() < 0.5:
            self._leave_at = now + self._rng.uniform(0.0, _GIVE_UP_S)

    def deadline(self) -> float | None:
        """See `requite.engine.Engine.deadline`."""
        return self._dial_at if self._leave_at is None else min(self._dial_at, self._leave_at)

    def snapshot(self) -> int:
        """Return the number of connections."""
        return len(self._peers)


class FlpIntruder(Process):
    """A process that means no good."""

    is_honest = False

    def __init__(self, name: str, stage: FlpStage) -> None:
        super().__init__(name, stage.world, stage.network, stage.knobs.pace, stage.supervisor)
        self._stage = stage
        self._servers = [server.name for server in stage.knobs.servers]

    def make_host(self) -> Host:
        """Make an engine that plays tricks."""
        return Host(
            _Mischief(self.rng),
            self.clock,
            lambda: RawBytes(b""),
            wake_at=self.wake_at,
            want_flush=self.want_flush,
            connect=self._connect,
            limits=self._stage.knobs.limits,
            logger="requite.sim",
        )

    def _connect(self) -> None:
        framing = _draw_framing(self.rng)
        self.network.dial(
            self,
            self.rng.choice(self._servers),
            lambda stream: self.adopt(stream, lambda: self._open(stream, framing)),
            lambda _why: None,
        )

    def _open(self, stream: SimStream, framing: Framing) -> None:
        self.host.opened(stream, kept=True, framing=framing)


def _draw_framing(rng: Random) -> Framing:
    """Speak ZMTP, as one socket or another, or something that only looks like it."""
    kind = rng.choice((SocketType.ROUTER, SocketType.DEALER, SocketType.REQ, SocketType.REP))
    if rng.random() < 0.7:
        return Zmtp(kind, identity=b"" if kind is SocketType.REP else rng.choice((b"", b"same")))
    opening = Zmtp(kind).opening()
    return RawBytes(rng.choice((opening, spoil(rng, opening), rng.randbytes(100), opening * 2)))
