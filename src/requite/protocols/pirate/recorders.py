"""The journal of a queue (`requite.core.recording`)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from itertools import chain
from math import inf
from typing import Any, Final

from requite.chronicle import MADE_UP, NO_INSTANCE, Chronicle, EventRow, Kind
from requite.core.observer import Observer
from requite.core.recording import Rows
from requite.protocols.pirate.clients import AddressedClient
from requite.protocols.pirate.workers import BUSY, WorkerPeer
from requite.request import Status, error_class_of

_ENDS: Final = {Status.CANCELLED: Kind.CANCELLED}


class TrackedRequest:
    """A request in a queue. `size` is that of its body in bytes; `worker` its worker's name,
    empty while it waits."""

    __slots__ = ("accepted_at", "call_id", "dispatched_at", "is_expanded", "size", "worker")

    def __init__(self, call_id: bytes, size: int, now: float) -> None:
        self.call_id = call_id
        self.size = size
        self.accepted_at = self.dispatched_at = now
        self.worker = b""
        self.is_expanded = False


class QueueObserver(Observer):
    """Events of requests and workers in a queue. This base class ignores them."""

    def accepted(
        self, client: AddressedClient[WorkerPeer], body: Sequence[bytes], now: float
    ) -> None:
        """A client has sent a request."""

    def dispatched(
        self, client: AddressedClient[WorkerPeer], worker: WorkerPeer, now: float
    ) -> None:
        """A worker was sent the first queued request of a client."""

    def answered(self, worker: WorkerPeer, body: Iterable[bytes], now: float) -> None:
        """A worker has replied."""

    def lost(self, worker: WorkerPeer, why: str, now: float) -> None:
        """A request was lost with its worker."""

    def left(self, client: AddressedClient[WorkerPeer], why: str, now: float) -> None:
        """A client has left."""

    def drained(self, now: float) -> None:
        """Queued requests are dropped, because the queue drains."""

    def stopped(self, now: float) -> None:
        """The queue has stopped; outstanding replies are lost."""

    def came(self, worker: WorkerPeer, now: float) -> None:
        """A worker has sent its first READY."""

    def beat(self, worker: WorkerPeer, now: float) -> None:
        """A heartbeat was sent to a worker, which is alive."""

    def went(self, worker: WorkerPeer, why: str, now: float) -> None:
        """A worker was lost."""

    def flush_open_spans(self, now: float) -> None:
        """The instant `flush_at` has come."""


class QueueRecorder(QueueObserver):
    """Journals requests and workers of a queue, as a broker does.

    The engine handles requests as messages, so this class tracks them: per client the queued ones,
    in order, and per worker the current one. Their ids are made by the queue.
    """

    keeps_journal = True

    def __init__(
        self, chronicle: Chronicle, instance: bytes = NO_INSTANCE, *, notes: bool = False
    ) -> None:
        super().__init__(notes=notes)
        origin = bytes((instance[0] | MADE_UP,)) + instance[1:]
        self._rows = Rows(self, chronicle, origin)
        self._waiting: dict[AddressedClient[WorkerPeer], deque[TrackedRequest]] = {}
        self._in_flight: dict[WorkerPeer, TrackedRequest] = {}
        self._names: dict[WorkerPeer, bytes] = {}  # of workers
        self._came = 0

    def dropped(self, why: str, now: float, count: int = 1) -> None:
        """Count dropped messages."""
        self._rows.dropped(why, now, count)

    # --- requests ---------------------------------------------------------------------------------
    def accepted(
        self, client: AddressedClient[WorkerPeer], body: Sequence[bytes], now: float
    ) -> None:
        """Give a new request its id."""
        request = TrackedRequest(self._rows.new_id(), sum(map(len, body)), now)
        self._waiting.setdefault(client, deque()).append(request)
        self._rows.schedule_flush(now)

    def dispatched(
        self, client: AddressedClient[WorkerPeer], worker: WorkerPeer, now: float
    ) -> None:
        """Record that a worker was sent the first queued request of a client."""
        waiting = self._waiting[client]
        request = self._in_flight[worker] = waiting.popleft()
        if not waiting:
            del self._waiting[client]
        request.dispatched_at = now
        request.worker = self._names[worker]
        if request.is_expanded:
            self._write(request, Kind.DISPATCHED, now)

    def answered(self, worker: WorkerPeer, body: Iterable[bytes], now: float) -> None:
        """Journal the reply to a worker's request."""
        request = self._in_flight.pop(worker, None)
        if request is None:
            return  # the queue has stopped
        size = sum(map(len, body))
        if request.is_expanded:
            self._write(request, Kind.ANSWERED, now, outcome=Status.OK, size=size)
            return
        instants = request.accepted_at, request.dispatched_at, now, inf
        self._rows.append_span(
            (*instants, request.call_id, b"", request.worker, request.size, size)
        )

    def lost(self, worker: WorkerPeer, why: str, now: float) -> None:
        """Journal a request that was lost with its worker."""
        self._end(self._in_flight.pop(worker, None), Status.WORKER_LOST, why, now)

    def left(self, client: AddressedClient[WorkerPeer], why: str, now: float) -> None:
        """Journal the requests of a lost client as cancelled."""
        given = [self._in_flight.pop(worker, None) for worker in client.in_flight]
        for request in (*given, *self._waiting.pop(client, ())):
            self._end(request, Status.CANCELLED, f"the client disconnected: {why}", now)

    def drained(self, now: float) -> None:
        """Journal that the queued requests are dropped."""
        for request in chain.from_iterable(self._waiting.values()):
            self._end(request, Status.SHUTTING_DOWN, "the queue is shutting down", now)
        self._waiting.clear()

    def stopped(self, now: float) -> None:
        """Journal that the outstanding requests are lost."""
        for request in self._in_flight.values():
            self._end(request, Status.SHUTTING_DOWN, "the queue has shut down", now)
        self._in_flight.clear()
        self._rows.flushed(False, now)

    # --- workers ----------------------------------------------------------------------------------
    def came(self, worker: WorkerPeer, now: float) -> None:
        """Name a worker that has sent READY, and journal it."""
        self._came += 1
        self._names[worker] = self._rows.origin[:4] + self._came.to_bytes(4, "big")
        self._presence(Kind.WORKER_JOINED, worker, now)

    def beat(self, worker: WorkerPeer, now: float) -> None:
        """Journal a worker heartbeat."""
        self._presence(Kind.HEARTBEAT, worker, now)

    def went(self, worker: WorkerPeer, why: str, now: float) -> None:
        """Journal that a worker was lost."""
        self._presence(Kind.WORKER_LOST, worker, now, why)
        del self._names[worker]

    def _presence(self, kind: Kind, worker: WorkerPeer, now: float, reason: str = "") -> None:
        silent_s, busy = now - worker.liveness.heard_at, int(worker.state is BUSY)
        name = self._names[worker]
        self._rows.append_event(
            EventRow(now, kind, worker=name, reason=reason, value=silent_s, busy=busy, capacity=1)
        )

    # --- time -------------------------------------------------------------------------------------
    def flush_open_spans(self, now: float) -> None:
        """Journal the beginnings of requests in progress."""
        for request in chain(self._in_flight.values(), *self._waiting.values()):
            self._expand(request)
        self._rows.flushed(bool(self._in_flight or self._waiting), now)

    def _expand(self, request: TrackedRequest) -> None:
        """Journal the events of a request so far, unless that was done before."""
        if request.is_expanded:
            return
        request.is_expanded = True
        at = request.accepted_at
        size = request.size
        self._rows.append_event(EventRow(at, Kind.ACCEPTED, request.call_id, size=size))
        if not request.worker or request.dispatched_at > at:
            self._rows.append_event(EventRow(at, Kind.QUEUED, request.call_id))
        if request.worker:
            self._write(request, Kind.DISPATCHED, request.dispatched_at)

    def _end(self, request: TrackedRequest | None, status: Status, reason: str, now: float) -> None:
        """Journal the end of a request without a reply."""
        if request is None:
            return
        self._expand(request)
        kind = _ENDS.get(status, Kind.ANSWERED)
        error = error_class_of(status)
        self._write(request, kind, now, outcome=status, error=error, reason=reason)

    def _write(self, request: TrackedRequest, kind: Kind, at: float, **facts: Any) -> None:
        attempt = int(request.worker != b"")
        self._rows.append_event(
            EventRow(at, kind, request.call_id, worker=request.worker, attempt=attempt, **facts)
        )
