"""Stand between a host and its engine: see every input and effect, change none, and tell of them.

A `Hub` is the engine of one life of a client, a worker or a device. Its channels have sides: over
those at the front requests come in, over those at the back they go out. So a client has only a
back, a worker only a front.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from requite.engine import (
    Deliver,
    DeliverAll,
    Disconnect,
    Effect,
    Engine,
    Input,
    Note,
    PeerBlocked,
    PeerJoined,
    PeerLost,
    PeerWritable,
    Received,
    ResumeReading,
    Send,
    SendAll,
    StopReading,
)
from requite.protocols.scalability.jobs import Why
from requite.protocols.scalability.policy import PipeOptions
from requite.request import Request
from requite.sim.history import History
from requite.sim.scalability.stack import IDS, payload_of
from requite.sim.scalability.topology import BACK
from requite.sim.watch import name_of

if TYPE_CHECKING:
    from requite.sim.party import BaseParty
    from requite.sim.transcript import Transcript


class Hub:
    """An engine, looked at from outside; its `kind` is "client", "worker" or "device", and the ids
    of its requests begin at `first_id`."""

    def __init__(
        self,
        engine: Engine,
        process: BaseParty[Any],
        kind: str,
        first_id: int,
        history: History,
        transcript: Transcript | None = None,
    ) -> None:
        self.engine = engine
        self.process = process
        self.name = process.name
        self.kind = kind
        self.deadline = engine.deadline
        self.snapshot = engine.snapshot
        self.places: dict[Any, PipeOptions] = {}  # of the channels that there are
        self.unread: dict[Any, None] = {}  # those that the engine does not read from
        self.names: dict[Any, str] = {}  # who is at the other end
        self.handed_on = 0  # how many requests it has sent
        self._first_id = first_id
        self._newest = -1  # a client's latest request, counted from the first one
        self._is_mixed = False  # old requests are among new ones: nobody knows their order
        self._transcript = transcript
        self._tell = history.tell
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
            Disconnect: self._disconnected,
            Note: self._noted,
            StopReading: lambda effect: self.unread.setdefault(effect.peer),
            ResumeReading: lambda effect: self.unread.pop(effect.peer, None),
        }

    def __str__(self) -> str:
        return self.name

    def handle(self, events: Sequence[Input], now: float) -> Iterable[Effect]:
        """See `requite.engine.Engine.handle`.

        What a client sends in one turn leaves channel by channel. It is looked at in the order in
        which it was made, which the request ids tell, unless some of it was made before.
        """
        for event in events:
            self._look_at(event)
        effects = list(self.engine.handle(events, now))
        single = [each for effect in effects for each in one_by_one(effect)]
        if self.kind == "client" and (len(events) > 1 or isinstance(events[0], Received)):
            single = self._sorted(single)
        self._watch(single)
        self._is_mixed = False
        return effects

    def _look_at(self, event: Input) -> None:
        look = self._inputs.get(event.__class__)
        if look is not None:
            look(event)

    def _watch(self, effects: list[Effect]) -> list[Effect]:
        if self._transcript is not None:
            self._transcript.effects(self.process, effects)
        for effect in effects:
            look = self._effects.get(effect.__class__)
            if look is not None:
                look(effect)
        self._tell("rested", self)
        return effects

    def is_back(self, peer: Any) -> bool:
        """Whether requests go out over a channel."""
        return peer in self.places and self.places[peer].side == BACK

    # --- inputs -----------------------------------------------------------------------------------
    def _joined(self, event: PeerJoined) -> None:
        self.places[event.peer] = event.place
        self.names[event.peer] = name_of(event.peer)
        self._writable(event.peer)

    def _lost(self, peer: Any) -> None:
        self._blocked(peer)
        self._tell("channel_lost", self, peer)
        self.places.pop(peer, None)
        self.unread.pop(peer, None)

    def _blocked(self, peer: Any) -> None:
        self._tell("channel_down" if self.is_back(peer) else "caller_down", self, peer)

    def _writable(self, peer: Any) -> None:
        self._tell("channel_up" if self.is_back(peer) else "caller_up", self, peer)

    def _received(self, event: Received) -> None:
        if event.peer not in self.places:
            return  # sent away while the host had its first words in hand
        self._tell("batch_came", self, event.peer)
        what = "reply_came" if self.is_back(event.peer) else "request_came"
        for (payload,) in event.messages:
            self._tell(what, self, event.peer, payload)

    # --- effects ----------------------------------------------------------------------------------
    def _maybe_forget_turns(self) -> None:
        if self._is_mixed:
            self._tell("turns_unknown", self)

    def _sent(self, effect: Send) -> None:
        self._maybe_forget_turns()
        self._look_at_request(effect)
        self._maybe_forget_turns()
        if self.kind == "client":
            self._newest = max(self._newest, self._number(effect))

    def _look_at_request(self, effect: Send) -> None:
        payload = payload_of(effect.message)
        if effect.peer not in self.places:
            self._tell("sent_in_vain", self, effect.peer, payload)
        elif self.is_back(effect.peer):
            self.handed_on += 1
            self._tell("request_sent", self, effect.peer, payload)
        else:
            self._tell("reply_sent", self, effect.peer, payload)

    def _delivered(self, effect: Deliver) -> None:
        if isinstance(effect.what, Request):  # under a `Job`, which has the tags that it came with
            self._tell("request_taken", self, effect.token.stack + effect.what.frames[0])

    def _disconnected(self, effect: Disconnect) -> None:
        self._tell("sent_away", self, effect.peer, effect.reason)
        self._lost(effect.peer)

    def _noted(self, note: Note) -> None:
        if note.kind == "dropped" and note.facts["why"] == Why.STUCK:
            self._tell("gave_up", self)

    def _sorted(self, effects: list[Effect]) -> list[Effect]:
        """Put requests into their order, and in front."""
        sends = [effect for effect in effects if isinstance(effect, Send)]
        sends.sort(key=self._number)
        self._is_mixed = bool(sends) and self._number(sends[0]) <= self._newest
        return [*sends, *(effect for effect in effects if not isinstance(effect, Send))]

    def _number(self, send: Send) -> int:
        """Count from the client's first request id, beyond which they may begin at 0 again."""
        return (int.from_bytes(send.message[0], "big") - self._first_id) % IDS


def one_by_one(effect: Effect) -> Iterable[Effect]:
    if isinstance(effect, SendAll):
        return [Send(effect.peer, message) for message in effect.messages]
    if isinstance(effect, DeliverAll):
        return [Deliver(token, what) for token, what in effect.pairs]
    return [effect]
