"""Stand between a host and its engine, and report every input and effect unchanged to checkers.

A `Hub` wraps the engine of a client, server, queue or worker from one start to its end. It reports
received messages as `request_came` or `reply_came`, sent ones as `request_sent` or `reply_sent`: a
client sends requests, a server and a worker reply, and a queue replies at its front and sends
requests at its back.
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
from requite.sim.kernel.history import History
from requite.sim.majordomo.watch import name_of

if TYPE_CHECKING:
    from requite.sim.kernel.process import Process
    from requite.sim.kernel.transcript import Transcript


class Hub:
    """An engine under observation; `kind` is "client", "server", "queue" or "worker"."""

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
        self.places: dict[Any, Any] = {}  # by open connection
        self.names: dict[Any, str] = {}  # the peer, by connection
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
        """The world's time, minus the time that the process was frozen."""
        return self.process.world.now - self.process.frozen_s

    def asks(self, peer: Any) -> bool:
        """Whether the engine sends requests over a connection, and receives replies."""
        return self.kind == "client" or (self.kind == "queue" and self.places.get(peer) == BACK)

    def handle(self, events: Sequence[Input], now: float) -> Iterable[Effect]:
        """See `requite.engine.Engine.handle`; the engine gets one input at a time."""
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
            return  # disconnected while the host still had its first messages
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
