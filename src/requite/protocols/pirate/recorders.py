"""What clients, servers and workers of the Pirates write into their chronicles.

Nothing on these wires names a call, so each log tells of requests under ids of its own. A client's
are those by which the audit judges: it has accepted the calls. A request to which nothing special
happens is one flight, written when it ends; the first special thing makes it *told*, and from then
on it is written down event by event (`requite.chronicle`).
"""

from __future__ import annotations

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
from requite.protocols.pirate.calls import PendingCall
from requite.protocols.pirate.jobs import Job, reason_of
from requite.request import Status, error_class_of

# What a client's errors mean; a `TransportError` has no status.
_FAILURES: Final = {
    CallTimeout: (Kind.EXPIRED, Status.EXPIRED),
    Cancelled: (Kind.CANCELLED, Status.CANCELLED),
    Overloaded: (Kind.ANSWERED, Status.OVERLOADED),
}


class _Recorder:
    """What both have: a chronicle, and when to look at what is under way (`look_at`).

    `first_number` parts the ids of several engines that write under one origin.
    """

    def __init__(self, chronicle: Chronicle, origin: bytes, first_number: int = 0) -> None:
        self.look_at = inf
        self._chronicle = chronicle
        self._origin = origin
        self._number = first_number
        self._happen = chronicle.happenings.append
        self._looked_at = 0.0

    def _new_id(self, now: float) -> bytes:
        self.look_at = min(self.look_at, now + SWEEP_EVERY_S)
        self._number += 1
        return self._origin + self._number.to_bytes(8, "big")

    def _looked(self, goes_on: bool, now: float) -> None:
        self._looked_at = now
        self.look_at = now + SWEEP_EVERY_S if goes_on else inf
        self._chronicle.trim()

    def _flown(self, flight: FlightRow) -> None:
        self._chronicle.flights.append(flight)
        if len(self._chronicle.flights) >= PRESS_ROWS:
            self._chronicle.press()


class ClientRecorder(_Recorder):
    """Tells about calls, at the client."""

    def accepted(self, call: PendingCall) -> None:
        """Give a new call its id."""
        call.call_id = self._new_id(call.submitted_at)

    def sent(self, call: PendingCall, now: float) -> None:
        """Tell that a try has left, where that is not part of a flight."""
        if call.tries == 1:
            call.sent_at = now
        else:
            self.begun(call)
        if call.is_told:
            self._tell(call, Kind.SENT, now)

    def replied(self, call: PendingCall, frames: Iterable[bytes], now: float) -> None:
        """Tell of the reply to a call."""
        size = sum(map(len, frames))
        if call.is_told:
            self._tell(call, Kind.ANSWERED, now, outcome=Status.OK, size=size)
            return
        asked = call.asked
        instants = call.submitted_at, call.sent_at, now, asked.deadline
        self._flown((*instants, call.call_id, _name(asked.service), b"", call.size, size))

    def begun(self, call: PendingCall) -> None:
        """Tell what has happened to a call so far, up to its first try, if that is not told yet."""
        if call.is_told:
            return
        call.is_told = True
        facts: dict[str, Any] = {"size": call.size, "value": call.asked.deadline}
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

    def refused(self, service: str, error: CallError, now: float) -> None:
        """Tell that a call was not taken on."""
        name, error_name = _name(service), type(error).__name__
        self._happen(
            Happening(now, Kind.REFUSED, service=name, error=error_name, reason=str(error))
        )

    def look(self, calls: dict[Any, PendingCall], now: float) -> None:
        """Tell the beginnings of what has been under way since the last look."""
        for call in reversed(calls.values()):
            if call.submitted_at < self._looked_at:
                break  # the earlier ones were told then
            self.begun(call)
        self._looked(bool(calls), now)

    def _tell(self, call: PendingCall, kind: Kind, at: float, **facts: Any) -> None:
        facts.setdefault("attempt", call.tries)
        self._happen(Happening(at, kind, call.call_id, _name(call.asked.service), **facts))


class WorkerRecorder(_Recorder):
    """Tells about requests in the hands of a server or worker, under ids of its own."""

    def __init__(
        self, chronicle: Chronicle, instance: bytes, service: str, first_number: int = 0
    ) -> None:
        super().__init__(chronicle, instance, first_number)
        self._service = _name(service)

    def delivered(self, job: Job, size: int, now: float) -> None:
        """Give a request its id."""
        job.call_id = self._new_id(now)
        job.size = size

    def started(self, job: Job, now: float) -> None:
        """Tell that a handler runs, where that is not part of a flight."""
        job.started_at = now
        if job.is_told:
            self._tell(job, Kind.STARTED, now)

    def partial(self, job: Job, frames: Iterable[bytes], now: float) -> None:
        """Tell of a partial reply."""
        self.begun(job)
        self._tell(job, Kind.PARTIAL, now, size=sum(map(len, frames)))

    def finished(self, job: Job, status: Status, frames: Sequence[bytes], now: float) -> None:
        """Tell how a handler ended."""
        size = sum(map(len, frames))
        if job.is_told or status or not job.started_at:
            self.begun(job)
            facts: dict[str, Any] = {"outcome": status, "size": size}
            if status:  # then the frames are the reason
                error = error_class_of(status)
                facts |= {"size": 0, "error": error, "reason": reason_of(frames)}
            self._tell(job, Kind.FINISHED, now, **facts)
            return
        instants = job.delivered_at, job.started_at, now, inf
        self._flown((*instants, job.call_id, self._service, self._origin, job.size, size))

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

    def look(self, jobs: Iterable[Job], now: float) -> None:
        """Tell the beginnings of what has been under way since the last look."""
        jobs = list(jobs)
        for job in reversed(jobs):
            if job.delivered_at < self._looked_at:
                break  # the earlier ones were told then
            self.begun(job)
        self._looked(bool(jobs), now)

    def _tell(self, job: Job, kind: Kind, at: float, **facts: Any) -> None:
        self._happen(Happening(at, kind, job.call_id, self._service, self._origin, 1, **facts))


def _name(service: str) -> bytes:
    return service.encode(errors="backslashreplace")
