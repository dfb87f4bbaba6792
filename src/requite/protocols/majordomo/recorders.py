"""What broker, client and worker write into their chronicles (`requite.chronicle`).

A request to which nothing special happens is one span, told when it ends. The first special thing
about a request makes it *told*: what has happened so far is written down event by event, and so is
the rest of its life.
"""

from __future__ import annotations

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
from requite.core.recording import FAILURES, CallRecorder, JobRecorder
from requite.errors import NoService, Poisoned, RemoteFailure, WorkerLost
from requite.protocols.majordomo.calls import PendingCall
from requite.protocols.majordomo.jobs import Job
from requite.protocols.majordomo.parties import Client, PendingRequest, Worker
from requite.protocols.majordomo.wire import NOT_IDEMPOTENT as NOT_IDEMPOTENT_FLAG
from requite.request import Status, error_class_of

_ENDS: Final = {Status.EXPIRED: Kind.EXPIRED, Status.CANCELLED: Kind.CANCELLED}
# What a client's errors mean: its own ones, and those of which it is told.
_FAILURES: Final = {
    **FAILURES,
    NoService: (Kind.ANSWERED, Status.NO_SERVICE),
    RemoteFailure: (Kind.ANSWERED, Status.FAILED),
    WorkerLost: (Kind.ANSWERED, Status.WORKER_LOST),
    Poisoned: (Kind.ANSWERED, Status.POISONED),
}


class BrokerObserver(Observer):
    """What the engine of a broker tells of requests and workers. This one listens to nothing."""

    def answered(self, pending: PendingRequest, body: Sequence[bytes], now: float) -> None:
        """A worker gave a final reply that is OK."""

    def expand(self, pending: PendingRequest) -> None:
        """Something special happened to a request."""

    def dispatched(self, pending: PendingRequest) -> None:
        """A worker was given a request that is expanded."""

    def partial(self, pending: PendingRequest, body: Sequence[bytes], now: float) -> None:
        """A worker gave a partial reply."""

    def redelivered(
        self, pending: PendingRequest, lost_at: Worker | None, reason: str, now: float
    ) -> None:
        """A request was taken back from a worker, and is queued again."""

    def ended(self, pending: PendingRequest, status: Status, reason: str, now: float) -> None:
        """A request ended that has no reply."""

    def refused(
        self, call_id: bytes, service: bytes, status: Status, reason: str, now: float
    ) -> None:
        """A request was never accepted."""

    def worker(self, kind: Kind, worker: Worker, now: float, reason: str = "") -> None:
        """A worker came, is there, drains, or went."""

    def flush_open_spans(self, clients: Iterable[Client], now: float) -> None:
        """What these clients asked for is under way."""


NO_BROKER_OBSERVER: Final = BrokerObserver()


class BrokerRecorder(BrokerObserver):
    """Tells about requests and workers, at the broker."""

    keeps_journal = True

    def __init__(self, chronicle: Chronicle) -> None:
        self._chronicle = chronicle
        self._spans = chronicle.spans
        self._append_event = chronicle.event_rows.append
        self._flushed_at = 0.0

    # --- requests -------------------------------------------------------------------------------
    def answered(self, pending: PendingRequest, body: Sequence[bytes], now: float) -> None:
        """Tell of a final reply that is OK."""
        worker = pending.worker
        assert worker is not None  # it was its FINAL
        if pending.flags & NOT_IDEMPOTENT_FLAG:
            self.expand(pending)
        if pending.is_expanded:
            self._write(pending, Kind.ANSWERED, now, outcome=Status.OK, size=_size(body))
            return
        # 0.3 us in all; a NamedTuple would cost as much again (CPython 3.11).
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
        """Tell what has happened to a request so far, if that is not told yet."""
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
        """Write a DISPATCHED event; it is not part of a span."""
        self._write(pending, Kind.DISPATCHED, pending.dispatched_at)

    def partial(self, pending: PendingRequest, body: Sequence[bytes], now: float) -> None:
        """Journal a partial reply."""
        self.expand(pending)
        self._write(pending, Kind.PARTIAL, now, size=_size(body))

    def redelivered(
        self, pending: PendingRequest, lost_at: Worker | None, reason: str, now: float
    ) -> None:
        """Tell that a request was taken back from a worker, and is queued again."""
        worker = b"" if lost_at is None else lost_at.name
        self._write(pending, Kind.REDELIVERED, now, reason=reason, worker=worker)

    def ended(self, pending: PendingRequest, status: Status, reason: str, now: float) -> None:
        """Tell how a request ended that has no reply."""
        self.expand(pending)
        self._end(pending, _ENDS.get(status, Kind.ANSWERED), status, reason, now)

    def refused(
        self, call_id: bytes, service: bytes, status: Status, reason: str, now: float
    ) -> None:
        """Tell that a request was never accepted."""
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
        """Tell one event; `facts` are fields of `EventRow`."""
        if pending.worker is not None:
            facts.setdefault("worker", pending.worker.name)
        name = pending.service.name
        self._append_event(
            EventRow(at, kind, pending.call_id, name, attempt=pending.attempts, **facts)
        )

    # --- workers --------------------------------------------------------------------------------
    def worker(self, kind: Kind, worker: Worker, now: float, reason: str = "") -> None:
        """Tell of a worker: that it came, is there, drains, or went, and how busy it was."""
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
        self._flushed_at = now
        self._chronicle.trim()


class ClientRecorder(CallRecorder[PendingCall]):
    """Tells about calls, at the client. `tells_brokers`: its dialect can say that a call is not
    idempotent; of one that cannot, brokers cannot be expected to know."""

    def __init__(self, chronicle: Chronicle, origin: bytes, *, tells_brokers: bool) -> None:
        super().__init__(chronicle, origin, _FAILURES)
        self._tells_brokers = tells_brokers

    def answered(self, call: PendingCall, body: Sequence[bytes], now: float) -> None:
        """Tell of the reply to a call."""
        if not call.idempotent:
            self.expand(call)
        super().answered(call, body, now)

    def _is_marked(self, call: PendingCall) -> bool:
        return self._tells_brokers and not call.idempotent


class WorkerRecorder(JobRecorder[Job]):
    """Tells about requests in the hands of a worker, which are there for the `attempt`-th time."""

    def finished(self, job: Job, status: Status, frames: Sequence[bytes], now: float) -> None:
        """Tell how a handler ended."""
        if job.attempt > 1:
            self.expand(job)
        super().finished(job, status, frames, now)

    def _write(self, job: Job, kind: Kind, at: float, **facts: Any) -> None:
        super()._write(job, kind, at, attempt=job.attempt, **facts)


def _size(frames: Sequence[bytes]) -> int:
    return len(frames[0]) if len(frames) == 1 else sum(map(len, frames))
