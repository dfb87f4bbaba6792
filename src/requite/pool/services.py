"""Learns from a broker of MDP which groups are needed: its services are what queues are elsewhere.

Nothing has to be made: a service is there as soon as somebody names it, and what waits for it waits
at the broker, whoever comes and goes. So there is one step only, again and again: ask the broker
for the services of the pool, and have a group required

- as long as requests for it wait,
- when its workers have been given new ones,
- as long as they work on one.

Before a group is stopped, the broker is asked once more, by a question that begins then: anything
that has come until now is seen, and what comes later waits for the group that follows.

Workers need a moment to come back to a broker that was away, and a new manager knows of none. So
nothing is stopped for `broker.settle` after the connection was made, and groups whose workers turn
up in that time are required.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from requite.engine import Warn
from requite.errors import LocalViolation
from requite.pool.backoff import Pauses
from requite.pool.config import PoolConfig
from requite.pool.effects import ListServices, PoolEffect
from requite.pool.inputs import ServiceCounts, ServiceListFailed, ServicesListed
from requite.pool.queues import Actual, QueueStatus
from requite.pool.tracker import Expected, GroupStatus, PoolState


class ServiceLoop:
    """Takes the part of a `QueueLoop`, for a pool at a broker of MDP."""

    def __init__(
        self,
        config: PoolConfig,
        may_run: Callable[[str], bool],
        require: Callable[[str, float], object],
        remove: Callable[[str], object],
    ) -> None:
        self._config = config
        self._require = require
        self._remove = remove
        self._expected: Mapping[str, Expected] = {}
        self._seen: dict[str, ServiceCounts] = {}
        self._probed: dict[str, int] = {}  # the first question whose answer counts
        self._question = 0
        self._is_asking = False
        self._is_first = True  # nothing has been seen on this connection
        self._staffed: set[str] = set()  # the groups whose workers have been seen on it
        self._pauses: Pauses[str] = Pauses(config.loops.backoff_s, config.loops.backoff_max_s)
        self._connected = False
        self._connected_at = 0.0
        self._has_ended = False
        self._out: list[PoolEffect] = []
        self.is_listed = False  # whether all workers have had the time to come back

    # --- what is known ----------------------------------------------------------------------------
    def bound_since(self, _key: str) -> int | None:
        """Return None: nobody hands requests on here."""
        return None

    def take_bound(self) -> list[str]:
        """Return nothing: nobody waits for a queue here."""
        return []

    def take_ended(self) -> bool:
        """Tell whether all workers of a group that is expected have left since the last time."""
        taken, self._has_ended = self._has_ended, False
        return taken

    def snapshot(self) -> Mapping[str, QueueStatus]:
        """Return all services, by key: one that has workers counts as bound."""
        keys = self._seen.keys() | self._expected.keys()
        return {key: QueueStatus(self._status(key), self._actual(key), None) for key in keys}

    def deadline(self) -> float | None:
        """Return when the broker is to be asked again."""
        return self._pauses.deadline() if self._connected else None

    def _status(self, key: str) -> GroupStatus | None:
        expected = self._expected.get(key)
        return None if expected is None else expected.status

    def _actual(self, key: str) -> Actual:
        seen = self._seen.get(key)
        if not self._connected:
            return Actual.UNKNOWN
        if seen is None:
            return Actual.NOTHING
        return Actual.BOUND if seen.workers else Actual.UNBOUND

    # --- inputs -----------------------------------------------------------------------------------
    def expect(self, state: PoolState, _now: float) -> list[PoolEffect]:
        """Take what the tracker expects now."""
        self._expected = state.groups
        for key in [k for k in self._probed if self._status(k) is not GroupStatus.UNBOUND]:
            del self._probed[key]
        return self._taken()

    def probe(self, key: str, _now: float) -> list[PoolEffect]:
        """Find out whether anything waits for a group that is to go: then it is required again,
        else removed."""
        if self._status(key) is GroupStatus.UNBOUND:
            self._probed[key] = self._question + 1
            self._maybe_ask()
        return self._taken()

    def doubt(self, _key: str, _now: float) -> None:
        """Do nothing: there are no orphans here."""

    def connected(self, now: float) -> list[PoolEffect]:
        """Begin: nothing is known."""
        self._connected = True
        self._connected_at = now
        self._is_first = True
        self._staffed.clear()
        self._maybe_ask()
        return self._taken()

    def disconnected(self) -> None:
        """Forget what was under way, and what was seen."""
        self._connected = self._is_asking = self.is_listed = False
        self._seen.clear()
        self._probed.clear()

    def handle(self, event: Any, now: float) -> list[PoolEffect]:
        """Take an answer. Raises `LocalViolation` for what is no answer of a broker of MDP."""
        if not isinstance(event, ServicesListed | ServiceListFailed):
            raise LocalViolation(f"{event!r} says nothing about services")
        if event.ticket == self._question and self._is_asking:
            self._is_asking = False
            if isinstance(event, ServicesListed):
                self._listed(event, now)
            else:
                self._failed(event.reason, now)
        return self._taken()

    def advance(self, now: float) -> list[PoolEffect]:
        """Ask again, if it is time."""
        if self._connected and self._pauses.due(now):
            self._maybe_ask()
        return self._taken()

    # --- listings ---------------------------------------------------------------------------------
    def _maybe_ask(self) -> None:
        if self._connected and not self._is_asking:
            self._is_asking = True
            self._question += 1
            self._pauses.succeeded("")
            self._out.append(ListServices(self._question))

    def _failed(self, reason: str, now: float) -> None:
        self._pauses.failed("", now)
        text = f"the services of the pool cannot be listed (broker.url): {reason}"
        self._out.append(Warn("service-list", text))

    def _listed(self, event: ServicesListed, now: float) -> None:
        self._pauses.succeeded("")
        self._pauses.wait("", self._config.broker.interval_s, now)
        for key, seen in event.services.items():
            if self._is_needed(key, seen):
                self._require(key, now)
        for key in [k for k, first in self._probed.items() if first <= event.ticket]:
            self._decide(key, event.services.get(key))
        self._has_ended = any(
            seen.workers and not event.services.get(key, _NOTHING).workers
            for key, seen in self._seen.items()
            if key in self._expected
        )
        self._seen = dict(event.services)
        self._staffed.update(key for key, seen in self._seen.items() if seen.workers)
        self._is_first = False
        self.is_listed = now >= self._connected_at + self._config.broker.settle_s
        if any(first > event.ticket for first in self._probed.values()):
            self._maybe_ask()

    def _is_needed(self, key: str, seen: ServiceCounts) -> bool:
        """Tell whether there is something to do for a group, or was since the last look.

        A group that an operator has released may finish what it works on, and is let go then.
        """
        status = self._status(key)
        if seen.queued:
            return True
        if status is None and seen.workers and not self.is_listed and key not in self._staffed:
            return True  # another manager's, or of a time before this one's
        if self._has_grown(key, seen):
            return seen.workers > 0 or status is not None
        return seen.in_progress > 0 and status is GroupStatus.ACTIVE

    def _has_grown(self, key: str, seen: ServiceCounts) -> bool:
        """Tell whether requests have come since the last look. A count that is smaller is that of a
        broker that has started anew."""
        if self._is_first:
            return False
        before = self._seen.get(key, _NOTHING).accepted
        return seen.accepted != before and seen.accepted > 0

    def _decide(self, key: str, seen: ServiceCounts | None) -> None:
        """Let a group go that nothing waits for; one that works on something is looked at again."""
        if seen is None or not (seen.queued or seen.in_progress or self._has_grown(key, seen)):
            self._remove(key)
            self._probed.pop(key, None)

    def _taken(self) -> list[PoolEffect]:
        taken, self._out = self._out, []
        return taken


_NOTHING = ServiceCounts(0, 0, 0, 0)
