"""Stand between a host and its engine, and report every input and effect unchanged to checkers.

A `Hub` wraps the engine of a client or server from one start to its end. It reports whole messages,
and records the state of each connection.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from requite.engine import (
    Deliver,
    Disconnect,
    Effect,
    Engine,
    Fail,
    Input,
    PeerBlocked,
    PeerJoined,
    PeerLost,
    PeerWritable,
    Received,
    ResumeReading,
    Send,
    StopReading,
)
from requite.request import Request
from requite.sim.majordomo.watch import name_of

if TYPE_CHECKING:
    from requite.sim.freelance.stage import FlpStage
    from requite.sim.kernel.party import BaseParty


class Hub:
    """An engine under observation; its `kind` is "client" or "server".

    By connection: `names` of the peers, `heard_at` (the world's time of the last bytes), `open`
    (without back-pressure), `unread` (the engine stopped reading). `ending`: the calls that the
    current input ends.
    """

    def __init__(self, engine: Engine, process: BaseParty[FlpStage], stage: FlpStage) -> None:
        self.engine = engine
        self.process = process
        self.name = process.name
        self.kind = process.kind
        self.model = stage.knobs.model
        self.deadline = engine.deadline
        self.snapshot = engine.snapshot
        self.names: dict[Any, str] = {}
        self.heard_at: dict[Any, float] = {}
        self.open: dict[Any, None] = {}
        self.unread: dict[Any, None] = {}
        self.ending: dict[Any, None] = {}
        self._world = stage.world
        self._transcript = stage.transcript
        self._tell = stage.history.tell
        self._inputs: dict[type, Callable[[Any], None]] = {
            PeerJoined: self._joined,
            PeerLost: lambda event: self._lost(event.peer),
            PeerBlocked: lambda event: self._blocked(event.peer),
            PeerWritable: lambda event: self._writable(event.peer),
            Received: self._received,
        }
        self._effects: dict[type, Callable[[Any], None]] = {
            Send: self._sent,
            Deliver: self._delivered,
            Fail: lambda effect: self.ending.setdefault(effect.token),
            Disconnect: self._disconnected,
            StopReading: lambda effect: self.unread.setdefault(effect.peer),
            ResumeReading: lambda effect: self.unread.pop(effect.peer, None),
        }

    def __str__(self) -> str:
        return self.name

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
            see = self._effects.get(effect.__class__)
            if see is not None:
                see(effect)
        self._tell("rested", self)
        self.ending.clear()
        return effects

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

    def _disconnected(self, effect: Disconnect) -> None:
        self._tell("sent_away", self, effect.peer, effect.reason)
        self._lost(effect.peer)
