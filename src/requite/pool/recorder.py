"""Writes the events of a pool's manager into its chronicle (`requite.chronicle`).

The recorder receives the inputs and effects of the engine; the engine does not know of it. Events
of requests have the callers' call ids. Most requests never pass a manager, so the journals of
callers account for requests (`requite.spark.audit`).

    REQUIRED, RELEASED          a key: its group became active; unbound
    WORKER_JOINED, _DRAINED,    a group: listed as running; stopped by the manager; exited
    _LOST
    REFUSED                     a group: it could not be started or stopped, with the reason
    QUEUED                      an orphan was republished to the queue of its group
    EXPIRED, ANSWERED           a dead letter: answered, if it has a reply address

`history` has what started, stopped and ended groups lately, with the reasons; for the page of the
manager (`requite.page.pool`), also without a journal.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, NamedTuple

from requite.chronicle import Chronicle, EventRow, Kind
from requite.core.recording import encode_name
from requite.engine import Drain
from requite.pool.deadletters import reason_of
from requite.pool.effects import Ack, Destination, Forward, StartGroup, StopGroup
from requite.pool.inputs import (
    ActivityArrived,
    DeadLetterArrived,
    Disconnected,
    DrainPool,
    GroupFailed,
    GroupsListed,
    OrphanArrived,
    QueuesListed,
    ReleaseGroup,
    RequireGroup,
    RunningGroup,
    ScaleGroup,
    ServicesListed,
    Tag,
)
from requite.pool.tracker import GroupStatus, Tracker
from requite.protocols.amqp.wire import ReplyStatus
from requite.request import Status, error_class_of

HISTORY_MAX: Final = 100
"""Events of groups that `PoolRecorder.history` has."""

_DEATHS: Final[Mapping[str, tuple[Kind, Status]]] = {
    ReplyStatus.EXPIRED: (Kind.EXPIRED, Status.EXPIRED),
    ReplyStatus.REJECTED: (Kind.ANSWERED, Status.FAILED),
    ReplyStatus.MAXLEN: (Kind.ANSWERED, Status.OVERLOADED),
    ReplyStatus.DELIVERY_LIMIT: (Kind.ANSWERED, Status.POISONED),
}


_REQUIRED_BY: Final[Mapping[type, str]] = {
    OrphanArrived: "a request for it arrived",
    ServicesListed: "the broker has requests for it",
    QueuesListed: "its queue exists",
    ActivityArrived: "a worker reported activity",
    RequireGroup: "an operator required it",
    ScaleGroup: "an operator scaled it",
}
_IS_NEEDED: Final = "it is needed"
_EXITED: Final = "its workers have exited"
_EXITED_UNASKED: Final = "its workers have exited without an order"
_REPLACED: Final = "it is replaced"
_FAILED: Final = "the last order to the driver failed"


class GroupStep(StrEnum):
    """What happened to a group. STARTING and STOPPING are orders to the driver; RUNNING, STOPPED
    and LOST (it ended without an order) were seen in its list; FAILED is an order that failed."""

    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    STOPPED = "stopped"
    LOST = "lost"
    FAILED = "failed"


class GroupEvent(NamedTuple):
    """Something that happened to a group, at an instant of the engine's clock, and why."""

    at: float
    key: str
    step: GroupStep
    reason: str


@dataclass(slots=True)
class _Delivery:
    """An unacknowledged delivery. `death` is the reason of a dead letter ("": an orphan); `to` is
    where it was last republished."""

    call_id: bytes
    key: str
    death: str = ""
    to: Destination | None = None


