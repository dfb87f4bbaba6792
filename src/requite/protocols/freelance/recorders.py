"""What clients and servers write into their chronicles (`requite.chronicle`).

Nothing on the wire names a call for good, so client and server tell of requests under ids of their
own; the audit judges by the client's. A request to which nothing special happens is one flight,
written when it ends. The first special thing makes it *told*: from then on it is written down event
by event. Messages that are thrown away are counted, and told at the next look.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from math import inf
from typing import Any, Final

from requite.chronicle import (
    NO_OUTCOME,
    PRESS_ROWS,
    SWEEP_EVERY_S,
    Chronicle,
    FlightRow,
    Happening,
    Kind,
)
from requite.errors import CallError, CallTimeout, Cancelled, Overloaded
from requite.protocols.freelance.calls import PendingCall
from requite.protocols.freelance.jobs import Job
from requite.request import Status, error_class_of

# What a client's errors mean; a `TransportError` has no status.
_FAILURES: Final = {
    CallTimeout: (Kind.EXPIRED, Status.EXPIRED),
    Cancelled: (Kind.CANCELLED, Status.CANCELLED),
    Overloaded: (Kind.ANSWERED, Status.OVERLOADED),
}


class _Recorder:
    """What both have: a chronicle, ids, and `look_at`: when to look at what is under way."""

    def __init__(self, chronicle: Chronicle, origin: bytes) -> None:
        self.look_at = inf
        self._chronicle = chronicle
        self._origin = origin
        self._number = 0
        self._looked_at = 0.0
        self._dropped: Counter[str] = Counter()

    def dropped(self, why: str, now: float, count: int = 1) -> None:
        """Tell, at the next look, of messages that were thrown away."""
        self._dropped[why] += count
        self._look_soon(now)

    def _new_id(self) -> bytes:
        self._number += 1
        return self._origin + self._number.to_bytes(8, "big")

    def _look_soon(self, now: float) -> None:
        if self.look_at == inf:
            self.look_at = now + SWEEP_EVERY_S

    def _looked(self, goes_on: bool, now: float) -> None:
        for why, count in self._dropped.items():
            self._happen(Happening(now, Kind.REFUSED, reason=f"{count} dropped: {why}"))
        self._dropped.clear()
        self._looked_at = now
        self.look_at = now + SWEEP_EVERY_S if goes_on else inf
        self._chronicle.trim()

    def _happen(self, happening: Happening) -> None:
        self._chronicle.happenings.append(happening)

    def _flown(self, flight: FlightRow) -> None:
        self._chronicle.flights.append(flight)
        if len(self._chronicle.flights) >= PRESS_ROWS:
            self._chronicle.press()


class ClientRecorder(_Recorder):
    """Tells about calls, at the client."""

    def accepted(self, call: PendingCall) -> None:
        """Give a new call its id."""
        call.call_id = self._new_id()
        self._look_soon(call.submitted_at)

    def sent(self, call: PendingCall, now: float) -> None:
        """Tell that a try has left, where that is not part of a flight."""
        if call.tries == 1:
            call.sent_at = now
        else:
            self.begun(call)
        if call.is_told:
            self._tell(call, Kind.SENT, now)

    def replied(self, call: PendingCall, body: Sequence[bytes], now: float) -> None:
        """Tell of the reply to a call."""
        size = _size(body)
        if call.is_told:
            self._tell(call, Kind.ANSWERED, now, outcome=Status.OK, size=size)
            return
        instants = call.submitted_at, call.sent_at, now, call.asked.deadline
        self._flown((*instants, call.call_id, _name(call), b"", _size(call.frames), size))

    def begun(self, call: PendingCall) -> None:
        """Tell what has happened to a call so far, up to its first try, if that is not told yet."""
        if call.is_told:
            return
        call.is_told = True
        facts: dict[str, Any] = {"size": _size(call.frames), "value": call.asked.deadline}
        self._tell(call, Kind.ACCEPTED, call.submitted_at, attempt=0, **facts)
        if call.tries:
            self._tell(call, Kind.SENT, call.sent_at, attempt=1)

    def taken_back(self, call: PendingCall, reason: str, now: float) -> None:
        """Tell that a try is given up for another one."""
        self.begun(call)
        self._tell(call, Kind.REDELIVERED, now, reason=reason)

    def failed(self, call: PendingCall, error: CallError, now: float) -> None:
        """Tell of the error a call ended with."""
        self.begun(call)
        kind, outcome = _FAILURES.get(type(error), (Kind.ANSWERED, NO_OUTCOME))
        name = type(error).__name__
        self._tell(call, kind, now, outcome=outcome, error=name, reason=str(error))

    def refused(self, error: CallError, now: float) -> None:
        """Tell that a call was not taken on."""
        name = type(error).__name__
        self._happen(Happening(now, Kind.REFUSED, error=name, reason=str(error)))

    def look(self, calls: dict[Any, PendingCall], now: float) -> None:
        """Tell the beginnings of what has been under way since the last look."""
        for call in reversed(calls.values()):
            if call.submitted_at < self._looked_at:
                break  # the earlier ones were told then
            self.begun(call)
        self._looked(bool(calls), now)

    def _tell(self, call: PendingCall, kind: Kind, at: float, **facts: Any) -> None:
        facts.setdefault("attempt", call.tries)
        self._happen(Happening(at, kind, call.call_id, _name(call), **facts))


class ServerRecorder(_Recorder):
    """Tells about requests in the hands of a server, under ids of the server's own."""

    def __init__(self, chronicle: Chronicle, instance: bytes, service: str) -> None:
        super().__init__(chronicle, instance)
        self._service = service.encode(errors="backslashreplace")

    def delivered(self, job: Job, size: int, now: float) -> None:
        """Give a request its id."""
        job.call_id = self._new_id()
        job.delivered_at = now
        job.size = size
        self._look_soon(now)

    def started(self, job: Job, now: float) -> None:
        """Tell that a handler runs, where that is not part of a flight."""
        job.started_at = now
        if job.is_told:
            self._tell(job, Kind.STARTED, now)

    def partial(self, job: Job, frames: Iterable[bytes], now: float) -> None:
        """Tell of a partial reply."""
        self.begun(job)
        self._tell(job, Kind.PARTIAL, now, size=_size(frames))

    def finished(self, job: Job, status: Status, frames: Sequence[bytes], now: float) -> None:
        """Tell how a handler ended."""
        size = _size(frames)
        if not (job.is_told or status) and job.started_at:
            instants = job.delivered_at, job.started_at, now, inf
            self._flown((*instants, job.call_id, self._service, self._origin, job.size, size))
            return
        self.begun(job)
        facts: dict[str, Any] = {"outcome": status, "size": size}
        if status:  # then the frames are the reason
            reason = b" ".join(frames).decode(errors="replace")
            facts |= {"size": 0, "error": error_class_of(status), "reason": reason}
        self._tell(job, Kind.FINISHED, now, **facts)

    def abandoned(self, job: Job, reason: str, now: float) -> None:
        """Tell that nobody waits for a request any more."""
        self.begun(job)
        self._tell(job, Kind.ABANDONED, now, reason=reason)

    def begun(self, job: Job) -> None:
        """Tell what has happened to a request so far, if that is not told yet."""
        if job.is_told:
            return
        job.is_told = True
        self._tell(job, Kind.DELIVERED, job.delivered_at, size=job.size)
        if job.started_at:
            self._tell(job, Kind.STARTED, job.started_at)

    def look(self, jobs: dict[Job, None], now: float) -> None:
        """Tell the beginnings of what has been under way since the last look."""
        for job in reversed(jobs):
            if job.delivered_at < self._looked_at:
                break  # the earlier ones were told then
            self.begun(job)
        self._looked(bool(jobs), now)

    def _tell(self, job: Job, kind: Kind, at: float, **facts: Any) -> None:
        self._happen(Happening(at, kind, job.call_id, self._service, self._origin, 1, **facts))


def _name(call: PendingCall) -> bytes:
    return call.asked.service.encode(errors="backslashreplace")


def _size(frames: Iterable[bytes]) -> int:
    return sum(map(len, frames))
