"""Intruders that send garbage: the parts that the intruders of all protocols share.

An intruder is a process with a special engine. At random times it connects, sends one kind of
garbage, and leaves or stays. No honest peer may be affected (I13).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from random import Random
from typing import Any, Final

from requite.engine import (
    Cause,
    Connect,
    Disconnect,
    Effect,
    Input,
    PeerJoined,
    PeerLost,
    Received,
    Send,
    Wake,
)
from requite.framing.base import Framing
from requite.shell.host import Host
from requite.sim.kernel.engine_process import EngineProcess
from requite.sim.kernel.raw_bytes import RawBytes
from requite.sim.kernel.stage import RunStage
from requite.sim.kernel.stream import SimStream

_GIVE_UP_S: Final = 1.0
_FLOOD_SIZE: Final = 100_000

Messages = list[list[bytes]]


class GarbageEngine:
    """The engine of an intruder: on each connection one of the `kinds` of garbage.

    A kind is a function of the random stream and of `facts` that returns messages. An intruder that
    sends more than fits into buffers stops reading.
    """

    def __init__(
        self, rng: Random, kinds: Sequence[Callable[..., Messages]] = (), *facts: Any
    ) -> None:
        self.rng = rng
        self.kinds = kinds
        self.facts = facts
        self.peers: dict[Any, None] = {}
        self._dial_at = 0.0
        self._leave_at: float | None = None

    def play(self, peer: Any) -> Messages:
        """Return the messages for a new connection."""
        messages = self.rng.choice(self.kinds)(self.rng, *self.facts)
        if sum(len(frame) for message in messages for frame in message) > _FLOOD_SIZE:
            peer.stream.pause_reading()
        return messages

    def answer(self, event: Received) -> Iterable[Effect]:
        """Ignore received messages, or reply to them."""
        return ()

    # --- the engine -------------------------------------------------------------------------------
    def handle(self, events: Sequence[Input], now: float) -> Iterable[Effect]:
        """See `requite.engine.Engine.handle`."""
        return [effect for event in events for effect in self._handle(event, now)]

    def _handle(self, event: Input, now: float) -> Iterator[Effect]:
        if isinstance(event, PeerJoined):
            self.peers[event.peer] = None
            yield from (Send(event.peer, message) for message in self.play(event.peer))
            if self.rng.random() < 0.5:
                self._leave_at = now + self.rng.uniform(0.0, _GIVE_UP_S)
        elif isinstance(event, PeerLost):
            self.peers.pop(event.peer, None)
        elif isinstance(event, Received):
            yield from self.answer(event)
        elif isinstance(event, Wake):
            yield from self._woken(now)

    def _woken(self, now: float) -> Iterator[Effect]:
        if now >= self._dial_at:
            self._dial_at = now + self.rng.uniform(0.02, 0.4)
            yield Connect()
        if self._leave_at is not None and now >= self._leave_at:
            self._leave_at = None
            yield from (Disconnect(peer, "enough", Cause.DONE) for peer in self.peers)
            self.peers.clear()

    def deadline(self) -> float | None:
        """See `requite.engine.Engine.deadline`."""
        return self._dial_at if self._leave_at is None else min(self._dial_at, self._leave_at)

    def snapshot(self) -> int:
        """Return the number of connections."""
        return len(self.peers)


class BaseIntruder(EngineProcess):
    """A process that sends garbage to a random peer each time."""

    is_honest = False
    kinds: Sequence[Callable[[Random], Messages]]

    def __init__(self, name: str, stage: RunStage[Any, Any]) -> None:
        super().__init__(name, stage.world, stage.network, stage.knobs.pace, stage.supervisor)
        self._limits = stage.knobs.limits

    # --- for subclasses ---------------------------------------------------------------------------
    def make_engine(self) -> GarbageEngine:
        """Return an engine that sends garbage."""
        return GarbageEngine(self.rng, self.kinds)

    @abstractmethod
    def aim(self) -> tuple[str, Framing]:
        """Draw the address to dial, and the framing."""

    # --- life -------------------------------------------------------------------------------------
    def make_host(self) -> Host:
        """Return a host with a new engine."""
        return self.host_of(
            self.make_engine(), self._limits, lambda: RawBytes(b""), connect=self._connect
        )

    def _connect(self) -> None:
        address, framing = self.aim()
        self.network.dial(
            self,
            address,
            lambda stream: self.adopt(stream, lambda: self._open(stream, framing)),
            lambda _why: None,
        )

    def _open(self, stream: SimStream, framing: Framing) -> None:
        self.host.opened(stream, kept=True, framing=framing)
