"""What a queue writes into its chronicle (`requite.core.recording`)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from itertools import chain
from math import inf
from typing import Any, Final

from requite.chronicle import MADE_UP, NO_INSTANCE, Chronicle, EventRow, Kind
from requite.core.observer import Observer
from requite.core.recording import Recorder
from requite.protocols.pirate.workers import BUSY, QueueClient, WorkerPeer
from requite.request import Status, error_class_of

_ENDS: Final = {Status.CANCELLED: Kind.CANCELLED}


class TrackedRequest:
    """A request on its way through a queue. `size` are the bytes of its body; `worker`, the name of
    who was given it, is empty while it waits."""

    __slots__ = ("accepted_at", "call_id", "dispatched_at", "is_expanded", "size", "worker")

    def __init__(self, call_id: bytes, size: int, now: float) -> None:
        self.call_id = call_id
        self.size = size
        self.accepted_at = self.dispatched_at = now
        self.worker = b""
        self.is_expanded = False


class QueueObserver(Observer):
    """What the engine of a queue tells of requests and workers. This one listens to nothing."""

    def accepted(self, client: QueueClient, body: Sequence[bytes], now: float) -> None:
        """A client has made a request."""

    def dispatched(self, client: QueueClient, worker: WorkerPeer, now: float) -> None:
        """A worker was given the first request that waits at a client."""

    def answered(self, worker: WorkerPeer, body: Iterable[bytes], now: float) -> None:
        """A worker has replied."""

    def lost(self, worker: WorkerPeer, why: str, now: float) -> None:
        """A request was lost with its worker."""

    def left(self, client: QueueClient, why: str, now: float) -> None:
        """A client has left."""

    def drained(self, now: float) -> None:
        """What waits is given to no worker any more."""

    def stopped(self, now: float) -> None:
        """No reply is passed on any more."""

    def came(self, worker: WorkerPeer, now: float) -> None:
        """A worker has said for the first time that it is ready."""

    def beat(self, worker: WorkerPeer, now: float) -> None:
        """A worker is there."""

    def went(self, worker: WorkerPeer, why: str, now: float) -> None:
        """A worker is gone."""

    def look(self, now: float) -> None:
        """It is time to look at what is under way."""


NO_QUEUE_OBSERVER: Final = QueueObserver()


class QueueRecorder(Recorder, QueueObserver):
    """Tells about requests and workers, at the queue, as a broker does.

    The engine knows requests as messages, so the account of them is kept here: per client those
    that wait, in order, and per worker the one it has. Their ids are the queue's own.
    """

    def __init__(self, chronicle: Chronicle, instance: bytes = NO_INSTANCE) -> None:
        super().__init__(chronicle, bytes((instance[0] | MADE_UP,)) + instance[1:])
        self._waiting: dict[QueueClient, deque[TrackedRequest]] = {}
        self._in_hand: dict[WorkerPeer, TrackedRequest] = {}
        self._names: dict[WorkerPeer, bytes] = {}  # of workers
        self._came = 0

    # --- requests ---------------------------------------------------------------------------------
    def accepted(self, client: QueueClient, body: Sequence[bytes], now: float) -> None:
        """Give a new request its id."""
        request = TrackedRequest(self._new_id(), sum(map(len, body)), now)
        self._waiting.setdefault(client, deque()).append(request)
        self._look_soon(now)

    def dispatched(self, client: QueueClient, worker: WorkerPeer, now: float) -> None:
        """Note that a worker was given the first request that waits at a client."""
        waiting = self._waiting[client]
        request = self._in_hand[worker] = waiting.popleft()
        if not waiting:
            del self._waiting[client]
        request.dispatched_at = now
        request.worker = self._names[worker]
        if request.is_expanded:
            self._tell(request, Kind.DISPATCHED, now)

    def answered(self, worker: WorkerPeer, body: Iterable[bytes], now: float) -> None:
        """Tell of the reply to what a worker had."""
        request = self._in_hand.pop(worker, None)
        if request is None:
            return  # the queue has stopped meanwhile
        size = sum(map(len, body))
        if request.is_expanded:
            self._tell(request, Kind.ANSWERED, now, outcome=Status.OK, size=size)
            return
        instants = request.accepted_at, request.dispatched_at, now, inf
        self._flown((*instants, request.call_id, b"", request.worker, request.size, size))

    def lost(self, worker: WorkerPeer, why: str, now: float) -> None:
        """Tell that a request was lost with its worker."""
        self._end(self._in_hand.pop(worker, None), Status.WORKER_LOST, why, now)

    def left(self, client: QueueClient, why: str, now: float) -> None:
        """Tell that nobody waits any more for what a client had asked."""
        given = [self._in_hand.pop(worker, None) for worker in client.in_hand]
        for request in (*given, *self._waiting.pop(client, ())):
            self._end(request, Status.CANCELLED, f"its client has left: {why}", now)

    def drained(self, now: float) -> None:
        """Tell that what waits is given to no worker any more."""
        for request in chain.from_iterable(self._waiting.values()):
            self._end(request, Status.SHUTTING_DOWN, "the queue is shutting down", now)
        self._waiting.clear()

    def stopped(self, now: float) -> None:
        """Tell that no reply is passed on any more."""
        for request in self._in_hand.values():
            self._end(request, Status.SHUTTING_DOWN, "the queue has shut down", now)
        self._in_hand.clear()
        self._looked(False, now)

    # --- workers ----------------------------------------------------------------------------------
    def came(self, worker: WorkerPeer, now: float) -> None:
        """Name a worker that has said that it is ready, and tell of it."""
        self._came += 1
        self._names[worker] = self._origin[:4] + self._came.to_bytes(4, "big")
        self._presence(Kind.WORKER_JOINED, worker, now)

    def beat(self, worker: WorkerPeer, now: float) -> None:
        """Tell that a worker is there."""
        self._presence(Kind.HEARTBEAT, worker, now)

    def went(self, worker: WorkerPeer, why: str, now: float) -> None:
        """Tell that a worker is gone."""
        self._presence(Kind.WORKER_LOST, worker, now, why)
        del self._names[worker]

    def _presence(self, kind: Kind, worker: WorkerPeer, now: float, reason: str = "") -> None:
        silent_s, busy = now - worker.liveness.heard_at, int(worker.state is BUSY)
        name = self._names[worker]
        self._happen(
            EventRow(now, kind, worker=name, reason=reason, value=silent_s, busy=busy, capacity=1)
        )

    # --- time -------------------------------------------------------------------------------------
    def look(self, now: float) -> None:
        """Tell the beginnings of what is under way."""
        for request in chain(self._in_hand.values(), *self._waiting.values()):
            self._begun(request)
        self._looked(bool(self._in_hand or self._waiting), now)

    def _begun(self, request: TrackedRequest) -> None:
        """Tell what has happened to a request so far, if that is not told yet."""
        if request.is_expanded:
            return
        request.is_expanded = True
        at = request.accepted_at
        size = request.size
        self._happen(EventRow(at, Kind.ACCEPTED, request.call_id, size=size))
        if not request.worker or request.dispatched_at > at:
            self._happen(EventRow(at, Kind.QUEUED, request.call_id))
        if request.worker:
            self._tell(request, Kind.DISPATCHED, request.dispatched_at)

    def _end(self, request: TrackedRequest | None, status: Status, reason: str, now: float) -> None:
        """Tell how a request ended that has no reply."""
        if request is None:
            return
        self._begun(request)
        kind = _ENDS.get(status, Kind.ANSWERED)
        error = error_class_of(status)
        self._tell(request, kind, now, outcome=status, error=error, reason=reason)

    def _tell(self, request: TrackedRequest, kind: Kind, at: float, **facts: Any) -> None:
        attempt = int(request.worker != b"")
        self._happen(
            EventRow(at, kind, request.call_id, worker=request.worker, attempt=attempt, **facts)
        )
