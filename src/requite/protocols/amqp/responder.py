"""The responder: consumes requests from a queue, and publishes replies to their reply-to queues.

    delivered ──► running ──► reply published ──► confirmed ──► acknowledged
                     └──► abandoned: cancelled, or its connection was lost

A request is acknowledged once RabbitMQ has confirmed its reply; if the worker is lost before,
RabbitMQ redelivers the request. Requests that are not run (malformed, too large, cancelled before
they arrived, delivered too often) are answered, acknowledged or rejected at once.

The engine does not run handlers: it delivers each request under a token, a `Job`. The shell runs
the handler and answers with `Produced` and `Finished`.

Sources: "RPC over AMQP", sections "Multiple-client & Single-servant", "Matching each response to
each request" and "Negative responses"; "Scalable async RPC", sections "Worker protocol", "Worker
response protocol" and "Worker activity reports".
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from types import SimpleNamespace
from typing import Any, ClassVar, Final

from requite.chronicle import NO_INSTANCE, Chronicle
from requite.core.jobs import ENDS, Jobs
from requite.core.machine import Handlers, ignore_input
from requite.core.recording import job_observer
from requite.engine import (
    Deliver,
    Drain,
    Finished,
    Message,
    PeerBlocked,
    PeerJoined,
    PeerLost,
    PeerWritable,
    Produced,
    Progressed,
    Received,
    Started,
    Stopped,
    Wake,
    Warn,
)
from requite.errors import RemoteViolation
from requite.protocols.amqp import methods, wire
from requite.protocols.amqp.assignment import Assignment
from requite.protocols.amqp.confirms import Confirms
from requite.protocols.amqp.connected import WORK, ConnectedEngine
from requite.protocols.amqp.control import Cancels, RequestName, read_control
from requite.protocols.amqp.jobs import Job, Why
from requite.protocols.amqp.methods import Heard
from requite.protocols.amqp.policy import ResponderPolicy
from requite.protocols.amqp.properties import Properties, decode_properties, encode_properties
from requite.protocols.amqp.reports import Reports
from requite.protocols.amqp.request_queue import RequestQueue
from requite.protocols.amqp.sizes import SizeLimit
from requite.protocols.amqp.wire import Event, ReplyStatus
from requite.request import Request, Status
from requite.trace_context import decode_traceparent

_ENDS: Final = ENDS | {Status.OVERLOADED}
_CALL_ID_DIGITS: Final = 32
_RUN_SIZE: Final = 6  # bytes of where to begin to count; tables have numbers of 63 bits


class AmqpResponder(ConnectedEngine):
    """A worker with one assignment; `service` is the service name in its handlers' requests.

    `instance` identifies the worker in journals and should be random per start. `chronicle`
    journals its requests.
    """

    _kind: ClassVar = "a responder"

    def __init__(
        self,
        assignment: Assignment,
        policy: ResponderPolicy | None = None,
        *,
        service: str = "",
        instance: bytes = NO_INSTANCE,
        chronicle: Chronicle | None = None,
    ) -> None:
        self._policy = policy = policy or ResponderPolicy()
        self.jobs: Jobs[Job] = Jobs(
            service,
            job_observer(chronicle, instance, service),
            kind=self._kind,
        )
        super().__init__(policy.heartbeat)
        self._assignment = assignment
        self._service = service
        self._reports = Reports(assignment, self._send)
        self._confirms: Confirms[int | None] = Confirms()  # the deliveries that they answer
        self._queue = RequestQueue(assignment, policy, self._confirms, self._send, self._warn)
        self._limit = SizeLimit()
        # Number of the last run with partial replies. Starts with one worker id differ in it.
        self._runs = int.from_bytes(instance[:_RUN_SIZE], "big")
        self._cancels = Cancels(policy.cancels_max)
        self._closed: set[bytes] = set()  # side channels
        self._hears: dict[type, Callable[[Any, Message, float], None]] = {
            methods.Delivered: self._requested,
            methods.Confirmed: self._confirmed,
            methods.Declared: self._has_queue,
            methods.Consuming: self._began_to_consume,
            methods.Cancelled: self._lost_consumer,
            methods.Closed: self._lost_channel,
        }

    def _handlers(self) -> Handlers:
        return {
            PeerJoined: self._joined,
            PeerLost: self._lost,
            Received: self._received,
            Finished: self._finished,
            Produced: self._produced,
            Progressed: ignore_input,  # RabbitMQ has no leases
            Started: self.jobs.started,
            Wake: self._woken,
            Drain: self._drained,
            PeerBlocked: ignore_input,  # replies are bounded by the prefetch
            PeerWritable: ignore_input,
        }

    # --- the engine's contract --------------------------------------------------------------------
    def deadline(self) -> float | None:
        """See `requite.engine.Engine.deadline`."""
        at = inf if self._stopped else min(self._beat_at(), self._queue.try_at)
        at = min(at, self.jobs.observer.flush_at)
        return None if at == inf else at

    @property
    def is_answered(self) -> bool:
        """Whether RabbitMQ delivers requests to this worker."""
        return self._queue.is_consuming

    def snapshot(self) -> SimpleNamespace:
        """Return the counts of all tables.

        `is_consuming`: RabbitMQ delivers requests. `running` requests are with handlers; for the
        `abandoned` ones among them no caller waits. `unconfirmed`: replies without a publisher
        confirm. `cancels`: remembered ones. `dropped`: requests that were not run since the start,
        by reason (`Why`).
        """
        abandoned = self.jobs.abandoned
        return SimpleNamespace(
            is_consuming=self._queue.is_consuming,
            running=len(self.jobs) - abandoned,
            abandoned=abandoned,
            unconfirmed=len(self._confirms),
            cancels=len(self._cancels),
            dropped=dict(self.jobs.dropped),
            draining=self._draining,
            stopped=self._stopped,
        )

    # --- the request queue ------------------------------------------------------------------------
    def _begin(self, _now: float) -> None:
        if self._draining:
            return
        self._closed.clear()
        self._limit.forget()
        self._reports.begin()
        self._queue.look_for()

    def _has_queue(self, _declared: Any, _message: Message, now: float) -> None:
        self._queue.found(now)

    def _began_to_consume(self, _heard: Any, _message: Message, _now: float) -> None:
        self._reports.report(Event.READY)
        self._queue.began_to_consume()

    def _lost_consumer(self, cancelled: methods.Cancelled, _message: Message, _now: float) -> None:
        self._queue.lost_consumer(cancelled)

    def _lost_channel(self, closed: methods.Closed, _message: Message, now: float) -> None:
        self._send(WORK, methods.CHANNEL_CLOSE_OK)
        self._limit.learn(closed)
        self._lose_work("RabbitMQ closed the channel of the request", now)
        self._queue.lost_channel(closed, now)

    def _end(self, reason: str, now: float) -> None:
        self._reports.end()
        self._queue.lost_connection()
        self._lose_work(f"its connection was lost: {reason}", now)

    def _lose_work(self, reason: str, now: float) -> None:
        """Abandon the requests that RabbitMQ is about to redeliver."""
        self._confirms.forget()
        self._abandon_all(reason, now)

    def _abandon_all(self, reason: str, now: float) -> None:
        for job in self.jobs:
            if not job.abandoned:
                self.jobs.abandon(job, reason, self._out, now)

    def _refused(self, reason: str, _now: float) -> None:
        self._warn("refused", reason)

    def _warn(self, kind: str, text: str) -> None:
        self._out.append(Warn(kind, text))

    def _hear(self, channel: bytes, heard: Heard, message: Message, now: float) -> None:
        if channel != WORK:
            self._hear_aside(channel, heard, message, now)
        elif (hear := self._hears.get(heard.__class__)) is not None:
            hear(heard, message, now)

    # --- requests ---------------------------------------------------------------------------------
    def _requested(self, delivered: methods.Delivered, message: Message, now: float) -> None:
        try:
            properties = decode_properties(message[2])
        except RemoteViolation:  # its reply-to is unknown
            self._give_back(delivered.tag, Why.MALFORMED, now)
            return
        attempt = wire.attempt_of(properties, delivered.redelivered)
        call_id = _call_id(properties.message_id)
        job = Job(delivered.tag, properties, attempt, call_id)
        self._reports.report(Event.REQUEST_RECEIVED, wire.traceparent_of(properties.headers))
        if self._draining:
            self._give_back(job.tag, Why.DRAINING, now, requeue=True)
        elif self._assignment.answers_all and not properties.reply_to:
            self._give_back(job.tag, Why.NO_REPLY_TO, now)
        elif wire.is_uncounted(properties):
            self._give_back(job.tag, Why.UNCOUNTED, now, requeue=True)
        elif job.name in self._cancels:
            self._drop(Why.CANCELLED, now)
            self._send(WORK, methods.ack(job.tag))
        else:
            self._run_or_refuse(job, message, now)

    def _run_or_refuse(self, job: Job, message: Message, now: float) -> None:
        limit = self._policy.attempts_max
        if len(message) < 4:
            text = "the request is larger than the message_size_max of the worker"
            self._refuse(job, Why.TOO_LARGE, text, now)
            return
        if limit is not None and job.attempt > limit:
            text = f"the request was delivered {limit} times, and each time its worker was lost"
            self._refuse(job, Why.POISONED, text, now, ReplyStatus.DELIVERY_LIMIT)
            return
        try:
            request = self._request(job, message[3])
        except RemoteViolation as violation:
            self._refuse(job, Why.MALFORMED, f"the request is malformed: {violation}", now)
            return
        self.jobs[job] = None
        self._out.append(Deliver(job, request))
        self.jobs.observer.delivered(job, len(message[3]), now)

    def _request(self, job: Job, body: bytes) -> Request:
        """Return the request for the handler. Raises `RemoteViolation` for invalid headers."""
        properties = job.properties
        if properties.flaw:
            raise RemoteViolation(properties.flaw)
        key = properties.headers.get(wire.IDEMPOTENCY_KEY, b"")
        if isinstance(key, str):
            key = key.encode()
        if not isinstance(key, bytes):
            raise RemoteViolation(f"the header {wire.IDEMPOTENCY_KEY} is neither text nor bytes")
        remaining_s = wire.remaining_s(properties)
        request = Request(self._service, (body,), job.attempt, remaining_s, key)
        if parent := wire.traceparent_of(properties.headers):
            request.trace = decode_traceparent(parent)
        if properties.user_id:
            request.principal = f"amqp:{properties.user_id}"
        return request

    def _refuse(
        self,
        job: Job,
        why: str,
        text: str,
        now: float,
        status: ReplyStatus = ReplyStatus.ERROR,
    ) -> None:
        """Answer a request with an error, without running it."""
        self._drop(why, now)
        self._conclude(job, status, text.encode())

    def _give_back(self, tag: int, why: str, now: float, *, requeue: bool = False) -> None:
        self._drop(why, now)
        self._send(WORK, methods.reject(tag, requeue=requeue))

    def _drop(self, why: str, now: float) -> None:
        self.jobs.drop(why, self._out, now)

    # --- from handlers ----------------------------------------------------------------------------
    def _produced(self, event: Produced, now: float) -> None:
        job: Job = event.token
        if job not in self.jobs or job.abandoned:
            return
        body = b"".join(event.frames)
        if self._is_too_large(job, body):
            return
        self.jobs.observer.partial(job, event.frames, now)
        if not job.run:
            self._runs += 1
            job.run = self._runs
        if job.properties.reply_to:
            self._publish(job, {wire.PARTIAL: job.index}, body, None)
        job.index += 1

    def _is_too_large(self, job: Job, body: bytes) -> bool:
        """Whether RabbitMQ refuses the reply, or has refused a part of it, for its size."""
        if len(body) > self._limit.size_max and not job.flaw:
            job.flaw = self._limit.refusal("the reply", len(body))
        return bool(job.flaw)

    def _finished(self, event: Finished, now: float) -> None:
        job, frames, status = event.token, event.frames, event.status
        if status not in _ENDS:
            raise self.jobs.wrong_end(status)
        if self.jobs.pop(job, 0) is not None:  # members have the value None
            return
        body = b"".join(frames if status is Status.OK else frames[:1])
        if job.abandoned:
            status = Status.CANCELLED
        elif self._is_too_large(job, body):
            status, body = Status.FAILED, job.flaw.encode()
        self.jobs.observer.finished(job, status, [body], now)
        self._settle(job, status, body)

    def _settle(self, job: Job, status: Status, body: bytes) -> None:
        match status:
            case Status.OVERLOADED if not job.abandoned:
                self._send(WORK, methods.reject(job.tag, requeue=True))
            case Status.CANCELLED if not job.abandoned:  # the handler was cancelled locally
                self._send(WORK, methods.reject(job.tag, requeue=True))
            case Status.OK:
                self._conclude(job, ReplyStatus.OK, body)
            case Status.FAILED:
                self._conclude(job, ReplyStatus.ERROR, body)

    def _conclude(self, job: Job, status: ReplyStatus, body: bytes) -> None:
        """Publish the final reply; the request is acknowledged when RabbitMQ confirms it."""
        if job.properties.reply_to:
            headers: dict[str, Any] = {wire.STATUS: status.value}
            if job.index:
                headers[wire.PARTIALS] = job.index
            self._publish(job, headers, body, job.tag)
        else:
            self._send(WORK, methods.ack(job.tag))

    def _publish(self, job: Job, headers: dict[str, Any], body: bytes, tag: int | None) -> None:
        asked = job.properties
        headers[wire.WORKER_ID] = self._reports.worker_id
        headers[wire.ATTEMPT] = job.attempt
        if job.run:
            headers[wire.RUN] = job.run
        if (parent := asked.headers.get(wire.TRACEPARENT)) is not None:
            headers[wire.TRACEPARENT] = parent
        properties = Properties(asked.correlation_id, headers=headers)
        recur = parent is None and not job.run  # a trace or run number differs per request
        header = encode_properties(properties, len(body), headers_recur=recur)
        self._send(WORK, methods.publish("", asked.reply_to), header, body)
        self._confirms.published(tag)

    def _confirmed(self, confirmed: methods.Confirmed, _message: Message, _now: float) -> None:
        """Acknowledge requests whose replies are confirmed; requeue those whose replies are not."""
        for tag in self._confirms.take(confirmed):
            if tag is None:  # a partial reply
                continue
            answer = methods.ack(tag) if confirmed.is_taken else methods.reject(tag, requeue=True)
            self._send(WORK, answer)

    # --- control messages -------------------------------------------------------------------------
    def _hear_aside(self, channel: bytes, heard: Heard, message: Message, now: float) -> None:
        match heard:
            case methods.Delivered(exchange=exchange) if len(message) > 2:
                self._controlled(message[2], exchange, now)
            case methods.Closed(code=code, text=text) if channel not in self._closed:
                self._closed.add(channel)  # RabbitMQ may report errors in flight; answer once
                self._send(channel, methods.CHANNEL_CLOSE_OK)
                lack = self._reports.lack(channel)
                self._warn("no side channel", f"{lack}: {code} {text}")
                self._reports.lost(channel)

    def _controlled(self, header: bytes, exchange: str, now: float) -> None:
        control = read_control(header, exchange, self._assignment)
        if isinstance(control, Drain):
            self._drained(control, now)
        elif control is not None:
            self._cancelled(control, now)

    def _cancelled(self, name: RequestName, now: float) -> None:
        """Abandon a running request, and all copies if its caller has published it again."""
        for job in self.jobs:
            if job.name == name and not job.abandoned:
                self.jobs.abandon(job, "the caller cancelled the request", self._out, now)
                self._send(WORK, methods.ack(job.tag))
        self._cancels.add(name)

    # --- time, and the end ------------------------------------------------------------------------
    def _woken(self, event: Wake, now: float) -> None:
        self.jobs.woken(event, now)
        if self._stopped:
            return
        self._attend(now)
        if now >= self._queue.try_at and self._agreed:
            self._queue.look_for()

    def _drained(self, _event: Drain, _now: float) -> None:
        """Stop consuming; finish the requests that have arrived and get their replies confirmed."""
        if self._draining:
            return
        self._draining = True
        self._reports.report(Event.STOPPING)
        self._queue.leave()

    def _maybe_stop(self, _now: float) -> None:
        is_busy = self.jobs or self._confirms or self._queue.is_consuming
        if not (self._stopped or is_busy):
            self._stopped = True
            self._out.append(Stopped())


def _call_id(message_id: str) -> bytes:
    """Return the id of a call of a requite client; b"" for any other message id."""
    if len(message_id) != _CALL_ID_DIGITS:
        return b""
    try:
        return bytes.fromhex(message_id)
    except ValueError:
        return b""
