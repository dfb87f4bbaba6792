"""What client, worker and device write into their chronicles (`requite.chronicle`).

Nothing on an SP wire names a call, so each log tells of requests under ids of its own. A client's
are those by which the audit judges: it has accepted the calls. A worker's tell how long handlers
took and how busy they were; the audit passes no verdict on requests of which only workers tell. A
device keeps no account of single requests, and writes none: it tells who came and went, and counts.

As in every protocol, a request to which nothing special happens is one flight, written when it
ends. The first special thing makes it *told*: from then on it is written down event by event.

Messages that are thrown away name no call either. They are told ten times a second at most, as
REFUSED: how many, and why.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from math import inf
from typing import Any, Final

from requite.chronicle import (
    NO_INSTANCE,
    NO_OUTCOME,
    PRESS_ROWS,
    SWEEP_EVERY_S,
    Chronicle,
    FlightRow,
    Happening,
    Kind,
)
from requite.errors import CallError, CallTimeout, Cancelled, Overloaded
from requite.protocols.scalability.calls import PendingCall
from requite.protocols.scalability.jobs import Job
from requite.request import Status, error_class_of

# What a client's errors mean; a `TransportError` has no status.
_FAILURES: Final = {
    CallTimeout: (Kind.EXPIRED, Status.EXPIRED),
    Cancelled: (Kind.CANCELLED, Status.CANCELLED),
    Overloaded: (Kind.ANSWERED, Status.OVERLOADED),
}


class _Recorder:
    """What all three have: a chronicle, when to look at what is under way, and what was dropped."""

    def __init__(self, chronicle: Chronicle, origin: bytes) -> None:
        self.look_at = inf
        self._chronicle = chronicle
        self._origin = origin
        self._number = 0  # of the request told last
        self._flights = chronicle.flights
        self._happen = chronicle.happenings.append
        self._looked_at = 0.0
        self._dropped: Counter[str] = Counter()

    def dropped(self, why: str, now: float, count: int = 1) -> None:
        """Tell, at the next look, of messages that were thrown away."""
        self._dropped[why] += count
        self._look_soon(now)

    def next_at(self) -> float | None:
        """Return when to look at things next, if at all."""
        return None if self.look_at == inf else self.look_at

    def _new_id(self) -> bytes:
        self._number += 1
        return self._origin + self._number.to_bytes(8, "big")

    def _look_soon(self, now: float) -> None:
        if self.look_at == inf:
            self.look_at = now + SWEEP_EVERY_S

    def _looked(self, goes_on: bool, now: float) -> None:
        """End a look at what is under way, of which the next one follows if it `goes_on`."""
        for why, count in self._dropped.items():
            self._happen(Happening(now, Kind.REFUSED, reason=f"{count} dropped: {why}"))
        self._dropped.clear()
        self._looked_at = now
        self.look_at = now + SWEEP_EVERY_S if goes_on else inf
        self._chronicle.trim()

    def _flown(self, flight: FlightRow) -> None:
        self._flights.append(flight)
        if len(self._flights) >= PRESS_ROWS:
            self._chronicle.press()


class ClientRecorder(_Recorder):
    """Tells about calls, at the client."""

    def accepted(self, call: PendingCall) -> None:
        """Give a new call its id."""
        call.call_id = self._new_id()
        call.is_told = False
        self._look_soon(call.submitted_at)

    def sent(self, call: PendingCall, now: float) -> None:
        """Tell that a try has left, where that is not part of a flight."""
        if call.tries == 1:
            call.sent_at = now
        else:
            self.begun(call)
        if call.is_told:
            self._tell(call, Kind.SENT, now)

    def replied(self, call: PendingCall, size: int, now: float) -> None:
        """Tell of the reply to a call."""
        if call.is_told:
            self._tell(call, Kind.ANSWERED, now, outcome=Status.OK, size=size)
            return
        name = _name(call.service)
        sizes = len(call.body), size
        at = call.submitted_at
        self._flown((at, call.sent_at, now, call.deadline, call.call_id, name, b"", *sizes))

    def begun(self, call: PendingCall) -> None:
        """Tell what has happened to a call so far, up to its first try, if that is not told yet."""
        if call.is_told:
            return
        call.is_told = True
        size, deadline = len(call.body), call.deadline
        self._tell(call, Kind.ACCEPTED, call.submitted_at, attempt=0, size=size, value=deadline)
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
        self._happen(Happening(at, kind, call.call_id, _name(call.service), **facts))


class WorkerRecorder(_Recorder):
    """Tells about requests in the hands of a worker, under ids of the worker's own."""

    def __init__(self, chronicle: Chronicle, instance: bytes, service: str) -> None:
        super().__init__(chronicle, instance)
        self._service = _name(service)

    def delivered(self, job: Job, size: int, now: float) -> None:
        """Give a request its id."""
        job.call_id = self._new_id()
        job.delivered_at = now
        job.started_at = 0.0
        job.size = size
        job.is_told = False
        self._look_soon(now)

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
                reason = b" ".join(frames).decode(errors="replace")
                facts |= {"size": 0, "error": error_class_of(status), "reason": reason}
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

    def look(self, jobs: dict[Job, None], now: float) -> None:
        """Tell the beginnings of what has been under way since the last look."""
        for job in reversed(jobs):
            if job.delivered_at < self._looked_at:
                break  # the earlier ones were told then
            self.begun(job)
        self._looked(bool(jobs), now)

    def _tell(self, job: Job, kind: Kind, at: float, **facts: Any) -> None:
        self._happen(Happening(at, kind, job.call_id, self._service, self._origin, 1, **facts))


class DeviceRecorder(_Recorder):
    """Tells who is connected to a device, and what passes through it; of no single request."""

    def __init__(self, chronicle: Chronicle) -> None:
        super().__init__(chronicle, NO_INSTANCE)
        self._passed = (0, 0)

    def joined(self, side: str, now: float) -> None:
        """Tell of a new channel."""
        self._happen(Happening(now, Kind.WORKER_JOINED, reason=f"a channel to the {side}"))

    def lost(self, side: str, reason: str, now: float) -> None:
        """Tell of a channel that is gone."""
        text = f"a channel to the {side}: {reason}" if reason else f"a channel to the {side}"
        self._happen(Happening(now, Kind.WORKER_LOST, reason=text))

    def passed(self, now: float) -> None:
        """Tell soon that something has passed."""
        self._look_soon(now)

    def look(self, requests: int, replies: int, held: int, now: float) -> None:
        """Tell how much has passed since the last look; the counts are those of all time."""
        if (requests, replies) != self._passed:
            before = self._passed
            self._passed = requests, replies
            text = f"passed on {requests - before[0]} requests and {replies - before[1]} replies"
            self._happen(Happening(now, Kind.HEARTBEAT, reason=text, busy=held))
        self._looked(False, now)


def _name(service: str) -> bytes:
    return service.encode(errors="backslashreplace")
