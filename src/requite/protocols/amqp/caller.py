"""The caller: publishes requests, and matches replies to calls by slot and sequence number.

    HELD ──► SENT ──► answered
      ▲        │
      └────────┘   connection, channel or reply queue was lost

A call in either state may also fail, time out or be cancelled. Calls are held until there is a
connection and a reply queue (`reply_path.py`).

RabbitMQ returns a request that no queue takes (`mandatory`), and its call ends with `NoService`.
A request that is not idempotent is never published again once it may have run. Retries after a
timeout share one budget (I11).

Sources: "RPC over AMQP", sections "Multiple-client & Single-servant", "The slotted client",
"Handling all slots being occupied" and "Negative responses"; "Scalable async RPC", section "Client
protocol".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf
from types import SimpleNamespace
from typing import Any, ClassVar, Final

from requite.chronicle import NO_INSTANCE, Chronicle
from requite.core.budget import TimedBudget
from requite.core.calls import STRAY, Calls
from requite.core.machine import Handlers, ignore_input
from requite.core.recording import call_observer
from requite.core.slots import Slots
from requite.engine import (
    Cancel,
    Cause,
    Deliver,
    Disconnect,
    Drain,
    Message,
    PeerBlocked,
    PeerJoined,
    PeerLost,
    PeerWritable,
    Received,
    Stopped,
    Submit,
    Wake,
    Warn,
)
from requite.errors import CallError, RemoteViolation, TransportError
from requite.protocols.amqp import failures, methods, wire
from requite.protocols.amqp.calls import PendingCall, Source
from requite.protocols.amqp.confirms import Confirms
from requite.protocols.amqp.connected import SIDE, WORK, ConnectedEngine
from requite.protocols.amqp.methods import Heard
from requite.protocols.amqp.policy import CallerPolicy
from requite.protocols.amqp.properties import Properties, decode_properties, encode_properties
from requite.protocols.amqp.reply_path import ReplyPath
from requite.protocols.amqp.sizes import SizeLimit
from requite.protocols.amqp.topology import Destination
from requite.protocols.amqp.wire import Control
from requite.request import Partial
from requite.trace_context import encode_traceparent

_CACHED_MAX: Final = 1024  # beyond it the table starts afresh: users may make names up
_ACCESS_REFUSED: Final = 403  # AMQP 0.9.1, section 1.2


class AmqpCaller(ConnectedEngine):
    """A caller of the services at one `destination`.

    `origin` is the first half of call ids and part of queue names; it and `first_sequence` should
    be random per start. `chronicle` journals calls.
    """

    _kind: ClassVar = "a client"

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
        self.calls: Calls[PendingCall] = Calls(
            policy.slots,
            call_observer(chronicle, origin),
            fail=self._fail,
            time_out=self._time_out,
            expired=failures.expired,
            try_s=policy.retry.attempt_timeout,
        )
        super().__init__(policy.heartbeat)
        self._origin = origin
        self._budget = TimedBudget(policy.retry)
        self._table: Slots[PendingCall] = Slots(policy.slots, first_sequence)
        self._held: dict[PendingCall, None] = {}  # a set that keeps its order
        self._confirms: Confirms[int] = Confirms()  # request ids
        self._publishings: dict[str, bytes] = {}  # the method by service
        self._limit = SizeLimit()
        self._call_number = 0
        self._reply_path = ReplyPath(
            destination or Destination(),
            origin,
            self._send,
            confirms=policy.confirms,
            direct_reply=policy.direct_reply,
        )
        self._returned = 0
        self._hears: dict[type, Callable[[Any, Message, float], None]] = {
            methods.Delivered: self._replied,
            methods.Returned: self._came_back,
            methods.Confirmed: self._confirmed,
            methods.Consuming: self._began_to_consume,
            methods.Cancelled: self._lost_queue,
            methods.Closed: self._lost_channel,
        }

    # --- the engine's contract --------------------------------------------------------------------
    def _handlers(self) -> Handlers:
        return {
            Submit: self._submitted,
            Received: self._received,
            Cancel: self.calls.cancelled,
            Wake: self._woken,
            PeerJoined: self._joined,
            PeerLost: self._lost,
            PeerBlocked: ignore_input,  # the shell holds further calls back
            PeerWritable: ignore_input,
            Drain: self._drained,
        }

    def deadline(self) -> float | None:
        """See `requite.engine.Engine.deadline`."""
        at = self.calls.next_at()
        if not self._stopped:
            at = min(at, self._beat_at())
        return None if at == inf else at

    def snapshot(self) -> SimpleNamespace:
        """Return the counts of all tables.

        `is_ready`: requests can be published now. `held` calls wait for that, `sent` calls for a
        reply; `unconfirmed` requests for a publisher confirm. Since the start: requests `resent`
        and `returned`; `stray` replies, which were late, duplicate or unexpected.
        """
        held = len(self._held)
        return SimpleNamespace(
            is_ready=self._reply_path.is_ready,
            held=held,
            sent=len(self.calls) - held,
            unconfirmed=len(self._confirms),
            resent=self.calls.resent,
            returned=self._returned,
            stray=self.calls.dropped[STRAY],
            stopped=self._stopped,
        )

    # --- from the user ----------------------------------------------------------------------------
    def _submitted(self, asked: Submit, now: float) -> None:
        if self.calls.refuse(asked.token, asked.service, asked.deadline, self._out, now):
            return
        self._call_number += 1
        call_id = self._origin + self._call_number.to_bytes(8, "big")
        call = PendingCall(asked, call_id, now)
        request_id = self._table.take(call)
        assert request_id is not None, "there is a slot for every accepted call"
        call.request_id = request_id
        self.calls.take_on(call)
        self._budget.earn()
        if self._reply_path.is_ready:
            self._transmit(call, now)
            return
        self._hold(call, call.deadline)
        self._get_ready()

    def _drained(self, _event: Drain, now: float) -> None:
        if not self._stopped:
            self._stopped = True
            self.calls.close(now)
            self._out.append(Stopped())

    def _joined(self, event: PeerJoined, now: float) -> None:
        if self._stopped:
            self._out.append(Disconnect(event.peer, "the client is closed", Cause.DONE))
        else:
            super()._joined(event, now)

    # --- channels and the reply queue -------------------------------------------------------------
    def _begin(self, _now: float) -> None:
        self._limit.forget()
        self._reply_path.reset()
        self._get_ready()

    def _end(self, reason: str, now: float) -> None:
        self._reply_path.reset()
        self._interrupt(reason, now)

    def _get_ready(self) -> None:
        """Open channels and declare the reply queue, if there is a connection."""
        if self._agreed and self._reply_path.get_ready():
            self._confirms.begin()

    def _began_to_consume(self, _heard: Any, _message: Message, now: float) -> None:
        self._reply_path.began_to_consume()
        self._maybe_release(now)

    def _lost_queue(self, _heard: Any, _message: Message, now: float) -> None:
        """Replace the reply queue, which was deleted on the server."""
        self._reply_path.have_queue()
        self._interrupt("the reply queue was deleted", now)

    def _lost_channel(self, closed: methods.Closed, _message: Message, now: float) -> None:
        reason = f"RabbitMQ closed the channel: {closed.code} {closed.text}"
        if self._limit.learn(closed):
            self._drop_too_large(now)
        if self._reply_path.lost_channel() and closed.code != _ACCESS_REFUSED:
            self._interrupt(reason, now)
        else:
            self._refused(f"{reason} (permissions of the user in the URL)", now)
        if self.calls:
            self._get_ready()

    def _drop_too_large(self, now: float) -> None:
        """Fail the calls whose requests are larger than RabbitMQ accepts."""
        for call in [call for call in self.calls.values() if call.is_sent]:
            if len(call.body) > self._limit.size_max:
                self._fail_too_large(call, now, tried=call.tries > 1)

    def _fail_too_large(self, call: PendingCall, now: float, *, tried: bool) -> None:
        text = self._limit.refusal("the request", len(call.body))
        self._conclude(call, TransportError(text), now, tried=tried)

    def _hear(self, channel: bytes, heard: Heard, message: Message, now: float) -> None:
        if channel == SIDE:
            self._hear_aside(heard, now)
        elif (hear := self._hears.get(heard.__class__)) is not None:
            hear(heard, message, now)

    def _hear_aside(self, heard: Heard, now: float) -> None:
        match heard:
            case methods.Done(method=methods.EXCHANGE_DECLARE_OK):
                self._reply_path.found_exchange()
                self._maybe_release(now)
            case methods.Closed() if self._reply_path.lost_side(heard):
                exchange = self._reply_path.destination.exchange
                for call in list(self._held):
                    self._fail(call, failures.no_exchange(exchange, heard.text), now)
            case methods.Closed(code=code, text=text):
                lack = f"cannot send cancels to the workers: {code} {text}"
                self._out.append(Warn("no control", lack))

    def _refused(self, reason: str, now: float) -> None:
        """Fail all calls: RabbitMQ refuses them until its operator changes something."""
        for call in list(self.calls.values()):
            self._conclude(call, TransportError(reason), now)

    # --- attempts ---------------------------------------------------------------------------------
    def _hold(self, call: PendingCall, until: float) -> None:
        call.is_sent = False
        self._held[call] = None
        self.calls.wait_until(call, until)

    def _maybe_release(self, now: float) -> None:
        """Publish the held calls, if requests can be published now."""
        if not self._reply_path.is_ready:
            return
        for call in list(self._held):
            del self._held[call]
            if now >= call.deadline:  # its timer is late (I15)
                self._fail(call, failures.expired(call, now), now)
            else:
                self._transmit(call, now)

    def _transmit(self, call: PendingCall, now: float) -> None:
        """Publish the request of a call."""
        body = call.body
        if len(body) > self._limit.size_max:
            self._fail_too_large(call, now, tried=call.tries > 0)
            return
        call.is_sent = True
        headers: dict[str, Any] = {}
        if call.trace:
            headers[wire.TRACEPARENT] = encode_traceparent(call.trace)
        if call.idempotency_key:
            headers[wire.IDEMPOTENCY_KEY] = call.idempotency_key
        header = encode_properties(
            Properties(
                wire.correlation_id(call.request_id),
                self._reply_path.reply_to,
                call.message_id,
                wire.expiration(call.deadline - now),
                headers,
                self._policy.persistent,
            ),
            len(body),
        )
        self._send(WORK, self._publishing(call.service), header, body)
        if self._policy.confirms:
            self._confirms.published(call.request_id)
        self.calls.sent(call, self._out, now)

    def _publishing(self, service: str) -> bytes:
        """Return the method that publishes a request to a service; it is cached."""
        method = self._publishings.get(service)
        if method is None:
            if len(self._publishings) >= _CACHED_MAX:
                self._publishings.clear()
            method = methods.publish(self._reply_path.destination.exchange, service, mandatory=True)
            self._publishings[service] = method
        return method

    def _is_last(self, call: PendingCall) -> bool:
        """Whether the call cannot be retried."""
        used_up = call.tries >= self._policy.retry.attempts
        return used_up or not call.idempotent or call.index > 0

    def _interrupt(self, reason: str, now: float) -> None:
        """Hold or fail the calls whose replies are lost."""
        self._confirms.forget()
        for call in [call for call in self.calls.values() if call.is_sent]:
            call.is_sent = False
            call.loss = reason
            if self._is_last(call):
                self._fail(call, failures.lost(call, reason), now)
            else:
                self.calls.take_back(call, reason, now)
                self._hold(call, call.deadline)

    def _recall(self, call: PendingCall) -> None:
        """Send the worker a cancel, if it may have the request."""
        if not (call.is_sent and self._agreed) or self._reply_path.has_no_control:
            return
        headers = {wire.CONTROL: Control.CANCEL.value}
        name = wire.correlation_id(call.request_id)
        properties = Properties(name, message_id=call.message_id, headers=headers)
        self._reply_path.publish_control(call.service, encode_properties(properties, 0))

    # --- replies and confirms ---------------------------------------------------------------------
    def _replied(self, _heard: Any, message: Message, now: float) -> None:
        try:
            properties = decode_properties(message[2])
        except RemoteViolation as violation:
            self._out.append(Warn("malformed", f"ignored a reply: {violation}"))
            return
        request_id = wire.request_id_of(properties.correlation_id)
        call = self._table.get(request_id) if request_id >= 0 else None
        if call is None:
            self.calls.drop(STRAY, now)
        elif properties.flaw:
            self._conclude(call, failures.malformed(properties.flaw), now)
        elif len(message) < 4:
            self._conclude(call, failures.too_large(), now)
        else:
            self._read_reply(call, properties, message[3], now)

    def _read_reply(
        self, call: PendingCall, properties: Properties, body: bytes, now: float
    ) -> None:
        headers = properties.headers
        try:
            index = wire.partial_index(headers) if wire.PARTIAL in headers else None
        except RemoteViolation as violation:
            self._conclude(call, failures.malformed(str(violation)), now)
            return
        source = headers.get(wire.WORKER_ID), headers.get(wire.ATTEMPT), headers.get(wire.RUN)
        if index is not None:
            self._take_partial(call, source, index, body, now)
        elif error := wire.status_error(headers.get(wire.STATUS), body, call.tries):
            self._conclude(call, error, now, tried=error.may_have_executed)
        elif self._is_of_this_run(call, source, now):
            self._take_final(call, source, headers, body, now)

    def _take_partial(
        self, call: PendingCall, source: Source, index: int, body: bytes, now: float
    ) -> None:
        """Deliver a partial reply, or buffer it. Each run numbers them from 0."""
        if not self._is_of_this_run(call, source, now):
            return
        if index != call.pieces_of(source):
            self.calls.drop(STRAY, now)
            return
        call.index += 1
        if call.partials:
            call.source = source
            self._out.append(Deliver(call.token, Partial((body,), index)))
        else:
            call.pieces.setdefault(source, []).append(body)

    def _is_of_this_run(self, call: PendingCall, source: Source, now: float) -> bool:
        """Check the run of a reply. Fail the call if the user has had partial replies of another
        run (I5): a worker was lost, or RabbitMQ has two copies of the request."""
        if call.partials and call.index and source != call.source:
            self._conclude(call, failures.changed_worker(), now)
            return False
        return True

    def _take_final(
        self,
        call: PendingCall,
        source: Source,
        headers: Mapping[str, Any],
        body: bytes,
        now: float,
    ) -> None:
        """Answer the call, unless partial replies of this run are missing."""
        count = headers.get(wire.PARTIALS)
        if isinstance(count, int) and count != call.pieces_of(source):
            self.calls.drop(STRAY, now)
            return
        attempts = call.tries + _redelivered(source[1])
        if pieces := call.pieces.get(source):
            body = b"".join((*pieces, body))
        self._forget(call)
        self.calls.answer(call, (body,), attempts, self._out, now)

    def _came_back(self, returned: methods.Returned, message: Message, now: float) -> None:
        """Fail the call whose request no queue takes."""
        self._returned += 1
        try:
            properties = decode_properties(message[2])
        except RemoteViolation:  # never: this caller wrote it
            return
        request_id = wire.request_id_of(properties.correlation_id)
        call = self._table.get(request_id) if request_id >= 0 else None
        if call is not None:
            where = self._reply_path.destination.describe(returned.routing_key)
            error = failures.unroutable(where, returned.text)
            self._conclude(call, error, now, tried=call.tries > 1)

    def _confirmed(self, confirmed: methods.Confirmed, _message: Message, now: float) -> None:
        """Fail the calls whose requests RabbitMQ refuses with `basic.nack`."""
        for request_id in self._confirms.take(confirmed):
            call = None if confirmed.is_taken else self._table.get(request_id)
            if call is not None:
                self._conclude(call, failures.not_taken(), now, tried=call.tries > 1)

    # --- ends, and time ---------------------------------------------------------------------------
    def _conclude(
        self, call: PendingCall, error: CallError, now: float, *, tried: bool | None = None
    ) -> None:
        """Fail a call without a cancel for its worker; `tried` says whether the request may have
        run, where that is known."""
        call.is_sent = False
        self._fail(call, error, now)
        if tried is not None:
            error.may_have_executed = tried

    def _fail(self, call: PendingCall, error: CallError, now: float) -> None:
        self._recall(call)
        self._forget(call)
        self.calls.end(call, error, self._out, now)

    def _forget(self, call: PendingCall) -> None:
        """Remove a call from all tables except `calls`."""
        self._table.free(call.request_id)
        self._held.pop(call, None)

    def _woken(self, event: Wake, now: float) -> None:
        if not self._stopped:
            self._attend(now)
        self.calls.woken(event, now)

    def _time_out(self, call: PendingCall, now: float) -> None:
        """Retry or fail a call whose attempt has timed out."""
        if self._is_last(call):
            self._fail(call, failures.silent(call, self._policy.retry.attempt_timeout or 0.0), now)
        elif not self._budget.maybe_spend(now):
            self.calls.wait_until(call, self._budget.again_at)
        else:
            self.calls.take_back(call, "no reply in time", now)
            self._transmit(call, now)


def _redelivered(attempt: Any) -> int:
    """Return how often RabbitMQ redelivered a request, from the reply's `x-attempt`."""
    return attempt - 1 if isinstance(attempt, int) and attempt > 1 else 0
