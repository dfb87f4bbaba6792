"""Stand between a host and its engine, and report every input and effect unchanged to checkers.

A `Hub` wraps the engine of a client, worker or device from one start to its end. It receives
requests over channels at its front, and sends them over channels at its back: a client has only a
back, a worker only a front.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from requite.engine import (
    Deliver,
    DeliverAll,
    Effect,
    Engine,
    Input,
    Note,
    PeerBlocked,
    PeerJoined,
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
from requite.sim.kernel.history import History
from requite.sim.kernel.hub import BaseHub
from requite.sim.majordomo.watch import name_of
from requite.sim.scalability.stack import IDS, payload_of
from requite.sim.scalability.topology import BACK

if TYPE_CHECKING:
    from requite.sim.kernel.party import BaseParty
    from requite.sim.kernel.transcript import Transcript


class Hub(BaseHub):
    """An engine under observation; its `kind` is "client", "worker" or "device", and its request
    ids begin at `first_id`."""

    def __init__(
        self,
        engine: Engine,
        process: BaseParty[Any],
        kind: str,
        first_id: int,
        history: History,
        transcript: Transcript | None = None,
    ) -> None:
        super().__init__(engine, process, kind, history, transcript)
        self.places: dict[Any, PipeOptions] = {}  # by open channel
        self.unread: dict[Any, None] = {}  # channels that the engine stopped reading
        self.handed_on = 0  # the number of requests sent
        self._first_id = first_id
        self._newest = -1  # a client's latest request, counted from the first one
        self._is_mixed = False  # a batch mixes old and new requests: their order is unknown
        self._inputs |= {
            PeerBlocked: lambda event: self._blocked(event.peer),
            PeerWritable: lambda event: self._writable(event.peer),
        }
        self._effects |= {
            Note: self._noted,
            StopReading: lambda effect: self.unread.setdefault(effect.peer),
            ResumeReading: lambda effect: self.unread.pop(effect.peer, None),
        }

    def handle(self, events: Sequence[Input], now: float) -> Iterable[Effect]:
        """See `requite.engine.Engine.handle`.

        The requests of one turn leave a client channel by channel. They are checked in the order of
        their request ids, unless the turn also resends old ones.
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

    def is_back(self, peer: Any) -> bool:
        """Whether the engine sends requests over a channel."""
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
            return  # disconnected while the host still had its first messages
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
        if isinstance(effect.what, Request):  # its token is a `Job`, which has the request's tags
            self._tell("request_taken", self, effect.token.stack + effect.what.frames[0])

    def _noted(self, note: Note) -> None:
        if note.kind == "dropped" and note.facts["why"] == Why.STUCK:
            self._tell("gave_up", self)

    def _sorted(self, effects: list[Effect]) -> list[Effect]:
        """Return the effects with requests first, in the order of their ids."""
        sends = [effect for effect in effects if isinstance(effect, Send)]
        sends.sort(key=self._number)
        self._is_mixed = bool(sends) and self._number(sends[0]) <= self._newest
        return [*sends, *(effect for effect in effects if not isinstance(effect, Send))]

    def _number(self, send: Send) -> int:
        """Return a request's number, counted from the client's first request id; ids wrap to 0."""
        return (int.from_bytes(send.message[0], "big") - self._first_id) % IDS


def one_by_one(effect: Effect) -> Iterable[Effect]:
    if isinstance(effect, SendAll):
        return [Send(effect.peer, message) for message in effect.messages]
    if isinstance(effect, DeliverAll):
        return [Deliver(token, what) for token, what in effect.pairs]
    return [effect]
