"""Recorders, which write engines' events into chronicles (`requite.chronicle`): common parts for
clients and for servers.

If the wire carries no call ids, each log has its own; the audit goes by the client's. A request
without special events is one span, written when it ends. The first special event *expands* it: the
events so far are written, and all later ones as they happen.

Dropped messages belong to no call. They are written as REFUSED rows with count and reason, at most
ten times a second.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import inf
from typing import Any, Final

from requite.chronicle import (
    NO_CALL,
    NO_OUTCOME,
    NOT_IDEMPOTENT,
    PRESS_ROWS,
    SWEEP_EVERY_S,
    Chronicle,
    EventRow,
    Kind,
    SpanRow,
)
from requite.core.denials import Denials
from requite.core.observer import (
    CallObserver,
    CallT,
    JobObserver,
    JobT,
    Observer,
)
from requite.errors import CallError, CallTimeout, Cancelled, Overloaded
from requite.request import Status, error_class_of

FAILURES: Final[Mapping[type[CallError], tuple[Kind, int]]] = {
    CallTimeout: (Kind.EXPIRED, Status.EXPIRED),
    Cancelled: (Kind.CANCELLED, Status.CANCELLED),
    Overloaded: (Kind.ANSWERED, Status.OVERLOADED),
}
"""Kind and status of a client's own errors; a `TransportError` has none."""


class Rows:
    """What a recorder writes with: a chronicle, new ids, and counts of dropped messages.

    It sets `flush_at` of its recorder. `origin` begins all ids; `first_number` separates the ids of
    several engines of one origin.
    """

    __slots__ = (
        "_chronicle",
        "_dropped",
        "_number",
        "_recorder",
        "_spans",
        "append_event",
        "flushed_at",
        "origin",
    )

    def __init__(
        self, recorder: Observer, chronicle: Chronicle, origin: bytes, first_number: int = 0
    ) -> None:
        self._recorder = recorder
        self._chronicle = chronicle
        self.origin = origin
        self._number = first_number  # of the last id
        self._spans = chronicle.spans
        self.append_event = chronicle.event_rows.append
        self.flushed_at = 0.0
        self._dropped: Counter[str] = Counter()

    def dropped(self, why: str, now: float, count: int) -> None:
        """Count dropped messages, to be written at the next flush."""
        self._dropped[why] += count
        self.schedule_flush(now)

    def new_id(self) -> bytes:
        """Return the next id."""
        self._number += 1
        return self.origin + self._number.to_bytes(8, "big")

    def schedule_flush(self, now: float) -> None:
        """Schedule a flush, unless one is scheduled."""
        if self._recorder.flush_at == inf:
            self._recorder.flush_at = now + SWEEP_EVERY_S

    def flushed(self, goes_on: bool, now: float) -> None:
        """Write the counts of dropped messages; schedule the next flush if it `goes_on`."""
        for why, count in self._dropped.items():
            self.append_event(EventRow(now, Kind.REFUSED, reason=f"{count} dropped: {why}"))
        self._dropped.clear()
        self.flushed_at = now
        self._recorder.flush_at = now + SWEEP_EVERY_S if goes_on else inf
        self._chronicle.trim()

    def append_span(self, span: SpanRow) -> None:
        """Write a request without incidents."""
        self._spans.append(span)
        if len(self._spans) >= PRESS_ROWS:
            self._chronicle.press()


class DecisionRecorder:
    """Journals access decisions; of many denials, ten per second (`Denials`)."""

    def __init__(self, chronicle: Chronicle) -> None:
        self._append_event = chronicle.event_rows.append
        self._denials = Denials()

    def record(
        self, kind: Kind, user: str, verb: str, name: bytes, now: float, reason: str = ""
    ) -> None:
        """Journal a decision, by `kind`: ADMITTED, DENIED or RIGHTS."""
        if kind is Kind.DENIED:
            left_out = self._denials.admit(user, verb, now)
            if left_out is None:
                return
            if left_out:
                reason = f"{reason} ({left_out} more before it)"
        self._append_event(
            EventRow(now, kind, NO_CALL, name, user.encode(), error=verb, reason=reason)
        )

    def flush(self, now: float) -> None:
        """Journal how many denials were left out that no later row has counted."""
        for (user, verb), left_out in self._denials.take_left_out(now):
            reason = f"{left_out} more"
            row = EventRow(now, Kind.DENIED, NO_CALL, b"", user.encode(), error=verb, reason=reason)
            self._append_event(row)


