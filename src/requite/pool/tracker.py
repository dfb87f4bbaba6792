"""Which groups of workers a pool should have, and since when.

    (gone) ──required──► ACTIVE ──nothing for unbind_delay──► UNBOUND ──stop_delay──► (gone)
                            ▲─────────────required───────────────┘

An unbound group gets no more requests by the exchange, but its workers still run: what had come
before is served, and tells by its activity that the group is needed after all ("Unbind the queue
and wait before stopping workers"). Workers that take longer than both delays to start would be
stopped before they could tell anything, and their requests would wait for ever; so a group goes
only when its queue has been seen to be empty. Every change gives the pool's state a new generation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import NamedTuple

from requite.core.timers import Timers
from requite.pool.config import Lifetime


class GroupStatus(StrEnum):
    """What is expected of a group; one that is not expected has no status."""

    ACTIVE = "active"
    UNBOUND = "unbound"


class Expected(NamedTuple):
    """What is expected of one group, and the generation since which it is."""

    status: GroupStatus
    generation: int


class PoolState(NamedTuple):
    """What is expected of the whole pool."""

    generation: int
    groups: Mapping[str, Expected]


class Tracker:
    """The table of expected groups.

    `initial` are the keys whose queues there are already: they are active, as if they had just been
    required, since nobody knows better.
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
        """The number of changes so far (64 bits in the document; here it cannot overflow)."""
        return self._generation

    def status(self, key: str) -> GroupStatus | None:
        """Return what is expected of one group; None: that it is not there."""
        group = self._groups.get(key)
        return None if group is None else group.status

    def is_active(self, key: str) -> bool:
        """Whether a group is expected, and gets requests."""
        group = self._groups.get(key)
        return group is not None and group.status is GroupStatus.ACTIVE

    def state(self) -> PoolState:
        """Return what is expected of all groups."""
        return PoolState(self._generation, dict(self._groups))

    def deadline(self) -> float | None:
        """Return the next instant at which a group has not been required for too long."""
        return self._timers.next()

    # --- what changes it --------------------------------------------------------------------------
    def require(self, key: str, extra_lifetime_s: float, now: float) -> int:
        """Have a group active for `unbind_delay` and `extra_lifetime_s` from now, at least.

        Returns the generation since which it is active: whoever needs its queue waits until the
        queues have come so far. The extra time is for reports of which only some are passed on.
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
        """Have a group unbound now, if it is active."""
        if self.status(key) is GroupStatus.ACTIVE:
            self._unbind(key, now)

    def advance(self, now: float) -> list[str]:
        """Unbind the groups that have not been required for too long.

        Returns those that have been unbound for long enough: they may be removed, if nothing waits
        for them. Until then they stay as they are.
        """
        leaving = []
        for key in self._timers.due(now):
            if self._groups[key].status is GroupStatus.ACTIVE:
                self._unbind(key, now)
            else:
                leaving.append(key)
        return leaving

    def remove(self, key: str) -> None:
        """Let a group go, if it is unbound, and has been for long enough."""
        if self.status(key) is GroupStatus.UNBOUND and key not in self._timers:
            self._generation += 1
            del self._groups[key]

    def resume(self, now: float) -> None:
        """Begin all delays anew, after a time in which nobody could have required anything."""
        for key, group in self._groups.items():
            active = group.status is GroupStatus.ACTIVE
            delay_s = self._policy.unbind_delay_s if active else self._policy.stop_delay_s
            self._timers.set(key, max(now + delay_s, self._timers.at(key) or 0.0))

    def _unbind(self, key: str, now: float) -> None:
        self._generation += 1
        self._groups[key] = Expected(GroupStatus.UNBOUND, self._generation)
        self._timers.set(key, now + self._policy.stop_delay_s)