class PoolRecorder:
    """Records groups, and the requests that pass the manager. Without a chronicle, it records only
    the history of groups."""

    def __init__(self, chronicle: Chronicle | None) -> None:
        self._chronicle = chronicle
        self._held: dict[Tag, _Delivery] = {}
        self._generation = 0
        self._expected: dict[str, GroupStatus] = {}
        self._running: dict[str, RunningGroup] = {}
        self._stopping: dict[str, str] = {}  # groups that the manager has stopped, and why
        self._start_reasons: dict[str, str] = {}  # why a group is started next
        self._started_at: dict[str, float] = {}  # when a group was last started
        self._stop_reasons: dict[str, str] = {}  # why a group was released
        self._is_leaving = False
        self.history: Final[deque[GroupEvent]] = deque(maxlen=HISTORY_MAX)
        """The latest events of groups, the oldest first."""

    def record(self, event: Any, effects: Iterable[Any], tracker: Tracker, now: float) -> None:
        """Record an input, the engine's effects, and the change of the target state."""
        self._take(event, now)
        if tracker.generation != self._generation:
            self._compare(event, tracker, now)
        for effect in effects:
            self._follow(effect, tracker, now)
        if self._chronicle is not None:
            self._chronicle.trim()

    def _take(self, event: Any, now: float) -> None:
        match event:
            case OrphanArrived():
                self._held[event.tag] = _Delivery(event.call_id, event.key)
            case DeadLetterArrived():
                death = reason_of(event.headers)
                self._held[event.tag] = _Delivery(event.call_id, event.key, death)
            case Disconnected():
                self._held.clear()  # RabbitMQ will redeliver them
            case GroupsListed():
                self._listed(event.groups, now)
            case GroupFailed(key, reason):
                self._write(Kind.REFUSED, key, now, reason=reason)
                self._note(now, key, GroupStep.FAILED, reason)
                self._start_reasons[key] = _FAILED
            case Drain() | DrainPool():
                self._is_leaving = True

    def _follow(self, effect: Any, tracker: Tracker, now: float) -> None:
        match effect:
            case StartGroup(key, _, workers):
                self._note(now, key, GroupStep.STARTING, self._why_started(key, workers, now))
                self._start_reasons[key], self._started_at[key] = _EXITED, now
            case StopGroup(key):
                why = self._stopping[key] = self._why_stopped(key, tracker)
                self._note(now, key, GroupStep.STOPPING, why)
            case Forward(_, tag, to) if tag in self._held:
                self._held[tag].to = to
            case Ack(tag) if tag in self._held:
                self._ended(self._held.pop(tag), now)

    # --- groups -----------------------------------------------------------------------------------
    def _compare(self, event: Any, tracker: Tracker, now: float) -> None:
        """Record groups whose target status has changed."""
        state = tracker.state()
        before, self._generation = self._expected, state.generation
        self._expected = {key: group.status for key, group in state.groups.items()}
        for key, status in self._expected.items():
            if before.get(key) is status:
                continue
            if status is GroupStatus.ACTIVE:
                why = self._start_reasons[key] = _REQUIRED_BY.get(type(event), _IS_NEEDED)
                self._write(Kind.REQUIRED, key, now, reason=why)
            else:
                is_told = isinstance(event, ReleaseGroup) and event.key == key
                why = "an operator released it" if is_told else "no request needed it for a while"
                self._stop_reasons[key] = why
                self._write(Kind.RELEASED, key, now, reason=why)
        self._forget_reasons()

    def _listed(self, groups: Mapping[str, RunningGroup], now: float) -> None:
        """Record groups that have started or ended since the last listing."""
        for key in groups.keys() - self._running.keys():
            counted = _counted(groups[key].workers)
            self._write(Kind.WORKER_JOINED, key, now, reason=counted)
            self._note(now, key, GroupStep.RUNNING, counted)
        for key in self._running.keys() - groups.keys():
            why = self._stopping.pop(key, None)
            if why is None:
                self._write(Kind.WORKER_LOST, key, now, reason=_EXITED_UNASKED)
                self._note(now, key, GroupStep.LOST, _EXITED_UNASKED)
                self._start_reasons[key] = _EXITED
            else:
                self._write(Kind.WORKER_DRAINED, key, now, reason=why)
                self._note(now, key, GroupStep.STOPPED, why)
        self._running = dict(groups)

    def _why_started(self, key: str, workers: int | None, now: float) -> str:
        running = self._running.get(key)
        if running is not None and workers is not None:
            return f"it has {_counted(running.workers)}, and should have {workers}"
        why = self._start_reasons.get(key, _IS_NEEDED)
        before = self._started_at.get(key)
        if before is None or why not in (_EXITED, _FAILED):
            return why
        return f"{why}; it was started {now - before:.1f} s before"  # the pause shows the back-off

    def _why_stopped(self, key: str, tracker: Tracker) -> str:
        if self._is_leaving:
            return "the manager exits, and no other one takes over"
        if tracker.status(key) is None:
            return self._stop_reasons.get(key, "no request needs it")
        running = self._running.get(key)
        self._start_reasons[key] = _REPLACED
        return _REPLACED if running is None else f"{_REPLACED}: it runs version {running.version}"

    def _forget_reasons(self) -> None:
        """Forget the reasons of groups that neither should exist nor run."""
        known = self._expected.keys() | self._running.keys()
        for each in (self._start_reasons, self._started_at, self._stop_reasons):
            for key in each.keys() - known:
                del each[key]

    def _note(self, now: float, key: str, step: GroupStep, reason: str) -> None:
        self.history.append(GroupEvent(now, key, step, reason))

    # --- requests ---------------------------------------------------------------------------------
    def _ended(self, held: _Delivery, now: float) -> None:
        """Record the outcome of an acknowledged delivery."""
        if held.death:
            kind, status = _DEATHS[held.death]
            facts = {"outcome": status, "error": error_class_of(status), "reason": held.death}
            self._write(kind, held.key, now, call_id=held.call_id, **facts)
        elif held.to is Destination.REQUESTS:
            self._write(Kind.QUEUED, held.key, now, call_id=held.call_id)

    def _write(self, kind: Kind, key: str, now: float, **facts: Any) -> None:
        if self._chronicle is None:
            return
        self._chronicle.event_rows.append(EventRow(now, kind, service=encode_name(key), **facts))


def _counted(workers: int | None) -> str:
    """Return a number of workers in words; "" if the driver does not count them."""
    return "" if workers is None else f"{workers} worker{'s' * (workers != 1)}"
