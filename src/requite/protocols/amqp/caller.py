"""The caller: publishes requests, and matches what comes to its reply queue to the slots of calls.

    HELD ──► SENT ──► answered
      ▲        │
      └────────┘   the way of its reply is gone: connection, channel or reply queue

and out of both states: failed, timed out, cancelled. Calls are held until there is a connection and
a reply queue (`way.py`).

A request that no queue takes comes back at once (`mandatory`), and its call ends with `NoService`.
One that is not idempotent is never published again once it may have run, and retries by time share
one budget (I11).

Sources: "RPC over AMQP", sections "Multiple-client & Single-servant", "The slotted client",
"Handling all slots being occupied" and "Negative responses"; "Scalable async RPC", section "Client
protocol".
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any, Final

from requite.chronicle import NO_INSTANCE, Chronicle
from requite.engine import (
    Cancel,
    Deliver,
    Drain,
    Fail,
    Message,
    PeerBlocked,
    PeerWritable,
    Stopped,
    Submit,
    Wake,
    Warn,
)
from requite.errors import CallError, Cancelled, LocalViolation, RemoteViolation, TransportError
from requite.protocols.amqp import failures, methods, wire
from requite.protocols.amqp.calls import CallerSnapshot, PendingCall
from requite.protocols.amqp.connected import SIDE, WORK, ConnectedEngine
from requite.protocols.amqp.methods import Heard
from requite.protocols.amqp.policy import BUDGET_PAUSE_S, CALLS_WORTH_A_SECOND, CallerPolicy
from requite.protocols.amqp.properties import Properties, decode_properties, encode_properties
from requite.protocols.amqp.recorders import CallerRecorder
from requite.protocols.amqp.topology import Destination
from requite.protocols.amqp.way import Way
from requite.protocols.amqp.wire import Control
from requite.request import Partial, Reply, RetryBudget, RetryPolicy
from requite.slots import Slots
from requite.sweep import Sweep

_CACHED_MAX: Final = 1024  # beyond it the table starts afresh: users may make names up
_ACCESS_REFUSED: Final = 403  # AMQP 0.9.1, section 1.2


class AmqpCaller(ConnectedEngine):
    """A caller of the services at one `destination`.

    `origin`, the first half of its call ids and part of its queues' names, should be random per
    start, and so should `first_sequence`. `chronicle` takes down what happens to calls.
    """

    def __init__(
        self,
        policy: CallerPolicy | None = None,
        destination: Destination | None = None,
        *,
        origin: bytes = NO_INSTANCE,
        first_sequence: int = 0,
        chronicle: Chronicle | None = None,
    ) -> None:
        self._policy = policy = policy or CallerPolicy()
        super().__init__(policy.heartbeat)
        self._origin = origin
        self._recorder = None if chronicle is None else CallerRecorder(chronicle, origin)
        self._budget = RetryBudget(
            RetryPolicy(budget=policy.budget, budget_burst=policy.budget_burst)
        )
        self._earned_at = 0.0  # whatever that is: the budget is full
        self._slots: Slots[PendingCall] = Slots(policy.slots, first_sequence)
        self._calls: dict[Any, PendingCall] = {}  # by token, in the order of submission
        self._held: dict[PendingCall, None] = {}  # a set that keeps its order
        self._unconfirmed: dict[int, int] = {}  # request ids by the number of their publishing
        self._sweep = Sweep()
        self._publishings: dict[str, bytes] = {}  # the method by service
        self._call_number = self._publish_number = 0
        self._way = Way(
            destination or Destination(),
            origin,
            self._send,
            confirms=policy.confirms,
            direct_reply=policy.direct_reply,
        )
        self._resent = self._returned = self._stray = 0
        self._inputs |= {
            Submit: self._submitted,
            Cancel: self._cancelled,
            Wake: self._woken,
            Drain: self._drained,
            PeerBlocked: _go_on,  # the shell holds further calls back
            PeerWritable: _go_on,
        }
        self._hears: dict[type, Callable[[Any, Message, float], None]] = {
            methods.Delivered: self._replied,
            methods.Returned: self._came_back,
            methods.Confirmed: self._confirmed,
            methods.Consuming: self._began_to_consume,
            methods.Cancelled: self._lost_queue,
            methods.Closed: self._lost_channel,
        }

    # --- the engine's contract --------------------------------------------------------------------
    def deadline(self) -> float | None:
        """See `requite.engine.Engine.deadline`: the next of all instants, or none (tickless)."""
        at = self._sweep.at if self._stopped else min(self._sweep.at, self._beat_at())
        if self._recorder is not None:
            at = min(at, self._recorder.look_at)
        return None if at == inf else at

    def snapshot(self) -> CallerSnapshot:
        """Return the sizes of all tables."""
        held = len(self._held)
        return CallerSnapshot(
            self._way.is_ready,
            held,
            len(self._calls) - held,
            len(self._unconfirmed),
            self._resent,
            self._returned,
            self._stray,
            self._stopped,
        )

    def forsake(self, error: CallError, now: float) -> None:
        """Tell the journal that all calls have ended with `error`, because the engine was given up:
        an exception struck while it was at work. It must not be used any more."""
        if self._recorder is not None:
            for call in self._calls.values():
                self._recorder.failed(call, error, now)

    # --- from the user ----------------------------------------------------------------------------
    def _submitted(self, asked: Submit, now: float) -> None:
        if asked.token in self._calls:
            raise LocalViolation(f"a call with the token {asked.token!r} is still outstanding")
        refusal = self._why_not(asked, now)
        if refusal is not None:
            self._out.append(Fail(asked.token, refusal))
            if self._recorder is not None:
                self._recorder.refused(refusal, now)
            return
        call = self._take_on(asked, now)
        if self._way.is_ready:
            self._transmit(call, now)
            return
        self._hold(call, call.asked.deadline)
        self._get_ready()

    def _why_not(self, asked: Submit, now: float) -> CallError | None:
        """Say why a call is not taken on, if it is not."""
        if self._stopped:
            return failures.closed()
        if asked.deadline <= now:
            return failures.too_late()
        if len(self._slots) == self._slots.capacity and now >= self._sweep.at:
            self._look(now)  # reclaims the slots of calls whose deadline has passed
        if len(self._slots) == self._slots.capacity:
            return failures.no_slot(self._policy.slots)
        return None

    def _take_on(self, asked: Submit, now: float) -> PendingCall:
        self._call_number += 1
        call = PendingCall(asked, self._origin + self._call_number.to_bytes(8, "big"), now)
        request_id = self._slots.take(call)
        assert request_id is not None, "there was a free slot"
        call.request_id = request_id
        self._calls[asked.token] = call
        self._budget.earn()
        if self._recorder is not None:
            self._recorder.accepted(call)
        return call

    def _cancelled(self, event: Cancel, now: float) -> None:
        call = self._calls.get(event.token)
        if call is not None:  # else its end has just crossed the cancel
            self._recall(call)
            self._fail(call, Cancelled("the call was given up by its caller"), now)

    def _drained(self, _event: Drain, now: float) -> None:
        if self._stopped:
            return
        for call in list(self._calls.values()):
            self._recall(call)
            self._fail(call, Cancelled("the client was closed"), now)
        self._stopped = True
        self._sweep.at = inf
        self._out.append(Stopped())

    # --- the way of requests and replies ----------------------------------------------------------
    def _begin(self, _now: float) -> None:
        self._way.reset()
        self._get_ready()

    def _end(self, reason: str, now: float) -> None:
        self._way.reset()
        self._interrupt(reason, now)

    def _get_ready(self) -> None:
        """Have the way made, where there is a connection."""
        if self._agreed and self._way.get_ready():
            self._publish_number = 0  # RabbitMQ counts per channel

    def _began_to_consume(self, _heard: Any, _message: Message, now: float) -> None:
        self._way.began_to_consume()
        self._maybe_release(now)

    def _lost_queue(self, _heard: Any, _message: Message, now: float) -> None:
        """Have another reply queue in place of the one that somebody deleted."""
        self._way.have_queue()
        self._interrupt("the reply queue was deleted", now)

    def _lost_channel(self, closed: methods.Closed, _message: Message, now: float) -> None:
        reason = f"RabbitMQ closed the channel: {closed.code} {closed.text}"
        if self._way.lost_channel() and closed.code != _ACCESS_REFUSED:
            self._interrupt(reason, now)
        else:
            self._refused(f"{reason} (permissions of the user in the URL)", now)
        if self._calls:
            self._get_ready()

    def _hear(self, channel: bytes, heard: Heard, message: Message, now: float) -> None:
        if channel == SIDE:
            self._hear_aside(heard, now)
        elif (hear := self._hears.get(heard.__class__)) is not None:
            hear(heard, message, now)

    def _hear_aside(self, heard: Heard, now: float) -> None:
        match heard:
            case methods.Done(method=methods.EXCHANGE_DECLARE_OK):
                self._way.found_exchange()
                self._maybe_release(now)
            case methods.Closed() if self._way.lost_side(heard):
                exchange = self._way.destination.exchange
                for call in list(self._held):
                    self._fail(call, failures.no_exchange(exchange, heard.text), now)
            case methods.Closed(code=code, text=text):
                lack = f"cancelled calls are not told to workers: {code} {text}"
                self._out.append(Warn("no control", lack))

    def _refused(self, reason: str, now: float) -> None:
        """End all calls: RabbitMQ will not have them until somebody does something."""
        for call in list(self._calls.values()):
            self._fail(call, TransportError(reason), now)

    # --- the life of a try ------------------------------------------------------------------------
    def _hold(self, call: PendingCall, until: float) -> None:
        call.is_sent = False
        self._held[call] = None
        self._wait_until(call, until)

    def _maybe_release(self, now: float) -> None:
        """Publish what is held, if that is possible by now."""
        if not self._way.is_ready:
            return
        for call in list(self._held):
            del self._held[call]
            if now >= call.asked.deadline:  # its timer is late (I15)
                self._fail(call, failures.expired(call, now), now)
            else:
                self._transmit(call, now)

    def _transmit(self, call: PendingCall, now: float) -> None:
        """Make a try."""
        call.tries += 1
        call.is_sent = True
        body = call.body
        asked = call.asked
        header = encode_properties(
            Properties(
                wire.correlation_id(call.request_id),
                self._way.reply_to,
                call.message_id,
                wire.expiration(asked.deadline - now),
                {wire.IDEMPOTENCY_KEY: asked.idempotency_key} if asked.idempotency_key else {},
                self._policy.persistent,
            ),
            len(body),
        )
        self._send(WORK, self._publishing(asked.service), header, body)
        if self._policy.confirms:
            self._publish_number += 1
            self._unconfirmed[self._publish_number] = call.request_id
        if self._recorder is not None:
            self._recorder.sent(call, now)
        try_s = self._policy.attempt_s
        if try_s is None or not asked.idempotent:
            self._wait_until(call, asked.deadline)
        else:
            self._wait_until(call, min(now + try_s, asked.deadline))

    def _publishing(self, service: str) -> bytes:
        """Return the method that publishes a request to a service, made once."""
        method = self._publishings.get(service)
        if method is None:
            if len(self._publishings) >= _CACHED_MAX:
                self._publishings.clear()
            method = methods.publish(self._way.destination.exchange, service, mandatory=True)
            self._publishings[service] = method
        return method

    def _wait_until(self, call: PendingCall, at: float) -> None:
        call.due_at = at
        self._sweep.arm(at)

    def _is_last(self, call: PendingCall) -> bool:
        """Whether there cannot be another try."""
        used_up = call.tries >= self._policy.attempts_max
        return used_up or not call.asked.idempotent or call.index > 0

    def _interrupt(self, reason: str, now: float) -> None:
        """Hold the calls whose replies cannot come any more, or give them up."""
        self._unconfirmed.clear()
        for call in [call for call in self._calls.values() if call.is_sent]:
            call.is_sent = False
            call.loss = reason
            if self._is_last(call):
                self._fail(call, failures.lost(call, reason), now)
            else:
                self._take_back(call, reason, now)
                self._hold(call, call.asked.deadline)

    def _take_back(self, call: PendingCall, reason: str, now: float) -> None:
        """Tell of a try that is given up for the next one."""
        self._resent += 1
        if self._recorder is not None:
            self._recorder.taken_back(call, reason, now)

    def _recall(self, call: PendingCall) -> None:
        """Tell the worker that nobody waits for a call any more, if it may have it."""
        if not (call.is_sent and self._agreed) or self._way.has_no_control:
            return
        headers = {wire.CONTROL: Control.CANCEL.value}
        name = wire.correlation_id(call.request_id)
        properties = Properties(name, message_id=call.message_id, headers=headers)
        self._way.publish_control(call.asked.service, encode_properties(properties, 0))

    # --- what comes back --------------------------------------------------------------------------
    def _replied(self, _heard: Any, message: Message, now: float) -> None:
        try:
            properties = decode_properties(message[2])
        except RemoteViolation as violation:
            self._out.append(Warn("malformed", f"a reply is ignored: {violation}"))
            return
        request_id = wire.request_id_of(properties.correlation_id)
        call = self._slots.get(request_id) if request_id >= 0 else None
        if call is None:
            self._ignore(now)
        elif properties.flaw:
            self._fail(call, failures.malformed(properties.flaw), now)
        elif len(message) < 4:
            self._fail(call, failures.too_large(), now)
        else:
            self._take_reply(call, properties, message[3], now)

    def _take_reply(
        self, call: PendingCall, properties: Properties, body: bytes, now: float
    ) -> None:
        headers = properties.headers
        try:
            index = wire.partial_index(headers) if wire.PARTIAL in headers else None
        except RemoteViolation as violation:
            self._fail(call, failures.malformed(str(violation)), now)
            return
        source = headers.get(wire.WORKER_ID), headers.get(wire.ATTEMPT)
        if index is not None:
            self._take_partial(call, source, index, body, now)
        elif call.source is not None and source != call.source and not self._starts_over(call, now):
            return
        elif error := wire.status_error(headers.get(wire.STATUS), body, call.tries):
            self._fail(call, error, now, tried=error.may_have_executed)
        else:
            self._answer(call, body, _attempts(call, source[1]), now)

    def _take_partial(
        self, call: PendingCall, source: tuple[Any, Any], index: int, body: bytes, now: float
    ) -> None:
        """Pass a partial reply on, or keep it. Another worker's begin again with 0."""
        if call.source is None:
            call.source = source
        elif call.source != source:
            if not self._starts_over(call, now):
                return
            call.source = source
        if index != call.index:
            self._ignore(now)
            return
        call.index += 1
        if call.asked.partials:
            self._out.append(Deliver(call.asked.token, Partial((body,), index)))
        else:
            call.joined.append(body)

    def _starts_over(self, call: PendingCall, now: float) -> bool:
        """Forget the partial replies of a worker that was lost; fail a call of which the user has
        had some (I5)."""
        if call.asked.partials and call.index:
            self._fail(call, failures.changed_worker(), now)
            return False
        call.joined.clear()
        call.index = 0
        return True

    def _answer(self, call: PendingCall, body: bytes, attempts: int, now: float) -> None:
        self._forget(call)
        if call.joined:
            body = b"".join((*call.joined, body))
        elapsed_s = now - call.submitted_at
        self._out.append(
            Deliver(call.asked.token, Reply((body,), attempts=attempts, elapsed=elapsed_s))
        )
        if self._recorder is not None:
            self._recorder.answered(call, len(body), now)

    def _came_back(self, returned: methods.Returned, message: Message, now: float) -> None:
        """End the call whose request no queue takes."""
        self._returned += 1
        try:
            properties = decode_properties(message[2])
        except RemoteViolation:  # we have written it ourselves
            return
        request_id = wire.request_id_of(properties.correlation_id)
        call = self._slots.get(request_id) if request_id >= 0 else None
        if call is not None and call.is_sent:
            where = self._way.destination.describe(returned.routing_key)
            error = failures.unroutable(where, returned.text)
            self._fail(call, error, now, tried=call.tries > 1)

    def _confirmed(self, confirmed: methods.Confirmed, _message: Message, now: float) -> None:
        """Note what RabbitMQ has taken; end the calls of what it has not."""
        numbers = [confirmed.tag]
        if confirmed.multiple:
            numbers = [number for number in self._unconfirmed if number <= confirmed.tag]
        for number in numbers:
            request_id = self._unconfirmed.pop(number, -1)
            if confirmed.is_taken or request_id < 0:
                continue
            call = self._slots.get(request_id)
            if call is not None:
                self._fail(call, failures.not_taken(), now, tried=call.tries > 1)

    def _ignore(self, now: float) -> None:
        """Count a reply to nothing that is outstanding."""
        self._stray += 1
        if self._recorder is not None:
            self._recorder.dropped("late, repeated or stray replies", now)

    # --- ends, and time ---------------------------------------------------------------------------
    def _fail(
        self, call: PendingCall, error: CallError, now: float, *, tried: bool | None = None
    ) -> None:
        """End a call with an error; `tried` tells whether it may have run, where that is known."""
        self._forget(call)
        error.attempts = call.tries
        error.may_have_executed = call.tries > 0 if tried is None else tried
        self._out.append(Fail(call.asked.token, error))
        if self._recorder is not None:
            self._recorder.failed(call, error, now)

    def _forget(self, call: PendingCall) -> None:
        del self._calls[call.asked.token]
        self._slots.free(call.request_id)
        self._held.pop(call, None)

    def _woken(self, _event: Wake, now: float) -> None:
        if self._recorder is not None and now >= self._recorder.look_at:
            self._recorder.look(self._calls, now)
        if not self._stopped:
            self._attend(now)
        if now >= self._sweep.at:
            self._look(now)

    def _look(self, now: float) -> None:
        """Handle every call whose instant has come."""
        for call in self._sweep.due(self._calls.values(), now):
            if now >= call.asked.deadline:
                self._recall(call)
                self._fail(call, failures.expired(call, now), now)
            else:
                self._time_out(call, now)

    def _time_out(self, call: PendingCall, now: float) -> None:
        """Publish a call again whose try has had its time, or give it up."""
        if self._is_last(call):
            error = failures.silent(call, self._policy.attempt_s or 0.0)
            self._recall(call)
            self._fail(call, error, now)
        elif not self._may_spend(now):
            self._wait_until(call, min(now + BUDGET_PAUSE_S, call.asked.deadline))
        else:
            self._take_back(call, "no reply in time", now)
            self._transmit(call, now)

    def _may_spend(self, now: float) -> bool:
        """Tell whether the budget allows a call another try."""
        self._budget.earn((now - self._earned_at) * CALLS_WORTH_A_SECOND)
        self._earned_at = now
        return self._budget.maybe_spend()


def _attempts(call: PendingCall, attempt: Any) -> int:
    """Return how often a call was tried, what RabbitMQ delivered again included."""
    again = attempt - 1 if isinstance(attempt, int) and attempt > 1 else 0
    return call.tries + again


def _go_on(_event: object, _now: float) -> None:
    """Take no notice."""