class CallRecorder(CallObserver[CallT]):
    """Journals calls, at the client. `failures`: kind and status of errors, for those that have
    them."""

    keeps_journal = True

    def __init__(
        self,
        chronicle: Chronicle,
        origin: bytes,
        failures: Mapping[type[CallError], tuple[Kind, int]] = FAILURES,
        *,
        notes: bool = False,
    ) -> None:
        super().__init__(notes=notes)
        self._rows = Rows(self, chronicle, origin)
        self._failures = failures

    def dropped(self, why: str, now: float, count: int = 1) -> None:
        """Count dropped messages."""
        self._rows.dropped(why, now, count)

    def refused(self, name: bytes, error: CallError, now: float) -> None:
        """Journal a refused call."""
        self._rows.append_event(refusal(error, now, name))

    def accepted(self, call: CallT) -> None:
        """Give a new call an id if it has none."""
        call.call_id = call.call_id or self._rows.new_id()
        call.is_expanded = False
        self._rows.schedule_flush(call.submitted_at)

    def sent(self, call: CallT, now: float) -> None:
        """Journal an attempt, unless it is part of a span."""
        if call.tries == 1:
            call.sent_at = now
        else:
            self.expand(call)
        if call.is_expanded:
            self._write(call, Kind.SENT, now)

    def partial(self, call: CallT, frames: Sequence[bytes], now: float) -> None:
        """Journal a partial reply."""
        self.expand(call)
        self._write(call, Kind.PARTIAL, now, size=sum(map(len, frames)))

    def answered(self, call: CallT, body: Sequence[bytes], now: float) -> None:
        """Journal the reply to a call."""
        size = sum(map(len, body))
        if call.is_expanded:
            self._write(call, Kind.ANSWERED, now, outcome=Status.OK, size=size)
            return
        instants = call.submitted_at, call.sent_at, now, call.deadline
        self._rows.append_span((*instants, call.call_id, call.name, b"", call.size, size))

    def expand(self, call: CallT) -> None:
        """Journal the events of a call up to its first attempt, unless that was done before."""
        if call.is_expanded:
            return
        call.is_expanded = True
        facts: dict[str, Any] = {"size": call.size, "value": call.deadline}
        if self._is_marked(call):
            facts["reason"] = NOT_IDEMPOTENT
        self._write(call, Kind.ACCEPTED, call.submitted_at, attempt=0, **facts)
        if call.tries:
            self._write(call, Kind.SENT, call.sent_at, attempt=1)

    def _is_marked(self, call: CallT) -> bool:
        """Whether the journal marks a call as not idempotent."""
        return False

    def taken_back(self, call: CallT, reason: str, now: float) -> None:
        """Journal that an attempt was abandoned for a retry."""
        self.expand(call)
        self._write(call, Kind.REDELIVERED, now, reason=reason)

    def failed(self, call: CallT, error: CallError, now: float) -> None:
        """Journal the error of a call."""
        self.expand(call)
        kind, outcome = self._failures.get(type(error), (Kind.ANSWERED, NO_OUTCOME))
        name = type(error).__name__
        self._write(call, kind, now, outcome=outcome, error=name, reason=str(error))

    def flush_open_spans(self, calls: dict[Any, CallT], now: float) -> None:
        """Journal the beginnings of requests in progress since the last flush."""
        for call in reversed(calls.values()):
            if call.submitted_at < self._rows.flushed_at:
                break  # earlier ones were written by the last flush
            self.expand(call)
        self._rows.flushed(bool(calls), now)

    def _write(self, call: CallT, kind: Kind, at: float, **facts: Any) -> None:
        facts.setdefault("attempt", call.tries)
        self._rows.append_event(EventRow(at, kind, call.call_id, call.name, **facts))


