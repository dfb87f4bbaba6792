"""The engine of a pool's manager: tracker, both control loops, orphans, dead letters and activity.

    orphan ──► Orphans ──require──► Tracker ──expected──► QueueLoop ──bound──► Orphans ──► its queue
                                       ▲    └──expected──► GroupLoop ──► driver
    report ──► ActivityFilter ─────────┘
    dead letter ──► DeadLetters ──► its caller, poison

A manager that is disconnected or on standby decides nothing: groups keep running, since their
activity cannot be observed. When it becomes active, all delays restart. A manager that drains stops
its groups if it has ever been active, unless another manager takes them over (`HandOver`).

The pool has at most `limits.groups` groups: above that, requests for other keys wait. Groups whose
queues exist are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

from requite.engine import Drain, Stopped, Wake, Warn
from requite.errors import LocalViolation
from requite.pool.activity import ActivityFilter
from requite.pool.config import PoolConfig
from requite.pool.deadletters import DeadLetters, DeadLettersStatus
from requite.pool.effects import HandOver, PoolEffect, StopConsuming
from requite.pool.groups import GroupLoop, GroupsStatus
from requite.pool.inputs import (
    ActivityArrived,
    Connected,
    DeadLetterArrived,
    Disconnected,
    DrainPool,
    GroupDone,
    GroupFailed,
    GroupListFailed,
    GroupsListed,
    HandedOver,
    OrphanArrived,
    Published,
    PublishFailed,
    QueueAbsent,
    QueueDone,
    QueueFailed,
    QueueInspected,
    QueueListFailed,
    QueuesListed,
    ReleaseGroup,
    RequireGroup,
    ScaleGroup,
    ServiceListFailed,
    ServicesListed,
    SetVersion,
)
from requite.pool.orphans import Orphans, OrphansStatus
from requite.pool.queues import QueueLoop, QueueStatus
from requite.pool.services import ServiceLoop
from requite.pool.tracker import PoolState, Tracker


@dataclass(frozen=True, slots=True)
class PoolParts:
    """The classes of the parts; simulations replace them with broken ones. A pool at a broker of
    MDP has a `ServiceLoop` in place of the `QueueLoop`."""

    tracker: type[Tracker] = Tracker
    queues: type[QueueLoop] | type[ServiceLoop] = QueueLoop
    groups: type[GroupLoop] = GroupLoop
    orphans: type[Orphans] = Orphans
    dead_letters: type[DeadLetters] = DeadLetters
    activity: type[ActivityFilter] = ActivityFilter


@dataclass(frozen=True, slots=True)
class PoolStatus:
    """Snapshot of a manager. `is_listed`: it has listed all queues of the pool since it connected;
    `unknown_reports`: activity reports with unknown events."""

    connected: bool
    draining: bool
    is_listed: bool
    state: PoolState
    queues: Mapping[str, QueueStatus]
    groups: GroupsStatus
    orphans: OrphansStatus
    dead_letters: DeadLettersStatus
    windows: int
    unknown_reports: int


@dataclass(slots=True)
class _Drain:
    """State of a drain: whether to stop groups, whether `HandedOver` is pending, and whether
    `Stopped` has been emitted."""

    stop_groups: bool
    is_handing_over: bool = False
    has_stopped: bool = False


class PoolEngine:
    """The engine of a manager: the contract of `requite.engine.Engine`, with the inputs and effects
    of pools."""

    def __init__(
        self, config: PoolConfig, now: float = 0.0, parts: PoolParts | None = None
    ) -> None:
        parts = parts or PoolParts()
        tickets = count(1)
        self.tracker = parts.tracker(config.lifetime, (), now)
        self.groups = parts.groups(config)
        require = self._admit if parts.queues.finds_requests else self._require
        self.queues = parts.queues(config, self.groups.may_run, require, self.tracker.remove)
        self.orphans = parts.orphans(
            config, self._admit, self.queues.bound_since, self.queues.doubt, tickets.__next__
        )
        self.dead_letters = parts.dead_letters(config, tickets.__next__)
        self.activity = parts.activity(config.lifetime.extra_lifetime_s)
        self._config = config
        self._connected = False
        self._was_active = False  # since this manager started
        self._drain: _Drain | None = None
        self._has_said_full = False  # since there was room for a group
        self._sent_generation = -1  # the last generation sent to the loops
        self._out: list[PoolEffect] = []
        self._inputs = self._table()

    def _table(self) -> dict[type, Callable[[Any, float], None]]:
        return {
            Connected: self._activate,
            Disconnected: self._deactivate,
            OrphanArrived: self._orphan,
            DeadLetterArrived: self._dead_letter,
            ActivityArrived: self._reported,
            Published: self._published,
            PublishFailed: self._published,
            **dict.fromkeys(
                (
                    QueuesListed,
                    QueueListFailed,
                    QueueDone,
                    QueueAbsent,
                    QueueFailed,
                    QueueInspected,
                    ServicesListed,
                    ServiceListFailed,
                ),
                self._queue_result,
            ),
            **dict.fromkeys(
                (GroupsListed, GroupListFailed, GroupDone, GroupFailed), self._group_result
            ),
            RequireGroup: self._operator_requires,
            ReleaseGroup: lambda event, now: self.tracker.release(event.key, now),
            ScaleGroup: self._scale,
            SetVersion: lambda event, now: self._add(self.groups.set_version(event.version, now)),
            Drain: lambda _, now: self._begin_drain(
                DrainPool(self._config.pool.stop_groups_on_exit), now
            ),
            DrainPool: self._begin_drain,
            HandedOver: self._handed_over,
            Wake: lambda _, now: None,
        }

    # --- the contract -----------------------------------------------------------------------------
    def handle(self, events: Sequence[Any], now: float) -> list[PoolEffect]:
        """See `requite.engine.Engine.handle`; the inputs and effects are those of a pool."""
        refused: LocalViolation | None = None
        for event in events:
            handler = self._inputs.get(type(event))
            if handler is None:
                refused = refused or LocalViolation(f"a pool does not handle the input {event!r}")
            else:
                handler(event, now)
                self._advance(now)
        if refused is not None:
            raise refused
        taken, self._out = self._out, []
        return taken

    def deadline(self) -> float | None:
        """Return when the engine needs a `Wake`, or None."""
        parts = [self.groups.deadline()]
        if self._connected:
            parts += [
                self.queues.deadline(),
                self.orphans.deadline(),
                self.dead_letters.deadline(),
            ]
            if self._drain is None:
                parts.append(self.tracker.deadline())
        return min((at for at in parts if at is not None), default=None)

    def snapshot(self) -> PoolStatus:
        """Return a snapshot of all parts."""
        return PoolStatus(
            self._connected,
            self._drain is not None,
            self.queues.is_listed,
            self.tracker.state(),
            self.queues.snapshot(),
            self.groups.snapshot(),
            self.orphans.snapshot(),
            self.dead_letters.snapshot(),
            len(self.activity),
            self.activity.unknown,
        )

    # --- after every input ------------------------------------------------------------------------
    def _advance(self, now: float) -> None:
        """Advance each part, and pass results between parts."""
        if self._connected:
            self._add(self.dead_letters.advance(now))
            self._add(self.queues.advance(now))
            self._add(self.orphans.advance(now))
        self._add(self.groups.advance(now))
        leaving = self.tracker.advance(now) if self._connected and self._drain is None else []
        self._update_loops(now)
        for key in leaving:
            self._add(self.queues.probe(key, now))
        for key in self.queues.take_bound():
            self._add(self.orphans.release(key, now))
        if self._has_room:
            self._has_said_full = False
        self._maybe_stop()

    def _update_loops(self, now: float) -> None:
        """Send the target state to the loops, if it has changed."""
        if self._sent_generation == self.tracker.generation or self._drain is not None:
            return
        self.orphans.renew(self.tracker.is_active, now)
        self._sent_generation = self.tracker.generation
        state = self.tracker.state()
        self._add(self.queues.expect(state, now))
        self._add(self.groups.expect(state, now))

    def _add(self, effects: list[PoolEffect]) -> None:
        self._out += effects

    def _require(self, key: str, now: float) -> int:
        return self.tracker.require(key, 0.0, now)

    @property
    def _has_room(self) -> bool:
        return len(self.tracker) < self._config.limits.groups

    def _admits(self, key: str) -> bool:
        """Whether the pool has the key's group, or room for it; warn once while it has not."""
        if self._has_room or self.tracker.status(key) is not None:
            return True
        if not self._has_said_full:
            self._has_said_full = True
            text = (
                f"the pool has as many groups as limits.groups allows ({len(self.tracker)}):"
                f" requests for {key!r} and other new keys wait until a group is stopped or they"
                " expire"
            )
            self._out.append(Warn("groups-max", text))
        return False

    def _admit(self, key: str, now: float) -> int | None:
        """Require a group, unless it is new and there is no room."""
        return self._require(key, now) if self._admits(key) else None

    # --- the connection ---------------------------------------------------------------------------
    def _activate(self, _: Connected, now: float) -> None:
        self._connected = self._was_active = True
        self.tracker.resume(now)
        self._add(self.queues.connected(now))
        self._add(self.groups.activate(now))

    def _deactivate(self, _: Disconnected, now: float) -> None:
        self._connected = False
        self.queues.disconnected()
        self.orphans.disconnected()
        self.dead_letters.disconnected()
        if self._drain is None:
            self.groups.deactivate()
        else:
            self._handed_over(HandedOver(taken=False), now)

    # --- deliveries -------------------------------------------------------------------------------
    def _orphan(self, event: OrphanArrived, now: float) -> None:
        if self._connected and self._drain is None:
            self._add(self.orphans.handle(event, now))

    def _dead_letter(self, event: DeadLetterArrived, now: float) -> None:
        if self._connected and self._drain is None:
            self._add(self.dead_letters.handle(event, now))

    def _reported(self, event: ActivityArrived, now: float) -> None:
        expected = self.tracker.status(event.key) is not None
        required = self.activity.reported(
            event.key,
            event.event,
            now,
            expected=expected,
            stopping=self.groups.is_stopping(event.key),
        )
        if required and self._admits(event.key):
            self.tracker.require(event.key, self.activity.window_s, now)

    def _published(self, event: Published | PublishFailed, now: float) -> None:
        if self.orphans.owns(event.ticket):
            self._add(self.orphans.handle(event, now))
        elif self.dead_letters.owns(event.ticket):
            self._add(self.dead_letters.handle(event, now))

    # --- results ----------------------------------------------------------------------------------
    def _queue_result(self, event: Any, now: float) -> None:
        if not self._connected:
            return
        self._add(self.queues.handle(event, now))
        if self.queues.is_listed:
            self._add(self.groups.allow_stops(now))
        if self.queues.take_ended():
            self._add(self.groups.refresh(now))

    def _group_result(self, event: Any, now: float) -> None:
        self._add(self.groups.handle(event, now))

    def _operator_requires(self, event: RequireGroup, now: float) -> None:
        self._admit(event.key, now)

    def _scale(self, event: ScaleGroup, now: float) -> None:
        if self._admit(event.key, now) is None:
            return
        self._update_loops(now)
        self._add(self.groups.scale(event.key, event.workers, now))

    # --- the end ----------------------------------------------------------------------------------
    def _begin_drain(self, event: DrainPool, now: float) -> None:
        if self._drain is not None:
            return
        stops = event.stop_groups and self._was_active
        drain = self._drain = _Drain(stops, stops and event.hand_over and self._connected)
        self._out.append(StopConsuming())
        self.queues.disconnected()  # they belong to the next manager
        self.orphans.drain()
        self.dead_letters.drain()
        self.groups.deactivate()
        if drain.is_handing_over:
            self._out.append(HandOver())
        elif stops:
            self._add(self.groups.leave(now))

    def _handed_over(self, event: HandedOver, now: float) -> None:
        drain = self._drain
        if drain is None or not drain.is_handing_over:
            return
        drain.is_handing_over = False
        drain.stop_groups = not event.taken
        if drain.stop_groups:
            self._add(self.groups.leave(now))

    def _maybe_stop(self) -> None:
        drain = self._drain
        if drain is None or drain.has_stopped or drain.is_handing_over:
            return
        if drain.stop_groups and not self.groups.is_idle:
            return
        if not len(self.orphans) and not len(self.dead_letters):
            drain.has_stopped = True
            self._out.append(Stopped())
