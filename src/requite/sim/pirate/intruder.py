"""Intruders that send garbage, as clients, as workers and as raw bytes.

No honest peer may be affected (I13). A queue must believe a worker that sends READY, even if it
replies falsely or never. So an intruder at the back of a queue never sends READY, and in a simple
queue nothing that could pass for it.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, Final

from requite.framing import SocketType, Zmtp
from requite.framing.base import Framing
from requite.protocols.pirate.policy import BACK, FRONT
from requite.sim.kernel.garbage import BaseIntruder, GarbageEngine, Messages
from requite.sim.kernel.raw_bytes import RawBytes, spoil
from requite.sim.pirate.knobs import PirateVariant
from requite.sim.pirate.parties import QUEUE, PirateStage

_BODY: Final = 300


def _noise(rng: Random) -> Messages:
    return [[rng.randbytes(rng.randint(1, 9)) for _ in range(rng.randint(1, 5))]]


def _empties(rng: Random) -> Messages:
    return [[b""] * rng.randint(1, 6)]


def _no_body(rng: Random) -> Messages:
    return [[rng.randbytes(3), b""]]


def _strange_words(_rng: Random) -> Messages:
    return [[b"\x03"], [b"HEARTBEATS"], [b"\x02\x02"]]


def _beats(_rng: Random) -> Messages:
    """Return unexpected heartbeats."""
    return [[b"\x02"], [b"\x02"]]


def _requests(rng: Random) -> Messages:
    """Return requests with various envelopes; their replies are ignored."""
    stack = [rng.randbytes(4) for _ in range(rng.randint(0, 3))]
    return [[*stack, b"", b"x" * rng.randint(1, _BODY)] for _ in range(rng.randint(1, 8))]


_KINDS: Final[tuple[Callable[[Random], Messages], ...]] = (
    _noise,
    _empties,
    _no_body,
    _strange_words,
    _beats,
    _requests,
)


class _GarbageEngine(GarbageEngine):
    def __init__(self, rng: Random, tame: bool) -> None:
        super().__init__(rng)
        self._kinds = [kind for kind in _KINDS if not (tame and kind is _requests)]

    def play(self, peer: Any) -> Messages:
        """See `GarbageEngine.play`."""
        return self.rng.choice(self._kinds)(self.rng)


class PirateIntruder(BaseIntruder):
    """An intruder that connects to servers, or to either side of the queue."""

    def __init__(self, name: str, stage: PirateStage) -> None:
        super().__init__(name, stage)
        has_queue = stage.knobs.crew is not PirateVariant.LAZY
        self._targets = [f"{QUEUE}:{FRONT}", f"{QUEUE}:{BACK}"] if has_queue else stage.knobs.middle
        # A simple queue takes a sender at its back for ready if the message looks like a reply.
        self._tame = stage.knobs.crew is PirateVariant.SIMPLE

    def make_engine(self) -> GarbageEngine:
        """See `BaseIntruder.make_engine`."""
        return _GarbageEngine(self.rng, self._tame)

    def aim(self) -> tuple[str, Framing]:
        """See `BaseIntruder.aim`."""
        framing = self._draw_framing()
        return self.rng.choice(self._targets), framing

    def _draw_framing(self) -> Framing:
        if self.rng.random() < 0.7:
            return Zmtp(self.rng.choice((SocketType.DEALER, SocketType.REQ)))
        good = Zmtp(SocketType.DEALER).opening()
        openings = (
            spoil(self.rng, good),
            good[: self.rng.randint(0, len(good))],
            good + self.rng.randbytes(50),
            b"GET / HTTP/1.1\r\nHost: queue\r\n\r\n",
            self.rng.randbytes(self.rng.choice((1, 64, 3000))),
        )
        return RawBytes(self.rng.choice(openings))
