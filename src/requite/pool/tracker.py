"""The target state of a pool: which groups it should have, and since which generation.

    (gone) ──required──► ACTIVE ──nothing for unbind_delay──► UNBOUND ──stop_delay──► (gone)
                            ▲─────────────required───────────────┘

The exchange routes no requests to an unbound group, but its workers still run: they serve the
requests in its queue, and their activity reports make the group active again ("Unbind the queue and
wait before stopping workers"). Workers that take longer than both delays to start would be stopped
before they report, and their requests would wait for ever; so a group is removed only after its
queue was found empty. Every change gives the pool's state a new generation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import NamedTuple

from requite.core.timers import Timers
from requite.pool.config import Lifetime


class GroupStatus(StrEnum):
    """Target status of a group; a group that should not exist has none."""

    ACTIVE = "active"
    UNBOUND = "unbound"


class Expected(NamedTuple):
    """Target status of a group, and the generation since which it holds."""

    status: GroupStatus
    generation: int


class PoolState(NamedTuple):
    """Target state of the whole pool."""

    generation: int
    groups: Mapping[str, Expected]


class Tracker:
    """The table of expected groups.

    `initial` are the keys of existing queues: they start as active, as if just required.
    """

    def __init__(self, policy: Lifetime, initial: Iterable[str] = (), now: float = 0.0) -> None:
        self._policy = policy
        self._groups: dict[str, Expected] = {}
        self._timers: Timers[str] = Timers()
        self._generation = 0
        for key in initial:
            self.require(key, 0.0, now)

    # --- what is known ----------------------------------------------------------------------------
    @property
    def generation(self) -> int:
        """The number of changes so far (64 bits in the specification; it cannot overflow here)."""
        return self._generation

    def __len__(self) -> int:
        return len(self._groups)

    def status(self, key: str) -> GroupStatus | None:
        """Return the target status of a group; None if it should not exist."""
        group = self._groups.get(key)
        return None if group is None else group.status

    def is_active(self, key: str) -> bool:
        """Whether a group is expected and bound."""
        group = self._groups.get(key)
        return group is not None and group.status is GroupStatus.ACTIVE

    def state(self) -> PoolState:
        """Return the target state of all groups."""
        return PoolState(self._generation, dict(self._groups))

    def deadline(self) -> float | None:
        """Return when the next delay of a group ends, or None."""
        return self._timers.next()

    # --- changes ----------------------------------------------------------------------------------
    def require(self, key: str, extra_lifetime_s: float, now: float) -> int:
        """Make a group active for at least `unbind_delay` and `extra_lifetime_s` from now.

        Returns the generation since which it is active: an orphan waits until the queue has reached
        it. The extra time makes up for filtered activity reports.
        """
        group = self._groups.get(key)
        until = now + self._policy.unbind_delay_s + extra_lifetime_s
        if group is None or group.status is GroupStatus.UNBOUND:
            self._generation += 1
            group = self._groups[key] = Expected(GroupStatus.ACTIVE, self._generation)
        else:
            until = max(until, self._timers.at(key) or until)
        self._timers.set(key, until)
        return group.generation

    def release(self, key: str, now: float) -> None:
        """Unbind a group now, if it is active."""
        if self.status(key) is GroupStatus.ACTIVE:
            self._unbind(key, now)

    def advance(self, now: float) -> list[str]:
        """Unbind the groups that were not required for `unbind_delay`.

        Returns the groups that have been unbound for `stop_delay`: call `remove` for those without
        requests.
        """
        leaving = []
        for key in self._timers.due(now):
            if self._groups[key].status is GroupStatus.ACTIVE:
                self._unbind(key, now)
            else:
                leaving.append(key)
        return leaving

    def remove(self, key: str) -> None:
        """Remove a group, if it has been unbound for `stop_delay`."""
        if self.status(key) is GroupStatus.UNBOUND and key not in self._timers:
            self._generation += 1
            del self._groups[key]

    def resume(self, now: float) -> None:
        """Restart all delays, after a time without a connection."""
        for key, group in self._groups.items():
            active = group.status is GroupStatus.ACTIVE
            delay_s = self._policy.unbind_delay_s if active else self._policy.stop_delay_s
            self._timers.set(key, max(now + delay_s, self._timers.at(key) or 0.0))

    def _unbind(self, key: str, now: float) -> None:
        self._generation += 1
        self._groups[key] = Expected(GroupStatus.UNBOUND, self._generation)
        self._timers.set(key, now + self._policy.stop_delay_s)
