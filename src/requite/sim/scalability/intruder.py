"""Intruders that send garbage, as clients and as workers.

No honest peer may be affected (I13). A client must believe a false reply to a pending request, so
an intruder never names a pending one. It may swallow the requests it gets.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any, Final

from requite.engine import Effect, Received, Send
from requite.framing.base import Framing
from requite.framing.sp import SpStream
from requite.protocols.scalability.wire import REP, REQ
from requite.sim.kernel.garbage import BaseIntruder, GarbageEngine, Messages
from requite.sim.kernel.raw_bytes import RawBytes, spoil
from requite.sim.kernel.stage import RunStage
from requite.sim.scalability.knobs import ScalabilityKnobs
from requite.sim.scalability.stack import IDS, Parsed, parse, tag

_WRONG_TYPES: Final = (0, 16, 17, 32, 98, 112, 0xFFFF)
# Pending request ids are close together; one with any of these bits flipped is never pending.
_FAR_BITS: Final = range(20, 30)


# --- garbage in whole messages --------------------------------------------------------------------
def _noise(rng: Random) -> Messages:
    return [[rng.randbytes(rng.choice((4, 5, 8, 11, 40)))] for _ in range(rng.randint(1, 4))]


def _short(rng: Random) -> Messages:
    return [[rng.randbytes(size)] for size in (0, 1, 3)]


def _bottomless(rng: Random) -> Messages:
    return [[_tags(rng, rng.randint(1, 12)) + rng.randbytes(rng.randint(0, 3))]]


def _deep(rng: Random) -> Messages:
    """Return stacks around the depth at which receivers drop them."""
    return [[_tags(rng, depth) + _bottom(rng) + b"deep"] for depth in (6, 7, 8, 9, 60)]


def _strange(rng: Random) -> Messages:
    """Return meaningless requests, or replies that nobody requested."""
    return [[_tags(rng, rng.randint(0, 3)) + _bottom(rng) + b"?" * n] for n in (0, 1, 30)]


def _same_twice(rng: Random) -> Messages:
    return [[_bottom(rng) + b"again"]] * 3


def _flood(rng: Random) -> Messages:
    return [[_bottom(rng) + b"x" * 5000] for _ in range(40)]


def _tags(rng: Random, depth: int) -> bytes:
    return b"".join(tag(rng.randrange(IDS)) for _ in range(depth))


def _bottom(rng: Random) -> bytes:
    return tag(rng.randrange(IDS), bottom=True)


def _lie(rng: Random, asked: Parsed) -> bytes:
    """Return a false reply that no client accepts for a pending request."""
    channels, request_id = asked.stack[:-4], asked.request_id ^ (1 << rng.choice(_FAR_BITS))
    bottom = tag(request_id, bottom=True)
    match rng.randrange(5):
        case 0:
            return channels + bottom + asked.body
        case 1:
            return channels + tag(request_id) + asked.body
        case 2:
            return _tags(rng, 1) + asked.stack + asked.body
        case 3:
            return channels + bottom[: rng.randint(0, 3)]
        case _:
            return asked.stack[: len(channels)] + bottom


# --- garbage in bytes -----------------------------------------------------------------------------
def _draw_framing(rng: Random, own: int, *, in_band: bool) -> Framing:
    peer = REQ + REP - own
    if rng.random() < 0.6:
        return SpStream(own, peer, in_band=in_band)
    good = SpStream(own, peer, in_band=in_band).opening()
    sized = [_sized(m[0], in_band) for kind in (_noise, _strange) for m in kind(rng)]
    session = good + b"".join(sized)
    mark = b"\1" if in_band else b""
    openings = (
        spoil(rng, session),
        spoil(rng, session),
        good[:4] + rng.choice((*_WRONG_TYPES, peer)).to_bytes(2, "big") + b"\0\0",
        good[:6] + b"\0\1",
        b"\0SP\1" + good[4:],
        b"GET / HTTP/1.1\r\nHost: worker\r\n\r\n",
        rng.randbytes(rng.choice((1, 7, 8, 100, 3000))),
        good[: rng.randint(0, 7)],  # an incomplete header, then silence
        good + mark + b"\xff" * 8,  # a message of 2^64 - 1 bytes
        good + mark + b"\x80" + b"\0" * 7,
        good + b"\2" + b"\0" * 8 + b"\3" * 100,  # reserved on IPC, a far too large size elsewhere
        good + mark + (1000).to_bytes(8, "big") + b"and no more",
        good + _sized(b"", in_band) * 3000,
    )
    return RawBytes(rng.choice(openings))


def _sized(payload: bytes, in_band: bool) -> bytes:
    return (b"\1" if in_band else b"") + len(payload).to_bytes(8, "big") + payload


class _Liar(GarbageEngine):
    def answer(self, event: Received) -> Iterator[Effect]:
        """Swallow requests; answer some of them falsely."""
        for (payload,) in event.messages:
            asked = parse(payload)
            if asked is not None and event.peer in self.peers and self.rng.random() < 0.5:
                yield Send(event.peer, [_lie(self.rng, asked)])


class SpIntruder(BaseIntruder):
    """An intruder that connects to any port, on either side."""

    kinds = (_noise, _short, _bottomless, _deep, _strange, _same_twice, _flood)

    def __init__(self, name: str, stage: RunStage[ScalabilityKnobs, Any]) -> None:
        super().__init__(name, stage)
        self._in_band = stage.knobs.in_band
        edges = stage.knobs.edges
        targets = [(edge.address, REQ if edge.upper_dials else REP) for edge in edges]
        self._targets = [*dict.fromkeys(targets)]

    def make_engine(self) -> GarbageEngine:
        """See `BaseIntruder.make_engine`."""
        return _Liar(self.rng, self.kinds)

    def aim(self) -> tuple[str, Framing]:
        """See `BaseIntruder.aim`."""
        address, own_type = self.rng.choice(self._targets)
        return address, _draw_framing(self.rng, own_type, in_band=self._in_band)
