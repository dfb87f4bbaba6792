"""The streaming audit's state of one request, judged by the rules of the audit.

It contains the events of the request so far, from clients and brokers, and judges them by the rules
of `requite.story.rules`. Plain Python, without Spark or a clock: instants are arguments, in
microseconds since 1970.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final, NamedTuple

from requite.story.rules import (
    FAULT_ACCEPTED,
    FAULT_ENDED,
    FAULT_OPEN,
    FAULT_TWICE,
    GRACE_S,
    LONGEST_DEADLINE_S,
    due_at,
    fault_of,
    is_late,
    last_acceptance,
    own_of,
)
from requite.story.vocabulary import ACCEPTED, DISPATCHED, OUTCOMES

KINDS: Final = (ACCEPTED, DISPATCHED, *OUTCOMES)
"""The kinds of events in a `WatchedRequest`; only those of brokers and clients count."""

_EVENTS_MAX: Final = 200
_SHOWN_MAX: Final = 20


class WatchedEvent(NamedTuple):
    """The relevant columns of an event; `ts` and `deadline` in microseconds since 1970."""

    ts: int
    log: str
    seq: int
    kind: str
    role: str
    attempt: int | None = None
    outcome: str | None = None
    worker: str | None = None
    reason: str | None = None
    deadline: int | None = None


class Alert(StrEnum):
    """Kind of alert: the column `kind`."""

    MISSED_DEADLINE = "MISSED_DEADLINE"  # its outcome is overdue
    ENDED_LATE = "ENDED_LATE"  # it had ended in time, but was read late: revokes MISSED_DEADLINE
    LATE = "LATE"  # it ended after its deadline and the grace period
    DUPLICATE_OUTCOME = "DUPLICATE_OUTCOME"
    ORPHAN = "ORPHAN"  # dispatched or ended without an acceptance
    ACCEPTED_TWICE = "ACCEPTED_TWICE"


class State(StrEnum):
    """State of a request without an alert so far."""

    OPEN = "OPEN"
    ENDED = "ENDED"


@dataclass(frozen=True, slots=True)
class Patience:
    """Waiting times, in seconds.

    An alert is raised `grace_s` after the deadline at the earliest, and `settle_s` after the
    request's last event, since other logs may be read later. `longest_deadline_s` is the limit for
    a request without a deadline. An ended request is remembered for `remember_s`: a second outcome
    within it is a duplicate, a later one an orphan. With 0, a request that begins and ends in one
    batch costs about half, and is not remembered.
    """

    grace_s: float = GRACE_S
    settle_s: float = 1.0
    longest_deadline_s: float = LONGEST_DEADLINE_S
    remember_s: float = 30.0


@dataclass(slots=True)
class WatchedRequest:
    """A request under watch.

    `wake_at` is the instant of its next check, in milliseconds; `raised` are the alerts so far.
    """

    service: str | None = None
    events: list[WatchedEvent] = field(default_factory=list)
    raised: list[str] = field(default_factory=list)
    wake_at: int = 0

    @classmethod
    def parse(cls, text: str) -> WatchedRequest:
        """Parse the result of `text()`."""
        service, events, raised, wake_at = json.loads(text)
        return cls(service, [WatchedEvent(*event) for event in events], raised, wake_at)

    def text(self) -> str:
        """Return the state as text, for the state store."""
        return json.dumps([self.service, self.events, self.raised, self.wake_at])

    def add(self, event: WatchedEvent, service: str | None) -> None:
        """Add an event; beyond `_EVENTS_MAX`, the oldest ones are dropped."""
        self.events.append(event)
        self.events.sort(key=lambda event: (event.ts, event.log, event.seq))
        del self.events[:-_EVENTS_MAX]
        self.service = service or self.service

    # --- judgement --------------------------------------------------------------------------------
    def judge(self, patience: Patience = Patience()) -> Alert | State:
        """Return the verdict by the events, independent of time: `State.OPEN` may be overdue."""
        own = own_of(self.events)
        last = last_acceptance(own)
        if last is None:
            return Alert.ORPHAN
        fault = fault_of(own, last)
        if fault == FAULT_ENDED and is_late(own, last, _us(patience.grace_s)):
            return Alert.LATE
        return _MEANING[fault]

    def deadline(self, patience: Patience) -> int | None:
        """Return the instant by which the request must end; None if it was never accepted."""
        own = own_of(self.events)
        last = last_acceptance(own)
        if last is None:
            return None
        due: int = due_at(own, last, _us(patience.longest_deadline_s))
        return due

    # --- time -------------------------------------------------------------------------------------
    def update(self, now: int, patience: Patience) -> None:
        """Set the next check after new events; `now` is in microseconds.

        As after `check`, a request without a next check (`wake_at` is 0) is closed.
        """
        finding = self._finding(patience)
        if finding is None or finding in self.raised:
            self._remember(now, patience)
        elif finding is Alert.MISSED_DEADLINE:
            self._wake(max(now + _us(patience.settle_s), self._overdue_at(patience)))
        else:
            self._wake(now + _us(patience.settle_s))

    def check(self, now: int, patience: Patience) -> Alert | None:
        """Return the alert to raise, once per kind, and set the next check.

        Without a next check (`wake_at` is 0) the request is closed; the caller deletes its state.
        """
        finding = self._finding(patience)
        if finding is None or finding in self.raised:
            self.wake_at = 0
            return None
        if finding is Alert.MISSED_DEADLINE and now < self._overdue_at(patience):
            self._wake(self._overdue_at(patience))
            return None
        self.raised.append(finding)
        self._remember(now, patience)
        return finding

    def _finding(self, patience: Patience) -> Alert | None:
        """Return the alert to raise unless further events arrive."""
        match self.judge(patience):
            case State.OPEN:
                return Alert.MISSED_DEADLINE
            case State.ENDED:
                return Alert.ENDED_LATE if Alert.MISSED_DEADLINE in self.raised else None
            case Alert() as found:
                return found

    def _overdue_at(self, patience: Patience) -> int:
        due = self.deadline(patience)
        assert due is not None, "an open request has been accepted"
        return due + _us(patience.grace_s)

    def _remember(self, now: int, patience: Patience) -> None:
        """Keep the request for `remember_s`, or close it."""
        if patience.remember_s > 0:
            self._wake(now + _us(patience.remember_s))
        else:
            self.wake_at = 0

    def _wake(self, at: int) -> None:
        self.wake_at = -(-at // 1000)

    # --- evidence ---------------------------------------------------------------------------------
    def evidence(self) -> str:
        """Return the newest events as JSON, in the form of the audit's evidence."""
        return json.dumps([_shown(event) for event in self.events[-_SHOWN_MAX:]])


_MEANING: Final[dict[int, Alert | State]] = {
    FAULT_ENDED: State.ENDED,
    FAULT_OPEN: State.OPEN,
    FAULT_TWICE: Alert.DUPLICATE_OUTCOME,
    FAULT_ACCEPTED: Alert.ACCEPTED_TWICE,
}


def _us(seconds: float) -> int:
    return round(seconds * 1e6)


def instant(us: int) -> datetime:
    """Return microseconds since 1970 as an instant, in UTC."""
    return datetime.fromtimestamp(us // 1_000_000, UTC).replace(microsecond=us % 1_000_000)


def _shown(event: WatchedEvent) -> dict[str, Any]:
    shown = {
        "ts": f"{instant(event.ts):%Y-%m-%dT%H:%M:%S.%fZ}",
        "log": event.log,
        "seq": event.seq,
        "kind": event.kind,
        "attempt": event.attempt,
        "outcome": event.outcome,
        "worker": event.worker,
        "reason": event.reason,
    }
    return {name: value for name, value in shown.items() if value is not None}
