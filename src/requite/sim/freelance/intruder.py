"""Intruders that send garbage to servers. No honest peer may be affected (I13)."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, Final

from requite.framing import SocketType, Zmtp
from requite.framing.base import Framing
from requite.sim.freelance.stage import FlpStage
from requite.sim.kernel.garbage import BaseIntruder, GarbageEngine, Messages
from requite.sim.kernel.raw_bytes import RawBytes, spoil

_FLOOD_SIZE: Final = 5000
_FLOOD: Final = 40


def _noise(rng: Random) -> Messages:
    return [[rng.randbytes(rng.choice((0, 4, 40))) for _ in range(rng.randint(1, 4))]]


def _alone(_rng: Random) -> Messages:
    return [[word] for word in (b"", b"PONG", b"PANG", b"ping", b"PINGPING")]


def _pings(rng: Random) -> Messages:
    return [[b"PING"]] * rng.randint(1, 50)


def _envelopes(rng: Random) -> Messages:
    return [[b""], [b"", b""], [b"", b"1"], [b"hop", b""], [b"hop", b"", b"9", rng.randbytes(3)]]


def _strange(rng: Random) -> Messages:
    """Return meaningless requests with various control frames."""
    controls = (b"", b"PING", b"1", rng.randbytes(300))
    return [[control, b"?" * rng.randint(0, 30)] for control in controls]


def _flood(_rng: Random) -> Messages:
    """Return more than fits into buffers; `_GarbageEngine` then stops reading."""
    return [[b"1", b"x" * _FLOOD_SIZE]] * _FLOOD


_KINDS: Final[tuple[Callable[[Random], Messages], ...]] = (
    _noise,
    _alone,
    _pings,
    _envelopes,
    _strange,
    _flood,
)


class _GarbageEngine(GarbageEngine):
    def play(self, peer: Any) -> Messages:
        """See `GarbageEngine.play`."""
        kind = self.rng.choice(_KINDS)
        if kind is _flood:
            peer.stream.pause_reading()
        return kind(self.rng)


class FlpIntruder(BaseIntruder):
    """An intruder that connects to servers."""

    def __init__(self, name: str, stage: FlpStage) -> None:
        super().__init__(name, stage)
        self._servers = [server.name for server in stage.knobs.servers]

    def make_engine(self) -> GarbageEngine:
        """See `BaseIntruder.make_engine`."""
        return _GarbageEngine(self.rng)

    def aim(self) -> tuple[str, Framing]:
        """See `BaseIntruder.aim`."""
        framing = _draw_framing(self.rng)
        return self.rng.choice(self._servers), framing


def _draw_framing(rng: Random) -> Framing:
    """Draw ZMTP with a random socket type, or bytes that only resemble it."""
    kind = rng.choice((SocketType.ROUTER, SocketType.DEALER, SocketType.REQ, SocketType.REP))
    if rng.random() < 0.7:
        return Zmtp(kind, identity=b"" if kind is SocketType.REP else rng.choice((b"", b"same")))
    opening = Zmtp(kind).opening()
    return RawBytes(rng.choice((opening, spoil(rng, opening), rng.randbytes(100), opening * 2)))
