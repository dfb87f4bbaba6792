"""What the manager of a pool writes into its chronicle (`requite.chronicle`).

It is told what its engine is fed and answers with, and writes down what that means for requests and
groups; the engine knows nothing of it. Requests have the ids of their callers; most of them never
pass a manager, and of those that do it tells no more than that they passed. So it is the callers'
journals that account for requests (`requite.spark.audit`).

    REQUIRED, RELEASED          a key: expected to have a group from now on; to be unbound
    WORKER_JOINED, _DRAINED,    a group: its driver says that it runs; that it ended when it was
    _LOST                       told to; that it ended
    REFUSED                     a group: it could not be started or stopped, and why
    QUEUED                      a request without a queue was handed to that of its group
    EXPIRED, ANSWERED           a dead letter: its caller, if it left an address, was told why
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
    """A delivery in hand. `death` is why it is a dead letter, "" for an orphan; `to` is where it
    was last published anew."""

    call_id: bytes
    key: str
    death: str = ""
    to: Destination | None = None


class PoolRecorder:
    """Tells about groups, and the requests that pass the manager."""

    def __init__(self, chronicle: Chronicle) -> None:
        self._chronicle = chronicle
        self._held: dict[Tag, _Delivery] = {}
        self._generation = 0
        self._expected: dict[str, GroupStatus] = {}
        self._running: dict[str, RunningGroup] = {}
        self._stopping: set[str] = set()  # groups that were told to end

    def record(self, event: Any, effects: Iterable[Any], tracker: Tracker, now: float) -> None:
        """Take note of an input, what the engine has answered with, and what is expected then."""
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
                self._held.clear()  # they will be delivered again
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
        """Tell which groups are expected now that were not, or otherwise."""
        state = tracker.state()
        before, self._generation = self._expected, state.generation
        self._expected = {key: group.status for key, group in state.groups.items()}
        for key, status in self._expected.items():
            if before.get(key) is not status:
                kind = Kind.REQUIRED if status is GroupStatus.ACTIVE else Kind.RELEASED
                self._write(kind, key, now)

    def _listed(self, groups: Mapping[str, RunningGroup], now: float) -> None:
        """Tell which groups run that did not, and the other way round."""
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
        """Tell what became of a delivery that is acknowledged."""
        if held.death:
            kind, status = _DEATHS[held.death]
            facts = {"outcome": status, "error": error_class_of(status), "reason": held.death}
            self._write(kind, held.key, now, call_id=held.call_id, **facts)
        elif held.to is Destination.REQUESTS:
            self._write(Kind.QUEUED, held.key, now, call_id=held.call_id)

    def _write(self, kind: Kind, key: str, now: float, **facts: Any) -> None:
        self._chronicle.event_rows.append(EventRow(now, kind, service=encode_name(key), **facts))
