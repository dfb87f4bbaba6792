"""Stand between a host and its engine: see every input and effect, change none, and tell of them.

A `Hub` is the engine of one life of a client, a server, a queue or a worker. What comes in over a
connection is told as `request_came` or `reply_came`, what leaves as `request_sent` or `reply_sent`:
a client asks, a server and a worker answer, and a queue answers in front and asks at its back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from requite.engine import (
    Disconnect,
    Drain,
    Effect,
    Engine,
    Input,
    PeerBlocked,
    PeerJoined,
    PeerLost,
    PeerWritable,
    Received,
    Send,
    Stopped,
)
from requite.protocols.pirate.policy import BACK
from requite.sim.history import History
from requite.sim.watch import name_of

if TYPE_CHECKING:
    from requite.sim.process import Process
    from requite.sim.transcript import Transcript


class Hub:
    """An engine, looked at from outside; `kind` is "client", "server", "queue" or "worker"."""

    def __init__(
        self,
        engine: Engine,
        process: Process,
        kind: str,
        history: History,
        transcript: Transcript | None = None,
    ) -> None:
        self.engine = engine
        self.process = process
        self.name = process.name
        self.kind = kind
        self.deadline = engine.deadline
        self.snapshot: Callable[[], Any] = engine.snapshot
        self.places: dict[Any, Any] = {}  # of the connections that there are
        self.names: dict[Any, str] = {}  # who is at the other end
        self.draining = self.stopped = False
        self._transcript = transcript
        self._tell = history.tell
        self._inputs: dict[type, Callable[[Any], None]] = {
            PeerJoined: self._joined,
            PeerLost: lambda event: self._lost(event.peer),
            PeerBlocked: lambda event: self._tell("channel_down", self, event.peer),
            PeerWritable: lambda event: self._tell("channel_up", self, event.peer),
            Received: self._received,
            Drain: self._drained,
        }

    def __str__(self) -> str:
        return self.name

    @property
    def now(self) -> float:
        """The world's time, less that in which the process stood still."""
        return self.process.world.now - self.process.frozen_s

    def asks(self, peer: Any) -> bool:
        """Whether requests go out over a connection, and replies come in."""
        return self.kind == "client" or (self.kind == "queue" and self.places.get(peer) == BACK)

    def handle(self, events: Sequence[Input], now: float) -> Iterable[Effect]:
        """See `requite.engine.Engine.handle`; the engine is fed one input at a time."""
        return [effect for event in events for effect in self._handle(event, now)]

    def _handle(self, event: Input, now: float) -> Iterable[Effect]:
        look = self._inputs.get(event.__class__)
        if look is not None:
            look(event)
        effects = list(self.engine.handle((event,), now))
        if self._transcript is not None:
            self._transcript.effects(self.process, effects)
        for effect in effects:
            if isinstance(effect, Send):
                self._sent(effect)
            elif isinstance(effect, Disconnect):
                self._tell("sent_away", self, effect.peer, effect.reason)
                self._lost(effect.peer)
            elif isinstance(effect, Stopped):
                self.stopped = True
        self._tell("rested", self)
        return effects

    def _joined(self, event: PeerJoined) -> None:
        self.places[event.peer] = event.place
        self.names[event.peer] = name_of(event.peer)
        self._tell("channel_up", self, event.peer)

    def _lost(self, peer: Any) -> None:
        self._tell("channel_lost", self, peer)
        self.places.pop(peer, None)

    def _drained(self, _event: Drain) -> None:
        self.draining = True

    def _received(self, event: Received) -> None:
        if event.peer not in self.places:
            return  # sent away while the host had its first words in hand
        self._tell("batch_came", self, event.peer)
        what = "reply_came" if self.asks(event.peer) else "request_came"
        for message in event.messages:
            self._tell(what, self, event.peer, list(message))

    def _sent(self, effect: Send) -> None:
        if effect.peer not in self.places:
            self._tell("sent_in_vain", self, effect.peer, effect.message)
        elif self.asks(effect.peer):
            self._tell("request_sent", self, effect.peer, list(effect.message))
        else:
            self._tell("reply_sent", self, effect.peer, list(effect.message))
