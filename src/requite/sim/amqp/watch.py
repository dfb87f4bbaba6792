"""Stand between a host and its engine: see every input and effect, change none, and tell of them.

A `Hub` is the engine of one life of a client or a worker. Requests and replies are read here from
the messages themselves; what the engine thinks of them is not asked.
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
    Message,
    PeerJoined,
    PeerLost,
    Received,
    Send,
    Stopped,
)
from requite.errors import RemoteViolation
from requite.protocols.amqp import methods, wire
from requite.protocols.amqp.connected import SIDE, WORK
from requite.protocols.amqp.properties import decode_properties
from requite.sim.amqp import speech
from requite.sim.watch import name_of
from requite.sim.workload import parse_task

if TYPE_CHECKING:
    from requite.sim.amqp.stage import AmqpStage
    from requite.sim.history import Call
    from requite.sim.party import BaseParty

_LOSSES = frozenset({methods.BASIC_CANCEL, methods.CHANNEL_CLOSE, methods.CONNECTION_CLOSE})
"""What tells a client that replies cannot come any more."""


class Hub:
    """An engine, looked at from outside; its `kind` is "client" or "worker".

    `ways` counts how often the way of replies was lost (`ways_before`: the present input, which may
    bring what is sent and what is lost thereafter), `heard_at` is when RabbitMQ was heard last,
    by the world's time, and `excused_s` how long the process had stood still by then. `owed` are
    the deliveries of the present channel that are neither acknowledged nor given back, `recalled`
    the calls of whose cancel it has heard. `ending` are the calls that the present input ends.
    """

    def __init__(self, engine: Engine, process: BaseParty[AmqpStage], stage: AmqpStage) -> None:
        self.engine = engine
        self.process = process
        self.name = process.name
        self.kind = process.kind
        self.deadline = engine.deadline
        self.snapshot = engine.snapshot
        self.names: dict[Any, str] = {}
        self.ways = self.ways_before = 0
        self.heard_at = self.excused_s = 0.0
        self.owed: dict[int, None] = {}
        self.recalled: dict[int, None] = {}
        self.ending: dict[Any, Any] = {}
        self._recalls: list[int] = []  # of the present input
        self._world = stage.world
        self._history = stage.history
        self._transcript = stage.transcript
        self._tell = stage.history.tell
        self._names = stage.names
        self._inputs: dict[type, Callable[[Any], None]] = {
            PeerJoined: self._joined,
            PeerLost: lambda event: self._lost(event.peer),
            Received: self._received,
        }
        self._effects: dict[type, Callable[[Any], None]] = {
            Send: self._sent,
            Deliver: self._delivered,
            Fail: lambda effect: self.ending.setdefault(effect.token, effect.error),
            Disconnect: self._disconnected,
            Stopped: lambda _effect: self._tell("left", self),
        }

    def __str__(self) -> str:
        return self.name

    def handle(self, events: Sequence[Input], now: float) -> Iterable[Effect]:
        """See `requite.engine.Engine.handle`; the engine is fed one input at a time."""
        return [effect for event in events for effect in self._handle(event, now)]

    def _handle(self, event: Input, now: float) -> Iterable[Effect]:
        self.ways_before = self.ways
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
        self.recalled.update(dict.fromkeys(self._recalls))
        self._recalls.clear()
        return effects

    def call_of(self, message: Message) -> Call | None:
        """Return the call that a message with a request is for; None for any other message."""
        frames = speech.unpack(message[3]) if len(message) > 3 else None
        task = None if frames is None else parse_task(frames)
        return None if task is None else self._history.calls.get(task.number)

    # --- inputs -----------------------------------------------------------------------------------
    def _joined(self, event: PeerJoined) -> None:
        self.names[event.peer] = name_of(event.peer)
        self._heard()

    def _heard(self) -> None:
        self.heard_at = self._world.now
        self.excused_s = self.process.frozen_s

    def _lost(self, peer: Any) -> None:
        if self.names.pop(peer, None) is not None:
            self.ways += 1
            self.owed.clear()

    def _received(self, event: Received) -> None:
        if event.peer not in self.names:
            return  # sent away while the host had its first words in hand
        self._heard()
        for message in event.messages:
            if message:
                self._hear(message)

    def _hear(self, message: Message) -> None:
        channel, method = message[0], message[1]
        kind = method[:4]
        if kind == methods.BASIC_RETURN:
            self._tell("request_returned", self, self.call_of(message))
        elif kind == methods.BASIC_DELIVER and self.kind == "worker":
            if channel == WORK:
                self.owed[speech.read_deliver(method)] = None
            elif channel == SIDE:
                self._recall(message)
        elif kind in _LOSSES and channel != SIDE:
            self.ways += 1
            if kind != methods.BASIC_CANCEL and channel in (WORK, methods.CONNECTION):
                self.owed.clear()

    def _recall(self, message: Message) -> None:
        """Note the cancel of a request."""
        try:
            properties = decode_properties(message[2])
        except RemoteViolation:
            return
        number = self._names.get(properties.message_id)
        if number is not None and properties.headers.get(wire.CONTROL) == wire.Control.CANCEL:
            self._recalls.append(number)

    # --- effects ----------------------------------------------------------------------------------
    def _sent(self, effect: Send) -> None:
        message = list(effect.message)
        if effect.peer not in self.names:
            self._tell("sent_in_vain", self, effect.peer, message)
        elif message:
            self._say(message)

    def _say(self, message: Message) -> None:
        kind = message[1][:4]
        if kind in (methods.BASIC_ACK, methods.BASIC_REJECT):
            self.owed.pop(speech.read_settle(message[1]).tag, None)
        elif kind == methods.BASIC_PUBLISH and self.kind == "client":
            call = self.call_of(message)
            if call is not None:
                self._names[decode_properties(message[2]).message_id] = call.number
                self._tell("request_sent", self, call, message)

    def _delivered(self, effect: Deliver) -> None:
        if self.kind == "client":
            self.ending[effect.token] = effect.what
        else:
            self._tell("request_taken", self, speech.unpack(effect.what.frames[0]))

    def _disconnected(self, effect: Disconnect) -> None:
        self._tell("sent_away", self, effect.peer, effect.reason)
        self._lost(effect.peer)
