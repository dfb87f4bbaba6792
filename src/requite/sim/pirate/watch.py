"""Stand between a host and its engine, and report every input and effect unchanged to checkers.

A `Hub` wraps the engine of a client, server, queue or worker from one start to its end. It reports
received messages as `request_came` or `reply_came`, sent ones as `request_sent` or `reply_sent`: a
client sends requests, a server and a worker reply, and a queue replies at its front and sends
requests at its back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from requite.engine import (
    Drain,
    Engine,
    PeerBlocked,
    PeerJoined,
    PeerWritable,
    Received,
    Send,
    Stopped,
)
from requite.protocols.pirate.policy import BACK
from requite.sim.kernel.history import History
from requite.sim.kernel.hub import BaseHub
from requite.sim.majordomo.watch import name_of

if TYPE_CHECKING:
    from requite.sim.kernel.process import Process
    from requite.sim.kernel.transcript import Transcript


class Hub(BaseHub):
    """An engine under observation; `kind` is "client", "server", "queue" or "worker"."""

    def __init__(
        self,
        engine: Engine,
        process: Process,
        kind: str,
        history: History,
        transcript: Transcript | None = None,
    ) -> None:
        super().__init__(engine, process, kind, history, transcript)
        self.places: dict[Any, Any] = {}  # by open connection
        self.draining = self.stopped = False
        self._inputs |= {
            PeerBlocked: lambda event: self._tell("channel_down", self, event.peer),
            PeerWritable: lambda event: self._tell("channel_up", self, event.peer),
            Drain: self._drained,
        }
        self._effects[Stopped] = self._has_stopped

    @property
    def now(self) -> float:
        """The world's time, minus the time that the process was frozen."""
        return self.process.world.now - self.process.frozen_s

    def asks(self, peer: Any) -> bool:
        """Whether the engine sends requests over a connection, and receives replies."""
        return self.kind == "client" or (self.kind == "queue" and self.places.get(peer) == BACK)

    def _has_stopped(self, _effect: Stopped) -> None:
        self.stopped = True

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
