"""Peers that send what they should not, as clients, as workers and in bare bytes.

Whatever an intruder does, nobody else may notice (I13). A worker that says that it is ready and
answers with a lie is believed, and one that swallows requests cannot be kept from it; so at a
queue's back an intruder never says READY, and in a simple one nothing that could pass for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from random import Random
from typing import Any, Final

from requite.engine import Connect, Disconnect, Effect, Input, PeerJoined, PeerLost, Send, Wake
from requite.framing import SocketType, Zmtp
from requite.framing.base import Framing
from requite.protocols.pirate.policy import BACK, FRONT
from requite.shell.host import Host
from requite.sim.pirate.knobs import Crew
from requite.sim.pirate.parties import QUEUE, PirateStage
from requite.sim.process import Process
from requite.sim.raw_bytes import RawBytes, spoil
from requite.sim.stream import SimStream

_GIVE_UP_S: Final = 1.0
_BODY: Final = 300

Frames = list[bytes]


def _noise(rng: Random) -> list[Frames]:
    return [[rng.randbytes(rng.randint(1, 9)) for _ in range(rng.randint(1, 5))]]


def _empties(rng: Random) -> list[Frames]:
    return [[b""] * rng.randint(1, 6)]


def _no_body(rng: Random) -> list[Frames]:
    return [[rng.randbytes(3), b""]]


def _strange_words(_rng: Random) -> list[Frames]:
    return [[b"\x03"], [b"HEARTBEATS"], [b"\x02\x02"]]


def _beats(_rng: Random) -> list[Frames]:
    """Say, unasked, that one lives."""
    return [[b"\x02"], [b"\x02"]]


def _requests(rng: Random) -> list[Frames]:
    """Ask, in several ways; nobody waits for the answers."""
    stack = [rng.randbytes(4) for _ in range(rng.randint(0, 3))]
    return [[*stack, b"", b"x" * rng.randint(1, _BODY)] for _ in range(rng.randint(1, 8))]


_KINDS: Final[tuple[Callable[[Random], list[Frames]], ...]] = (
    _noise,
    _empties,
    _no_body,
    _strange_words,
    _beats,
    _requests,
)


class _Mischief:
    """The engine of an intruder: on every connection, one kind of mischief."""

    def __init__(self, rng: Random, tame: bool) -> None:
        self._rng = rng
        self._kinds = [kind for kind in _KINDS if not (tame and kind is _requests)]
        self._dial_at = 0.0
        self._peers: dict[Any, None] = {}
        self._leave_at: float | None = None

    def handle(self, event: Input, now: float) -> Iterable[Effect]:
        """See `requite.engine.Engine.handle`."""
        return list(self._handle(event, now))

    def _handle(self, event: Input, now: float) -> Iterator[Effect]:
        if isinstance(event, PeerJoined):
            self._peers[event.peer] = None
            kind = self._rng.choice(self._kinds)
            yield from (Send(event.peer, frames) for frames in kind(self._rng))
            if self._rng.random() < 0.5:
                self._leave_at = now + self._rng.uniform(0.0, _GIVE_UP_S)
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

    def deadline(self) -> float | None:
        """See `requite.engine.Engine.deadline`."""
        return self._dial_at if self._leave_at is None else min(self._dial_at, self._leave_at)

    def snapshot(self) -> int:
        """Return the number of connections."""
        return len(self._peers)


class PirateIntruder(Process):
    """A process that means no good."""

    is_honest = False

    def __init__(self, name: str, stage: PirateStage) -> None:
        super().__init__(name, stage.world, stage.network, stage.knobs.pace, stage.supervisor)
        self._stage = stage
        has_queue = stage.knobs.crew is not Crew.LAZY
        self._targets = [f"{QUEUE}:{FRONT}", f"{QUEUE}:{BACK}"] if has_queue else stage.knobs.middle
        # Whoever speaks to a simple queue's back is taken for ready if it looks like a reply.
        self._tame = stage.knobs.crew is Crew.SIMPLE

    def make_host(self) -> Host:
        """Make an engine that plays tricks."""
        return Host(
            _Mischief(self.rng, self._tame),
            self.clock,
            lambda: RawBytes(b""),
            wake_at=self.wake_at,
            want_flush=self.want_flush,
            connect=self._connect,
            limits=self._stage.knobs.limits,
            logger="requite.sim",
        )

    def _connect(self) -> None:
        framing = self._draw_framing()
        self.network.dial(
            self,
            self.rng.choice(self._targets),
            lambda stream: self.adopt(stream, lambda: self._open(stream, framing)),
            lambda _why: None,
        )

    def _open(self, stream: SimStream, framing: Framing) -> None:
        self.host.opened(stream, kept=True, framing=framing)

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
