"""What a queue writes into its chronicle (`requite.core.recording`)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from itertools import chain
from math import inf
from typing import Any, Final

from requite.chronicle import MADE_UP, NO_INSTANCE, Chronicle, Happening, Kind
from requite.core.observer import Observer
from requite.core.recording import Recorder
from requite.protocols.pirate.asker import Asker
from requite.protocols.pirate.crew import BUSY, Hand
from requite.request import Status, error_class_of

_ENDS: Final = {Status.CANCELLED: Kind.CANCELLED}


class Errand:
    """A request on its way through a queue. `size` are the bytes of its body; `worker`, the name of
    who was given it, is empty while it waits."""

    __slots__ = ("accepted_at", "call_id", "dispatched_at", "is_told", "size", "worker")

    def __init__(self, call_id: bytes, size: int, now: float) -> None:
        self.call_id = call_id
        self.size = size
        self.accepted_at = self.dispatched_at = now
        self.worker = b""
        self.is_told = False


class QueueObserver(Observer):
    """What the engine of a queue tells of requests and workers. This one listens to nothing."""

    def accepted(self, asker: Asker[Hand], body: Sequence[bytes], now: float) -> None:
        """A client has made a request."""

    def dispatched(self, asker: Asker[Hand], hand: Hand, now: float) -> None:
        """A worker was given the first request that waits at a client."""

    def answered(self, hand: Hand, body: Iterable[bytes], now: float) -> None:
        """A worker has replied."""

    def lost(self, hand: Hand, why: str, now: float) -> None:
        """A request was lost with its worker."""

    def left(self, asker: Asker[Hand], why: str, now: float) -> None:
        """A client has left."""

    def drained(self, now: float) -> None:
        """What waits is given to no worker any more."""

    def stopped(self, now: float) -> None:
        """No reply is passed on any more."""

    def came(self, hand: Hand, now: float) -> None:
        """A worker has said for the first time that it is ready."""

    def beat(self, hand: Hand, now: float) -> None:
        """A worker is there."""

    def went(self, hand: Hand, why: str, now: float) -> None:
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
        self._waiting: dict[Asker[Hand], deque[Errand]] = {}
        self._in_hand: dict[Hand, Errand] = {}
        self._names: dict[Hand, bytes] = {}  # of workers
        self._came = 0

    # --- requests ---------------------------------------------------------------------------------
    def accepted(self, asker: Asker[Hand], body: Sequence[bytes], now: float) -> None:
        """Give a new request its id."""
        errand = Errand(self._new_id(), sum(map(len, body)), now)
        self._waiting.setdefault(asker, deque()).append(errand)
        self._look_soon(now)

    def dispatched(self, asker: Asker[Hand], hand: Hand, now: float) -> None:
        """Note that a worker was given the first request that waits at a client."""
        waiting = self._waiting[asker]
        errand = self._in_hand[hand] = waiting.popleft()
        if not waiting:
            del self._waiting[asker]
        errand.dispatched_at = now
        errand.worker = self._names[hand]
        if errand.is_told:
            self._tell(errand, Kind.DISPATCHED, now)

    def answered(self, hand: Hand, body: Iterable[bytes], now: float) -> None:
        """Tell of the reply to what a worker had."""
        errand = self._in_hand.pop(hand, None)
        if errand is None:
            return  # the queue has stopped meanwhile
        size = sum(map(len, body))
        if errand.is_told:
            self._tell(errand, Kind.ANSWERED, now, outcome=Status.OK, size=size)
            return
        instants = errand.accepted_at, errand.dispatched_at, now, inf
        self._flown((*instants, errand.call_id, b"", errand.worker, errand.size, size))

    def lost(self, hand: Hand, why: str, now: float) -> None:
        """Tell that a request was lost with its worker."""
        self._end(self._in_hand.pop(hand, None), Status.WORKER_LOST, why, now)

    def left(self, asker: Asker[Hand], why: str, now: float) -> None:
        """Tell that nobody waits any more for what a client had asked."""
        given = [self._in_hand.pop(hand, None) for hand in asker.in_hand]
        for errand in (*given, *self._waiting.pop(asker, ())):
            self._end(errand, Status.CANCELLED, f"its client has left: {why}", now)

    def drained(self, now: float) -> None:
        """Tell that what waits is given to no worker any more."""
        for errand in chain.from_iterable(self._waiting.values()):
            self._end(errand, Status.SHUTTING_DOWN, "the queue is shutting down", now)
        self._waiting.clear()

    def stopped(self, now: float) -> None:
        """Tell that no reply is passed on any more."""
        for errand in self._in_hand.values():
            self._end(errand, Status.SHUTTING_DOWN, "the queue has shut down", now)
        self._in_hand.clear()
        self._looked(False, now)

    # --- workers ----------------------------------------------------------------------------------
    def came(self, hand: Hand, now: float) -> None:
        """Name a worker that has said that it is ready, and tell of it."""
        self._came += 1
        self._names[hand] = self._origin[:4] + self._came.to_bytes(4, "big")
        self._presence(Kind.WORKER_JOINED, hand, now)

    def beat(self, hand: Hand, now: float) -> None:
        """Tell that a worker is there."""
        self._presence(Kind.HEARTBEAT, hand, now)

    def went(self, hand: Hand, why: str, now: float) -> None:
        """Tell that a worker is gone."""
        self._presence(Kind.WORKER_LOST, hand, now, why)
        del self._names[hand]

    def _presence(self, kind: Kind, hand: Hand, now: float, reason: str = "") -> None:
        silent_s, busy = now - hand.liveness.heard_at, int(hand.state is BUSY)
        name = self._names[hand]
        self._happen(
            Happening(now, kind, worker=name, reason=reason, value=silent_s, busy=busy, capacity=1)
        )

    # --- time -------------------------------------------------------------------------------------
    def look(self, now: float) -> None:
        """Tell the beginnings of what is under way."""
        for errand in chain(self._in_hand.values(), *self._waiting.values()):
            self._begun(errand)
        self._looked(bool(self._in_hand or self._waiting), now)

    def _begun(self, errand: Errand) -> None:
        """Tell what has happened to a request so far, if that is not told yet."""
        if errand.is_told:
            return
        errand.is_told = True
        at = errand.accepted_at
        size = errand.size
        self._happen(Happening(at, Kind.ACCEPTED, errand.call_id, size=size))
        if not errand.worker or errand.dispatched_at > at:
            self._happen(Happening(at, Kind.QUEUED, errand.call_id))
        if errand.worker:
            self._tell(errand, Kind.DISPATCHED, errand.dispatched_at)

    def _end(self, errand: Errand | None, status: Status, reason: str, now: float) -> None:
        """Tell how a request ended that has no reply."""
        if errand is None:
            return
        self._begun(errand)
        kind = _ENDS.get(status, Kind.ANSWERED)
        error = error_class_of(status)
        self._tell(errand, kind, now, outcome=status, error=error, reason=reason)

    def _tell(self, errand: Errand, kind: Kind, at: float, **facts: Any) -> None:
        attempt = int(errand.worker != b"")
        self._happen(
            Happening(at, kind, errand.call_id, worker=errand.worker, attempt=attempt, **facts)
        )
