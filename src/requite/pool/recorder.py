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
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from requite.chronicle import Chronicle, EventRow, Kind
from requite.core.recording import encode_name
from requite.pool.deadletters import reason_of
from requite.pool.effects import Ack, Destination, Forward, StopGroup
from requite.pool.inputs import (
    DeadLetterArrived,
    Disconnected,
    GroupFailed,
    GroupsListed,
    OrphanArrived,
    RunningGroup,
    Tag,
)
from requite.pool.tracker import GroupStatus, Tracker
from requite.protocols.amqp.wire import ReplyStatus
from requite.request import Status, error_class_of

_DEATHS: Final[Mapping[str, tuple[Kind, Status]]] = {
    ReplyStatus.EXPIRED: (Kind.EXPIRED, Status.EXPIRED),
    ReplyStatus.REJECTED: (Kind.ANSWERED, Status.FAILED),
    ReplyStatus.MAXLEN: (Kind.ANSWERED, Status.OVERLOADED),
    ReplyStatus.DELIVERY_LIMIT: (Kind.ANSWERED, Status.POISONED),
}


@dataclass(slots=True)
class _Delivery:
    """An unacknowledged delivery. `death` is the reason of a dead letter ("": an orphan); `to` is
    where it was last republished."""

    call_id: bytes
    key: str
    death: str = ""
    to: Destination | None = None


class PoolRecorder:
    """Records groups, and the requests that pass the manager."""

    def __init__(self, chronicle: Chronicle) -> None:
        self._chronicle = chronicle
        self._held: dict[Tag, _Delivery] = {}
        self._generation = 0
        self._expected: dict[str, GroupStatus] = {}
        self._running: dict[str, RunningGroup] = {}
        self._stopping: set[str] = set()  # groups that the manager has stopped

    def record(self, event: Any, effects: Iterable[Any], tracker: Tracker, now: float) -> None:
        """Record an input, the engine's effects, and the change of the target state."""
        self._take(event, now)
        if tracker.generation != self._generation:
            self._compare(tracker, now)
        for effect in effects:
            self._follow(effect, now)
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

    def _follow(self, effect: Any, now: float) -> None:
        match effect:
            case StopGroup(key):
                self._stopping.add(key)
            case Forward(_, tag, to) if tag in self._held:
                self._held[tag].to = to
            case Ack(tag) if tag in self._held:
                self._ended(self._held.pop(tag), now)

    # --- groups -----------------------------------------------------------------------------------
    def _compare(self, tracker: Tracker, now: float) -> None:
        """Record groups whose target status has changed."""
        state = tracker.state()
        before, self._generation = self._expected, state.generation
        self._expected = {key: group.status for key, group in state.groups.items()}
        for key, status in self._expected.items():
            if before.get(key) is not status:
                kind = Kind.REQUIRED if status is GroupStatus.ACTIVE else Kind.RELEASED
                self._write(kind, key, now)

    def _listed(self, groups: Mapping[str, RunningGroup], now: float) -> None:
        """Record groups that have started or ended since the last listing."""
        for key in groups.keys() - self._running.keys():
            workers = groups[key].workers
            counted = "" if workers is None else f"{workers} worker{'s' * (workers != 1)}"
            self._write(Kind.WORKER_JOINED, key, now, reason=counted)
        for key in self._running.keys() - groups.keys():
            expected = key in self._stopping
            self._write(Kind.WORKER_DRAINED if expected else Kind.WORKER_LOST, key, now)
            self._stopping.discard(key)
        self._running = dict(groups)

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
        self._chronicle.event_rows.append(EventRow(now, kind, service=encode_name(key), **facts))
