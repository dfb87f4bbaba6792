"""Stand between a host and its engine, and report every input and effect unchanged to checkers.

A `Hub` wraps the engine of a client or server from one start to its end. It reports whole messages,
and records the state of each connection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from requite.engine import (
    Deliver,
    Effect,
    Engine,
    Fail,
    PeerBlocked,
    PeerJoined,
    PeerWritable,
    Received,
    ResumeReading,
    Send,
    StopReading,
)
from requite.request import Request
from requite.sim.kernel.hub import BaseHub
from requite.sim.majordomo.watch import name_of

if TYPE_CHECKING:
    from requite.sim.freelance.stage import FlpStage
    from requite.sim.kernel.party import BaseParty


class Hub(BaseHub):
    """An engine under observation; its `kind` is "client" or "server".

    By connection: `names` of the peers, `heard_at` (the world's time of the last bytes), `open`
    (without back-pressure), `unread` (the engine stopped reading). `ending`: the calls that the
    current input ends.
    """

    def __init__(self, engine: Engine, process: BaseParty[FlpStage], stage: FlpStage) -> None:
        super().__init__(engine, process, process.kind, stage.history, stage.transcript)
        self.model = stage.knobs.model
        self.heard_at: dict[Any, float] = {}
        self.open: dict[Any, None] = {}
        self.unread: dict[Any, None] = {}
        self.ending: dict[Any, None] = {}
        self._inputs |= {
            PeerBlocked: lambda event: self._blocked(event.peer),
            PeerWritable: lambda event: self._writable(event.peer),
        }
        self._effects |= {
            Fail: lambda effect: self.ending.setdefault(effect.token),
            StopReading: lambda effect: self.unread.setdefault(effect.peer),
            ResumeReading: lambda effect: self.unread.pop(effect.peer, None),
        }

    def _watch(self, effects: list[Effect]) -> None:
        super()._watch(effects)
        self.ending.clear()

    # --- inputs -----------------------------------------------------------------------------------
    def _joined(self, event: PeerJoined) -> None:
        self.names[event.peer] = name_of(event.peer)
        self.heard_at[event.peer] = self._world.now
        self._writable(event.peer)

    def _lost(self, peer: Any) -> None:
        if peer not in self.names:
            return
        self._blocked(peer)
        self._tell("channel_lost", self, peer)
        del self.names[peer], self.heard_at[peer]
        self.unread.pop(peer, None)

    def _blocked(self, peer: Any) -> None:
        self.open.pop(peer, None)
        self._tell("channel_down", self, peer)

    def _writable(self, peer: Any) -> None:
        self.open[peer] = None
        self._tell("channel_up", self, peer)

    def _received(self, event: Received) -> None:
        if event.peer not in self.names:
            return  # disconnected while the host still had its first messages
        self._tell("batch_came", self, event.peer)
        self.heard_at[event.peer] = self._world.now
        what = "reply_came" if self.kind == "client" else "request_came"
        for message in event.messages:
            self._tell(what, self, event.peer, list(message))

    # --- effects ----------------------------------------------------------------------------------
    def _sent(self, effect: Send) -> None:
        message = list(effect.message)
        if effect.peer not in self.names:
            self._tell("sent_in_vain", self, effect.peer, message)
        elif self.kind == "client":
            self._tell("request_sent", self, effect.peer, message)
        else:
            self._tell("reply_sent", self, effect.peer, message)

    def _delivered(self, effect: Deliver) -> None:
        self.ending[effect.token] = None
        if isinstance(effect.what, Request):  # its token is a `Job`, which has the peer
            job = effect.token
            self._tell("request_taken", self, job.peer, [*job.envelope, *effect.what.frames])
