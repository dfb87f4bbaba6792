"""Observe an engine: report every input and effect to the checkers, and change none.

A `Hub` wraps the engine of a client or worker; it is new after each start. It decodes requests and
replies from the messages, without asking the engine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from requite.engine import (
    Deliver,
    Effect,
    Engine,
    Fail,
    Input,
    Message,
    PeerJoined,
    Received,
    Send,
    Stopped,
)
from requite.errors import RemoteViolation
from requite.protocols.amqp import methods, wire
from requite.protocols.amqp.connected import SIDE, WORK
from requite.protocols.amqp.properties import decode_properties
from requite.sim.kernel import hub
from requite.sim.kernel.transcript import name_of
from requite.sim.kernel.workload import parse_task
from requite.sim.rabbitmq import server_methods

if TYPE_CHECKING:
    from requite.sim.amqp.stage import AmqpStage
    from requite.sim.kernel.history import Call
    from requite.sim.kernel.party import Party

_LOSSES = frozenset({methods.BASIC_CANCEL, methods.CHANNEL_CLOSE, methods.CONNECTION_CLOSE})
"""Methods after which a client can receive no more replies on the connection."""


class Hub(hub.Hub):
    """An engine under observation; its `kind` is "client" or "worker".

    `reply_path_losses`: how often the reply path was lost; `losses_before`: the same before the
    current input, which may cause both a loss and a publish. `last_heard_at`: when RabbitMQ last
    sent something, in world time; `frozen_before_s`: how long the process had been frozen until
    then.
    `unsettled`: the deliveries of the current channel that are neither acknowledged nor rejected.
    `cancelled`: the calls whose cancel it has received. `ending`: the calls that the current input
    ends.
    """

    def __init__(self, engine: Engine, process: Party[AmqpStage]) -> None:
        super().__init__(engine, process)
        self.reply_path_losses = self.losses_before = 0
        self.last_heard_at = self.frozen_before_s = 0.0
        self.unsettled: dict[int, None] = {}
        self.cancelled: dict[int, None] = {}
        self.ending: dict[Any, Any] = {}
        self._new_cancels: list[int] = []  # received with the current input
        self._names = process.stage.names
        self._effects |= {
            Fail: lambda effect: self.ending.setdefault(effect.token, effect.error),
            Stopped: lambda _effect: self._tell("left", self),
        }

    def _look_at(self, event: Input) -> None:
        self.losses_before = self.reply_path_losses
        super()._look_at(event)

    def _watch(self, effects: list[Effect]) -> None:
        super()._watch(effects)
        self.ending.clear()
        self.cancelled.update(dict.fromkeys(self._new_cancels))
        self._new_cancels.clear()

    def call_of(self, message: Message) -> Call | None:
        """Return the call whose request is in a message; None for other messages."""
        frames = server_methods.unpack(message[3]) if len(message) > 3 else None
        task = None if frames is None else parse_task(frames)
        return None if task is None else self._history.calls.get(task.number)

    # --- inputs -----------------------------------------------------------------------------------
    def _joined(self, event: PeerJoined) -> None:
        self.names[event.peer] = name_of(event.peer)
        self._heard()

    def _heard(self) -> None:
        self.last_heard_at = self._world.now
        self.frozen_before_s = self.process.frozen_s

    def _lost(self, peer: Any) -> None:
        if self.names.pop(peer, None) is not None:
            self.reply_path_losses += 1
            self.unsettled.clear()

    def _received(self, event: Received) -> None:
        if event.peer not in self.names:
            return  # disconnected while the host held its first messages
        self._heard()
        for message in event.messages:
            if message:
                self._observe_received(message)

    def _observe_received(self, message: Message) -> None:
        channel, method = message[0], message[1]
        kind = method[:4]
        if kind == methods.BASIC_RETURN:
            self._tell("request_returned", self, self.call_of(message))
        elif kind == methods.BASIC_DELIVER and self.kind == "worker":
            if channel == WORK:
                self.unsettled[server_methods.read_deliver(method)] = None
            elif channel == SIDE:
                self._note_cancel(message)
        elif kind in _LOSSES and channel != SIDE:
            self.reply_path_losses += 1
            if kind != methods.BASIC_CANCEL and channel in (WORK, methods.CONNECTION):
                self.unsettled.clear()

    def _note_cancel(self, message: Message) -> None:
        """Record the cancel of a request."""
        try:
            properties = decode_properties(message[2])
        except RemoteViolation:
            return
        number = self._names.get(properties.message_id)
        if number is not None and properties.headers.get(wire.CONTROL) == wire.Control.CANCEL:
            self._new_cancels.append(number)

    # --- effects ----------------------------------------------------------------------------------
    def _sent(self, effect: Send) -> None:
        message = list(effect.message)
        if effect.peer not in self.names:
            self._tell("sent_in_vain", self, effect.peer, message)
        elif message:
            self._observe_sent(message)

    def _observe_sent(self, message: Message) -> None:
        kind = message[1][:4]
        if kind in (methods.BASIC_ACK, methods.BASIC_REJECT):
            self.unsettled.pop(server_methods.read_settle(message[1]).tag, None)
        elif kind == methods.BASIC_PUBLISH and self.kind == "client":
            call = self.call_of(message)
            if call is not None:
                self._names[decode_properties(message[2]).message_id] = call.number
                self._tell("request_sent", self, call, message)

    def _delivered(self, effect: Deliver) -> None:
        if self.kind == "client":
            self.ending[effect.token] = effect.what
        else:
            self._tell("request_taken", self, server_methods.unpack(effect.what.frames[0]))
