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
from requite.protocols.scalability.calls import PendingCall
from requite.request import Status

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

    def dropped(self, why: str, now: float) -> None:
        """Tell, at the next look, of a message that was thrown away."""
        self._dropped[why] += 1
        self._look_soon(now)

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


def _name(service: str) -> bytes:
    return service.encode(errors="backslashreplace")
