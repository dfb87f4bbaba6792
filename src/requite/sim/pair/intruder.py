"""Intruders at the address where the servers of a pair listen for each other.

They send random bytes, invalid messages, and floods of requests. They do not pose as the peer: the
link has no password, and a server trusts any valid message.
"""

from __future__ import annotations

from random import Random
from typing import Final

from requite.framing import Framing, SocketType, Zmtp
from requite.protocols.binarystar.table import PairRole, State
from requite.protocols.binarystar.wire import Ask, Refused, Switch, View, Word, encode
from requite.sim.kernel.garbage import BaseIntruder, Messages
from requite.sim.kernel.raw_bytes import RawBytes, spoil
from requite.sim.pair.server import PORT

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


class PairIntruder(BaseIntruder):
    """A process that sends garbage."""

    kinds = (_noise, _spoilt, _questions, _void_switches, _answers, _version)

    def aim(self) -> tuple[str, Framing]:
        """See `BaseIntruder.aim`."""
        framing = _draw_framing(self.rng)
        return f"{self.rng.choice([role.name.lower() for role in PairRole])}:{PORT}", framing


def _draw_framing(rng: Random) -> Framing:
    """Draw ZMTP with a random socket type, or bytes that only resemble it."""
    kind = rng.choice((SocketType.DEALER, SocketType.DEALER, SocketType.ROUTER, SocketType.REQ))
    if rng.random() < 0.7:
        return Zmtp(kind)
    opening = Zmtp(kind).opening()
    return RawBytes(rng.choice((opening, spoil(rng, opening), rng.randbytes(100), opening * 2)))
