"""Makes the groups of workers that run those that the tracker expects.

Round after round: ask the driver what runs, start what is missing, stop what is not expected. A
round follows each change of what is expected, each end of something that was asked, and `interval`.
What fails is told, waits, and is looked at again; nothing ends the loop.

Nothing is stopped before the queues of the pool have been seen (`may_stop`): a manager that has
just started knows of no group, and those that run are another one's good work.

A manager that leaves stops each group once. One that runs after that was started by somebody else.
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
    """What is known of a group. `asked`: the round in which something was last asked of the driver
    for it; `busy`: that has not ended; `stops`: it was to stop. `started_at`: when it was last
    started. `failure`: why it has not run since."""

    asked: int = 0
    busy: bool = False
    stops: bool = False
    started_at: float | None = None
    failure: str = ""


@dataclass(frozen=True, slots=True)
class GroupsStatus:
    """What runs, the version that it shall have, which groups are being replaced, how many have to
    wait after failures, and why groups have failed that have not run for a while since."""

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
        self._running: dict[str, RunningGroup] | None = None  # None: nobody knows
        self._groups: dict[str, _Group] = {}
        self._replacing: set[str] = set()
        self._pauses: Pauses[str] = Pauses(config.loops.backoff_s, config.loops.backoff_max_s)
        self._rounds: Pauses[str] = Pauses(config.loops.backoff_s, config.loops.backoff_max_s)
        self._round = 0
        self._is_listing = False
        self._again = False  # something has changed since this round began
        self._is_fresh = False  # nothing has changed since what runs was listed
        self._may_stop = False
        self._active = False
        self._is_leaving = False
        self._left: set[str] = set()  # the groups that were stopped because of that
        self._out: list[PoolEffect] = []

    # --- what is known ----------------------------------------------------------------------------
    def may_run(self, key: str) -> bool:
        """Tell whether workers of a group may be running, as far as is known."""
        group = self._groups.get(key)
        return self._running is None or key in self._running or (group is not None and group.busy)

    @property
    def is_idle(self) -> bool:
        """Whether no group runs, as of after the last thing that was asked for has ended; but for
        those that were stopped and have been started again."""
        busy = any(group.busy for group in self._groups.values())
        running = self._running or {}
        ours = any(group.stopping or key not in self._left for key, group in running.items())
        return self._is_fresh and not ours and not busy

    def snapshot(self) -> GroupsStatus:
        """Return what there is."""
        running = None if self._running is None else dict(self._running)
        failures = {key: group.failure for key, group in self._groups.items() if group.failure}
        replacing = frozenset(self._replacing)
        return GroupsStatus(running, self._version, replacing, len(self._pauses), failures)

    def deadline(self) -> float | None:
        """Return when the next round begins."""
        if not self._active:
            return None
        ends = (self._pauses.deadline(), self._rounds.deadline())
        return min((end for end in ends if end is not None), default=None)

    # --- inputs -----------------------------------------------------------------------------------
    def expect(self, state: PoolState, now: float) -> list[PoolEffect]:
        """Take what the tracker expects: groups run while they are active, and while unbound."""
        expected = frozenset(state.groups)
        if expected != self._expected:
            self._expected = expected
            self._scale = {key: n for key, n in self._scale.items() if key in expected}
            self._request_listing(now)
        return self._taken()

    def activate(self, now: float) -> list[PoolEffect]:
        """Begin: this manager is the one that decides."""
        if not self._active:
            self._active = True
            self._request_listing(now)
        return self._taken()

    def deactivate(self) -> None:
        """Leave everything as it is: another manager may decide now."""
        self._active = False
        self._may_stop = False

    def allow_stops(self, now: float) -> list[PoolEffect]:
        """Learn that what is not expected is really not needed."""
        if not self._may_stop:
            self._may_stop = True
            self._request_listing(now)
        return self._taken()

    def leave(self, now: float) -> list[PoolEffect]:
        """Stop all groups, each of them once: nobody else looks after them."""
        self._is_leaving = self._active = self._may_stop = True
        self._expected = frozenset()
        self._request_listing(now)
        return self._taken()

    def set_version(self, version: str, now: float) -> list[PoolEffect]:
        """Have all groups run another version."""
        self._version = version
        self._request_listing(now)
        return self._taken()

    def scale(self, key: str, workers: int, now: float) -> list[PoolEffect]:
        """Have so many workers in a group."""
        self._scale[key] = workers
        self._request_listing(now)
        return self._taken()

    def refresh(self, now: float) -> list[PoolEffect]:
        """Begin a round now, since workers seem to have ended."""
        self._request_listing(now)
        return self._taken()

    def handle(self, event: Any, now: float) -> list[PoolEffect]:
        """Take an answer. Raises `LocalViolation` for what is no answer about groups."""
        match event:
            case GroupsListed() | GroupListFailed():
                self._listed(event, now)
            case GroupDone(key):
                self._done(key)
                self._ended(key, now)
            case GroupFailed(key, reason):
                self._failed(key, reason, now)
            case _:
                raise LocalViolation(f"{event!r} says nothing about groups")
        return self._taken()

    def advance(self, now: float) -> list[PoolEffect]:
        """Begin a round, if it is time."""
        due = [*self._rounds.due(now), *self._pauses.due(now)]
        if due and self._active:
            self._request_listing(now)
        return self._taken()

    # --- rounds -----------------------------------------------------------------------------------
    def _request_listing(self, now: float) -> None:
        """Ask what runs, or, if that is under way, ask again when it has ended."""
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
            text = f"the driver cannot say which groups run: {event.reason}"
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
        """Replace a group of another version, change one of another size."""
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
        """Start a group; one that does not stay is started after pauses only."""
        group = self._groups.setdefault(key, _Group())
        if group.busy or key in self._pauses or group.asked >= self._round:
            return
        if group.started_at is not None and key not in self._replacing:
            lived, group.started_at = self._has_lived(group.started_at, now), None
            if not lived:
                self._pauses.failed(key, now)
                group.failure = "its workers have ended by themselves"
                self._out.append(Warn("group-died", f"the group of {key!r} has ended by itself"))
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
        """Look at what has become of it, in a round that begins after it."""
        group = self._groups.get(key)
        if group is not None and group.busy:
            group.busy = False
            group.asked = self._round  # a listing that is under way may be older than this
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
        """Forget groups that are neither expected nor there."""
        running = self._running or {}
        for key in [k for k in self._groups if k not in self._expected and k not in running]:
            if not self._groups[key].busy:
                del self._groups[key]
                self._pauses.succeeded(key)

    def _taken(self) -> list[PoolEffect]:
        taken, self._out = self._out, []
        return taken