class JobRecorder(JobObserver[JobT]):
    """Journals requests, at a server or worker, under its own ids."""

    keeps_journal = True

    def __init__(
        self,
        chronicle: Chronicle,
        instance: bytes,
        service: str,
        first_number: int = 0,
        *,
        notes: bool = False,
    ) -> None:
        super().__init__(notes=notes)
        self._rows = Rows(self, chronicle, instance, first_number)
        self._service = encode_name(service)

    def dropped(self, why: str, now: float, count: int = 1) -> None:
        """Count dropped messages."""
        self._rows.dropped(why, now, count)

    def delivered(self, job: JobT, size: int, now: float) -> None:
        """Give a new request an id if it has none."""
        job.call_id = job.call_id or self._rows.new_id()
        job.delivered_at = now
        job.started_at = 0.0
        job.size = size
        job.is_expanded = False
        self._rows.schedule_flush(now)

    def started(self, job: JobT, now: float) -> None:
        """Journal that a handler has started, unless that is part of a span."""
        job.started_at = now
        if job.is_expanded:
            self._write(job, Kind.STARTED, now)

    def partial(self, job: JobT, frames: Iterable[bytes], now: float) -> None:
        """Journal a partial reply."""
        self.expand(job)
        self._write(job, Kind.PARTIAL, now, size=sum(map(len, frames)))

    def finished(self, job: JobT, status: Status, frames: Sequence[bytes], now: float) -> None:
        """Journal the end of a handler."""
        size = sum(map(len, frames))
        if job.is_expanded or status or not job.started_at:
            self.expand(job)
            facts: dict[str, Any] = {"outcome": status, "size": size}
            if status:  # then the frames are the reason
                reason = b"".join(frames[:1]).decode(errors="replace")
                facts |= {"size": 0, "error": error_class_of(status), "reason": reason}
            self._write(job, Kind.FINISHED, now, **facts)
            return
        instants = job.delivered_at, job.started_at, now, job.due_at
        self._rows.append_span(
            (*instants, job.call_id, self._service, self._rows.origin, job.size, size)
        )

    def abandoned(self, job: JobT, reason: str, now: float) -> None:
        """Journal that no caller waits for a request any more."""
        self.expand(job)
        self._write(job, Kind.ABANDONED, now, reason=reason)

    def expand(self, job: JobT) -> None:
        """Journal the events of a request so far, unless that was done before."""
        if job.is_expanded:
            return
        job.is_expanded = True
        self._write(job, Kind.DELIVERED, job.delivered_at, size=job.size, value=job.due_at)
        if job.started_at:
            self._write(job, Kind.STARTED, job.started_at)

    def flush_open_spans(self, jobs: dict[JobT, Any] | list[JobT], now: float) -> None:
        """Journal the beginnings of requests in progress since the last flush."""
        for job in reversed(jobs):
            if job.delivered_at < self._rows.flushed_at:
                break  # earlier ones were written by the last flush
            self.expand(job)
        self._rows.flushed(bool(jobs), now)

    def _write(self, job: JobT, kind: Kind, at: float, **facts: Any) -> None:
        facts.setdefault("attempt", 1)
        self._rows.append_event(
            EventRow(at, kind, job.call_id, self._service, self._rows.origin, **facts)
        )


def call_observer(
    chronicle: Chronicle | None, origin: bytes, *, notes: bool = False
) -> CallObserver[Any]:
    """Return the observer of a client: a recorder if there is a chronicle."""
    if chronicle is None:
        return CallObserver(notes=notes)
    return CallRecorder(chronicle, origin, notes=notes)


def job_observer(
    chronicle: Chronicle | None,
    instance: bytes,
    service: str,
    first_number: int = 0,
    *,
    notes: bool = False,
) -> JobObserver[Any]:
    """Return the observer of a worker or server: a recorder if there is a chronicle."""
    if chronicle is None:
        return JobObserver(notes=notes)
    return JobRecorder(chronicle, instance, service, first_number, notes=notes)


def refusal(error: CallError, now: float, name: bytes = b"") -> EventRow:
    """Return the row of a refused call to the service `name`."""
    error_name = type(error).__name__
    return EventRow(now, Kind.REFUSED, service=name, error=error_name, reason=str(error))


def encode_name(service: str) -> bytes:
    """Encode a service's name for rows."""
    return service.encode(errors="backslashreplace")
