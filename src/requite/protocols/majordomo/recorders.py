"""The recorders of broker, client and worker, which write their chronicles (`requite.chronicle`).

A request without special events is one span, written when it ends. The first special event
*expands* the request: its events so far are written, and all later ones as they happen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Final

from requite.chronicle import (
    NOT_IDEMPOTENT,
    PRESS_ROWS,
    Chronicle,
    EventRow,
    Kind,
)
from requite.core.observer import Observer
from requite.core.recording import FAILURES, CallRecorder, DecisionRecorder, JobRecorder
from requite.errors import NoService, Poisoned, RemoteFailure, WorkerLost
from requite.principal import Principal
from requite.protocols.majordomo.calls import PendingCall
from requite.protocols.majordomo.jobs import Job
from requite.protocols.majordomo.parties import Client, PendingRequest, Worker
from requite.protocols.majordomo.wire import NOT_IDEMPOTENT as NOT_IDEMPOTENT_FLAG
from requite.request import Status, error_class_of

_ENDS: Final = {Status.EXPIRED: Kind.EXPIRED, Status.CANCELLED: Kind.CANCELLED}
# Kind and status of a client's errors: its own, and those reported by the broker.
_FAILURES: Final = {
    **FAILURES,
    NoService: (Kind.ANSWERED, Status.NO_SERVICE),
    RemoteFailure: (Kind.ANSWERED, Status.FAILED),
    WorkerLost: (Kind.ANSWERED, Status.WORKER_LOST),
    Poisoned: (Kind.ANSWERED, Status.POISONED),
}


class BrokerObserver(Observer):
    """Events of requests and workers in a broker. This base class ignores them, but counts what was
    `denied`, by verb."""

    def __init__(self, *, notes: bool = False) -> None:
        super().__init__(notes=notes)
        self.denied: Counter[str] = Counter()

    def answered(self, pending: PendingRequest, body: Sequence[bytes], now: float) -> None:
        """A worker has sent a final reply that is OK."""

    def expand(self, pending: PendingRequest) -> None:
        """A request is not a plain span any more: its events are written one by one from now on."""

    def dispatched(self, pending: PendingRequest) -> None:
        """An expanded request was sent to a worker."""

    def partial(self, pending: PendingRequest, body: Sequence[bytes], now: float) -> None:
        """A worker has sent a partial reply."""

    def redelivered(
        self, pending: PendingRequest, lost_at: Worker | None, reason: str, now: float
    ) -> None:
        """A request was taken back from a worker, and is queued again."""

    def ended(self, pending: PendingRequest, status: Status, reason: str, now: float) -> None:
        """A request has ended without a reply."""

    def refused(
        self, call_id: bytes, service: bytes, status: Status, reason: str, now: float
    ) -> None:
        """A request was refused."""

    def worker(self, kind: Kind, worker: Worker, now: float, reason: str = "") -> None:
        """A worker joined, is alive, drains, or was lost, by `kind`."""

    def access(
        self,
        kind: Kind,
        principal: Principal,
        verb: str,
        name: bytes,
        now: float,
        reason: str = "",
    ) -> None:
        """An access decision, by `kind`: ADMITTED, DENIED or RIGHTS."""
        if kind is Kind.DENIED:
            self.denied[verb] += 1

    def flush_open_spans(self, clients: Iterable[Client], now: float) -> None:
        """It is time to flush; the requests of these clients are pending."""


class BrokerRecorder(BrokerObserver):
    """Journals requests and workers, at the broker."""

    keeps_journal = True

    def __init__(self, chronicle: Chronicle, *, notes: bool = False) -> None:
        super().__init__(notes=notes)
        self._chronicle = chronicle
        self._spans = chronicle.spans
        self._append_event = chronicle.event_rows.append
        self._flushed_at = 0.0
        self._decisions = DecisionRecorder(chronicle)

    # --- requests -------------------------------------------------------------------------------
    def answered(self, pending: PendingRequest, body: Sequence[bytes], now: float) -> None:
        """Journal a final reply that is OK."""
        worker = pending.worker
        assert worker is not None  # it was its FINAL
        if pending.flags & NOT_IDEMPOTENT_FLAG:
            self.expand(pending)
        if pending.is_expanded:
            self._write(pending, Kind.ANSWERED, now, outcome=Status.OK, size=_size(body))
            return
        # 0.3 us in all; a NamedTuple would double that (CPython 3.11).
        spans = self._spans
        spans.append(
            (
                pending.accepted_at,
                pending.dispatched_at,
                now,
                pending.deadline,
                pending.call_id,
                pending.service.name,
                worker.name,
                _size(pending.body),
                _size(body),
            )
        )
        if len(spans) >= PRESS_ROWS:
            self._chronicle.press()

    def expand(self, pending: PendingRequest) -> None:
        """Journal the events of a request so far, unless that was done before."""
        if pending.is_expanded:
            return
        pending.is_expanded = True
        at = pending.accepted_at
        call_id, name, size = pending.call_id, pending.service.name, _size(pending.body)
        deadline = pending.deadline
        why = NOT_IDEMPOTENT if pending.flags & NOT_IDEMPOTENT_FLAG else ""
        self._append_event(
            EventRow(at, Kind.ACCEPTED, call_id, name, size=size, value=deadline, reason=why)
        )
        if not pending.attempts or pending.dispatched_at > at:
            self._append_event(EventRow(at, Kind.QUEUED, call_id, name))
        if pending.attempts:
            self.dispatched(pending)

    def dispatched(self, pending: PendingRequest) -> None:
        """Journal that an expanded request was sent to a worker."""
        self._write(pending, Kind.DISPATCHED, pending.dispatched_at)

    def partial(self, pending: PendingRequest, body: Sequence[bytes], now: float) -> None:
        """Journal a partial reply."""
        self.expand(pending)
        self._write(pending, Kind.PARTIAL, now, size=_size(body))

    def redelivered(
        self, pending: PendingRequest, lost_at: Worker | None, reason: str, now: float
    ) -> None:
        """Journal that a request was taken back from a worker, and is queued again."""
        worker = b"" if lost_at is None else lost_at.name
        self._write(pending, Kind.REDELIVERED, now, reason=reason, worker=worker)

    def ended(self, pending: PendingRequest, status: Status, reason: str, now: float) -> None:
        """Journal the end of a request without a reply."""
        self.expand(pending)
        self._end(pending, _ENDS.get(status, Kind.ANSWERED), status, reason, now)

    def refused(
        self, call_id: bytes, service: bytes, status: Status, reason: str, now: float
    ) -> None:
        """Journal a refused request."""
        error = error_class_of(status)
        self._append_event(
            EventRow(
                now, Kind.REFUSED, call_id, service, outcome=status, error=error, reason=reason
            )
        )

    def _end(
        self, pending: PendingRequest, kind: Kind, status: Status, reason: str, now: float
    ) -> None:
        error = error_class_of(status)
        self._write(pending, kind, now, outcome=status, error=error, reason=reason)

    def _write(self, pending: PendingRequest, kind: Kind, at: float, **facts: Any) -> None:
        """Append one event; `facts` are fields of `EventRow`."""
        if pending.worker is not None:
            facts.setdefault("worker", pending.worker.name)
        name = pending.service.name
        self._append_event(
            EventRow(at, kind, pending.call_id, name, attempt=pending.attempts, **facts)
        )

    def access(
        self,
        kind: Kind,
        principal: Principal,
        verb: str,
        name: bytes,
        now: float,
        reason: str = "",
    ) -> None:
        """Count and journal an access decision."""
        super().access(kind, principal, verb, name, now, reason)
        self._decisions.record(kind, principal.name, verb, name, now, reason)

    # --- workers --------------------------------------------------------------------------------
    def worker(self, kind: Kind, worker: Worker, now: float, reason: str = "") -> None:
        """Journal that a worker joined, is alive, drains, or was lost, and how busy it is."""
        self._append_event(
            EventRow(
                now,
                kind,
                service=worker.service.name,
                worker=worker.name,
                reason=reason,
                value=now - worker.liveness.heard_at,
                busy=len(worker.holds),
                capacity=worker.capacity,
            )
        )

    # --- time -----------------------------------------------------------------------------------
    def flush_open_spans(self, clients: Iterable[Client], now: float) -> None:
        """Journal the beginnings of requests in progress since the last flush."""
        for client in clients:
            for pending in reversed(client.pending.values()):
                if pending.accepted_at < self._flushed_at:
                    break  # earlier ones were written by the last flush
                self.expand(pending)
        self._decisions.flush(now)
        self._flushed_at = now
        self._chronicle.trim()


class ClientRecorder(CallRecorder[PendingCall]):
    """Journals calls, at the client. `tells_brokers`: its dialect has a flag for calls that are not
    idempotent; otherwise brokers cannot know."""

    def __init__(
        self, chronicle: Chronicle, origin: bytes, *, tells_brokers: bool, notes: bool = False
    ) -> None:
        super().__init__(chronicle, origin, _FAILURES, notes=notes)
        self._tells_brokers = tells_brokers

    def answered(self, call: PendingCall, body: Sequence[bytes], now: float) -> None:
        """Journal the reply to a call."""
        if not call.idempotent:
            self.expand(call)
        super().answered(call, body, now)

    def _is_marked(self, call: PendingCall) -> bool:
        return self._tells_brokers and not call.idempotent


class WorkerRecorder(JobRecorder[Job]):
    """Journals requests, at the worker, with the number of their attempt."""

    def finished(self, job: Job, status: Status, frames: Sequence[bytes], now: float) -> None:
        """Journal the end of a handler."""
        if job.attempt > 1:
            self.expand(job)
        super().finished(job, status, frames, now)

    def _write(self, job: Job, kind: Kind, at: float, **facts: Any) -> None:
        super()._write(job, kind, at, attempt=job.attempt, **facts)


def _size(frames: Sequence[bytes]) -> int:
    return len(frames[0]) if len(frames) == 1 else sum(map(len, frames))
