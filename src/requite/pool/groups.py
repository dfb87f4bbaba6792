"""Control loop of worker groups: makes the running groups match the tracker's target set.

Each round lists the running groups, starts those that are missing, and stops those that are not in
the target set. A round starts after each change of that set, after each completed operation, and
every `interval`. A failed operation is logged and retried with back-off; no failure ends the loop.

No group is stopped before the queues of the pool have been listed (`may_stop`): a manager that has
just started has an empty target set, and the running groups may be serving requests.

A manager that drains stops each group once. A group that runs after that was started by another
manager.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from requite.engine import Warn
from requite.errors import LocalViolation
from requite.pool.backoff import Pauses
from requite.pool.config import PoolConfig
from requite.pool.effects import ListGroups, PoolEffect, StartGroup, StopGroup
from requite.pool.inputs import (
    GroupDone,
    GroupFailed,
    GroupListFailed,
    GroupsListed,
    RunningGroup,
)
from requite.pool.tracker import PoolState

_ROUND: Final = ""  # the name of the pause between rounds


@dataclass(slots=True)
class _Group:
    """State of a group.

    - `asked`: the round of its last completed operation.
    - `busy`: an operation is in progress; `stops`: it is a stop.
    - `started_at`: when the group was last started.
    - `failure`: why it has failed since.
    """

    asked: int = 0
    busy: bool = False
    stops: bool = False
    started_at: float | None = None
    failure: str = ""


@dataclass(frozen=True, slots=True)
class GroupsStatus:
    """The running groups (None: not listed yet), their target version, groups being replaced, how
    many are in back-off, and the failures of groups that have not recovered."""

    running: Mapping[str, RunningGroup] | None
    version: str
    replacing: frozenset[str]
    pausing: int
    failures: Mapping[str, str]


class GroupLoop:
    """The worker groups control loop."""

    def __init__(self, config: PoolConfig) -> None:
        self._config = config
        self._version = config.pool.version
        self._expected: frozenset[str] = frozenset()
        self._scale: dict[str, int] = {}
        self._running: dict[str, RunningGroup] | None = None  # None: not listed yet
        self._groups: dict[str, _Group] = {}
        self._replacing: set[str] = set()
        self._pauses: Pauses[str] = Pauses(config.loops.backoff_s, config.loops.backoff_max_s)
        self._rounds: Pauses[str] = Pauses(config.loops.backoff_s, config.loops.backoff_max_s)
        self._round = 0
        self._is_listing = False
        self._again = False  # list again after this listing
        self._is_fresh = False  # `_running` is up to date
        self._may_stop = False
        self._active = False
        self._is_leaving = False
        self._left: set[str] = set()  # groups that were stopped while leaving
        self._out: list[PoolEffect] = []

    # --- what is known ----------------------------------------------------------------------------
    def may_run(self, key: str) -> bool:
        """Whether workers of a group may be running."""
        group = self._groups.get(key)
        return self._running is None or key in self._running or (group is not None and group.busy)

    def is_stopping(self, key: str) -> bool:
        """Whether a group is being stopped, by an operation in progress or by the last listing."""
        group = self._groups.get(key)
        running = (self._running or {}).get(key)
        asked = group is not None and group.busy and group.stops
        return asked or (running is not None and running.stopping)

    @property
    def is_idle(self) -> bool:
        """Whether no operation is in progress and no group of this manager runs."""
        busy = any(group.busy for group in self._groups.values())
        running = self._running or {}
        ours = any(group.stopping or key not in self._left for key, group in running.items())
        return self._is_fresh and not ours and not busy

    def snapshot(self) -> GroupsStatus:
        """Return the current state."""
        running = None if self._running is None else dict(self._running)
        failures = {key: group.failure for key, group in self._groups.items() if group.failure}
        replacing = frozenset(self._replacing)
        return GroupsStatus(running, self._version, replacing, len(self._pauses), failures)

    def deadline(self) -> float | None:
        """Return when the next round is due, or None."""
        if not self._active:
            return None
        ends = (self._pauses.deadline(), self._rounds.deadline())
        return min((end for end in ends if end is not None), default=None)

    # --- inputs -----------------------------------------------------------------------------------
    def expect(self, state: PoolState, now: float) -> list[PoolEffect]:
        """Take the tracker's target state: active and unbound groups run."""
        expected = frozenset(state.groups)
        if expected != self._expected:
            self._expected = expected
            self._scale = {key: n for key, n in self._scale.items() if key in expected}
            self._request_listing(now)
        return self._taken()

    def activate(self, now: float) -> list[PoolEffect]:
        """Start rounds: this manager is active."""
        if not self._active:
            self._active = True
            self._request_listing(now)
        return self._taken()

    def deactivate(self) -> None:
        """Stop rounds, and leave groups as they are: another manager may be active."""
        self._active = False
        self._may_stop = False

    def allow_stops(self, now: float) -> list[PoolEffect]:
        """Allow groups that are not in the target set to be stopped."""
        if not self._may_stop:
            self._may_stop = True
            self._request_listing(now)
        return self._taken()

    def leave(self, now: float) -> list[PoolEffect]:
        """Stop all groups, each once: no other manager takes them over."""
        self._is_leaving = self._active = self._may_stop = True
        self._expected = frozenset()
        self._request_listing(now)
        return self._taken()

    def set_version(self, version: str, now: float) -> list[PoolEffect]:
        """Set the target version of all groups."""
        self._version = version
        self._request_listing(now)
        return self._taken()

    def scale(self, key: str, workers: int, now: float) -> list[PoolEffect]:
        """Set the number of workers of a group."""
        self._scale[key] = workers
        self._request_listing(now)
        return self._taken()

    def refresh(self, now: float) -> list[PoolEffect]:
        """Start a round now: workers seem to have exited."""
        self._request_listing(now)
        return self._taken()

    def handle(self, event: Any, now: float) -> list[PoolEffect]:
        """Handle the result of an operation. Raises `LocalViolation` for other inputs."""
        match event:
            case GroupsListed() | GroupListFailed():
                self._listed(event, now)
            case GroupDone(key):
                self._done(key)
                self._ended(key, now)
            case GroupFailed(key, reason):
                self._failed(key, reason, now)
            case _:
                raise LocalViolation(f"{event!r} is not an event about groups")
        return self._taken()

    def advance(self, now: float) -> list[PoolEffect]:
        """Start a round, if one is due."""
        due = [*self._rounds.due(now), *self._pauses.due(now)]
        if due and self._active:
            self._request_listing(now)
        return self._taken()

    # --- rounds -----------------------------------------------------------------------------------
    def _request_listing(self, now: float) -> None:
        """List the groups, or list again after the listing in progress."""
        if not self._active:
            return
        self._again = self._is_listing
        self._is_fresh = False
        if not self._is_listing:
            self._is_listing = True
            self._round += 1
            self._out.append(ListGroups(self._round))

    def _listed(self, event: GroupsListed | GroupListFailed, now: float) -> None:
        if event.ticket != self._round or not self._is_listing:
            return
        self._is_listing = False
        if isinstance(event, GroupListFailed):
            self._rounds.failed(_ROUND, now)
            text = f"the driver cannot list the groups: {event.reason}"
            self._out.append(Warn("group-list", text))
            return
        self._rounds.succeeded(_ROUND)
        self._rounds.wait(_ROUND, self._config.loops.interval_s, now)
        self._running = dict(event.groups)
        self._is_fresh = not self._again
        if self._active:
            self._converge(now)
        if self._again:
            self._request_listing(now)

    def _converge(self, now: float) -> None:
        running = self._running or {}
        self._replacing &= self._expected
        self._replacing -= {key for key in self._replacing if self._is_current(key)}
        for key in sorted(self._expected - running.keys()):
            self._start(key, now)
        for key in sorted(running.keys() - self._expected):
            if self._may_stop and not running[key].stopping and key not in self._left:
                self._stop(key, now)
        for key in sorted(self._expected & running.keys()):
            self._keep(key, running[key], now)
        self._tidy()

    def _keep(self, key: str, group: RunningGroup, now: float) -> None:
        """Replace a group of another version; scale one of another size."""
        known = self._groups.get(key)
        if known and known.started_at is not None and self._has_lived(known.started_at, now):
            known.started_at = None
            known.failure = ""
            self._pauses.succeeded(key)
        if group.stopping:
            return
        if group.version != self._version:
            if key in self._replacing or len(self._replacing) < self._config.loops.replace_max:
                self._replacing.add(key)
                self._stop(key, now)
        elif key in self._scale and group.workers not in (None, self._scale[key]):
            self._ask(key, StartGroup(key, self._version, self._scale[key]), now)

    def _is_current(self, key: str) -> bool:
        group = (self._running or {}).get(key)
        return group is not None and group.version == self._version

    def _has_lived(self, started_at: float, now: float) -> bool:
        return now - started_at >= self._config.loops.backoff_max_s

    def _start(self, key: str, now: float) -> None:
        """Start a group, with back-off if it keeps exiting."""
        group = self._groups.setdefault(key, _Group())
        if group.busy or key in self._pauses or group.asked >= self._round:
            return
        if group.started_at is not None and key not in self._replacing:
            lived, group.started_at = self._has_lived(group.started_at, now), None
            if not lived:
                self._pauses.failed(key, now)
                group.failure = "its workers have exited"
                self._out.append(Warn("group-died", f"the workers of group {key!r} have exited"))
                return
        group.started_at = now
        self._ask(key, StartGroup(key, self._version, self._scale.get(key)), now)

    def _stop(self, key: str, now: float) -> None:
        self._ask(key, StopGroup(key), now)

    def _ask(self, key: str, effect: PoolEffect, now: float) -> None:
        group = self._groups.setdefault(key, _Group())
        if group.busy or key in self._pauses or group.asked >= self._round:
            return
        group.stops = isinstance(effect, StopGroup)
        if group.stops:
            group.started_at = None
        group.busy = True
        self._out.append(effect)

    def _done(self, key: str) -> None:
        group = self._groups.get(key)
        if self._is_leaving and group is not None and group.busy and group.stops:
            self._left.add(key)

    def _ended(self, key: str, now: float) -> None:
        """End an operation, and start a round to see its effect."""
        group = self._groups.get(key)
        if group is not None and group.busy:
            group.busy = False
            group.asked = self._round  # a listing in progress may predate the operation
            self._request_listing(now)

    def _failed(self, key: str, reason: str, now: float) -> None:
        self._pauses.failed(key, now)
        if key in self._groups:
            self._groups[key].started_at = None
            self._groups[key].failure = reason
        text = f"could not start or stop the group of {key!r}: {reason}"
        self._out.append(Warn("group-step", text))
        self._ended(key, now)

    def _tidy(self) -> None:
        """Forget groups that are neither expected nor running."""
        running = self._running or {}
        for key in [k for k in self._groups if k not in self._expected and k not in running]:
            if not self._groups[key].busy:
                del self._groups[key]
                self._pauses.succeeded(key)

    def _taken(self) -> list[PoolEffect]:
        taken, self._out = self._out, []
        return taken
