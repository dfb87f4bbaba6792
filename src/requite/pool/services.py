"""Requires groups by the services of a broker of MDP, which take the place of request queues.

A service needs no declaration: it exists once a client or worker names it, and its requests wait at
the broker. So the loop has one step: it polls the broker for the services of the pool, and requires
a group

- while requests for it wait,
- when its workers have received new requests,
- while they work on a request.

Before a group is stopped, the loop polls the broker once more: that listing includes every request
accepted so far, and later requests wait for the next group.

Workers need time to reconnect to a broker, and a new manager knows no groups. So no group is
stopped for `broker.settle` after the connection, and groups whose workers appear in that time are
required. These come before groups without workers, for which there may be no room.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from requite.engine import Warn
from requite.errors import LocalViolation
from requite.pool.backoff import Pauses
from requite.pool.config import PoolConfig
from requite.pool.effects import ListServices, PoolEffect
from requite.pool.inputs import ServiceCounts, ServiceListFailed, ServicesListed
from requite.pool.queues import Actual, QueueStatus
from requite.pool.tracker import Expected, GroupStatus, PoolState


class ServiceLoop:
    """Replaces the `QueueLoop` for a pool at a broker of MDP."""

    finds_requests: ClassVar = True
    """Whether the loop requires groups for new requests."""

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
        self._probed: dict[str, int] = {}  # the first listing that decides
        self._question = 0
        self._is_asking = False
        self._is_first = True  # no listing yet on this connection
        self._staffed: set[str] = set()  # groups that have had workers on this connection
        self._pauses: Pauses[str] = Pauses(config.loops.backoff_s, config.loops.backoff_max_s)
        self._connected = False
        self._connected_at = 0.0
        self._has_ended = False
        self._out: list[PoolEffect] = []
        self.is_listed = False  # whether workers have had the time to reconnect

    # --- what is known ----------------------------------------------------------------------------
    def bound_since(self, _key: str) -> int | None:
        """Return None: there are no bindings."""
        return None

    def take_bound(self) -> list[str]:
        """Return no keys: there are no orphans."""
        return []

    def take_ended(self) -> bool:
        """Whether an expected group has lost its last worker since the last call."""
        taken, self._has_ended = self._has_ended, False
        return taken

    def snapshot(self) -> Mapping[str, QueueStatus]:
        """Return all services, by key; one with workers counts as bound."""
        keys = self._seen.keys() | self._expected.keys()
        return {key: QueueStatus(self._status(key), self._actual(key), None) for key in keys}

    def deadline(self) -> float | None:
        """Return when the next poll is due, or None."""
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
        """Take the tracker's target state."""
        self._expected = state.groups
        for key in [k for k in self._probed if self._status(k) is not GroupStatus.UNBOUND]:
            del self._probed[key]
        return self._taken()

    def probe(self, key: str, _now: float) -> list[PoolEffect]:
        """Poll for requests of an unbound group: require it again if it has any, else remove it."""
        if self._status(key) is GroupStatus.UNBOUND:
            self._probed[key] = self._question + 1
            self._maybe_ask()
        return self._taken()

    def doubt(self, _key: str, _now: float) -> None:
        """Do nothing: there are no orphans."""

    def connected(self, now: float) -> list[PoolEffect]:
        """Start on a new connection, with no known services."""
        self._connected = True
        self._connected_at = now
        self._is_first = True
        self._staffed.clear()
        self._maybe_ask()
        return self._taken()

    def disconnected(self) -> None:
        """Forget the pending poll, and all services."""
        self._connected = self._is_asking = self.is_listed = False
        self._seen.clear()
        self._probed.clear()

    def handle(self, event: Any, now: float) -> list[PoolEffect]:
        """Handle the result of a poll. Raises `LocalViolation` for other inputs."""
        if not isinstance(event, ServicesListed | ServiceListFailed):
            raise LocalViolation(f"{event!r} is not an event about services")
        if event.ticket == self._question and self._is_asking:
            self._is_asking = False
            if isinstance(event, ServicesListed):
                self._listed(event, now)
            else:
                self._failed(event.reason, now)
        return self._taken()

    def advance(self, now: float) -> list[PoolEffect]:
        """Poll the broker, if it is due."""
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
        for key, seen in sorted(event.services.items(), key=lambda each: not each[1].workers):
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
        """Whether a group has requests, or has had some since the last listing.

        A group that an operator has released finishes its requests, and is then removed.
        """
        status = self._status(key)
        if seen.queued:
            return True
        if status is None and seen.workers and not self.is_listed and key not in self._staffed:
            return True  # started by another manager, or before this one
        if self._has_grown(key, seen):
            return seen.workers > 0 or status is not None
        return seen.in_progress > 0 and status is GroupStatus.ACTIVE

    def _has_grown(self, key: str, seen: ServiceCounts) -> bool:
        """Whether requests were accepted since the last listing. A smaller count means that the
        broker has restarted."""
        if self._is_first:
            return False
        before = self._seen.get(key, _NOTHING).accepted
        return seen.accepted != before and seen.accepted > 0

    def _decide(self, key: str, seen: ServiceCounts | None) -> None:
        """Remove a group without requests; a busy one is checked at the next listing."""
        if seen is None or not (seen.queued or seen.in_progress or self._has_grown(key, seen)):
            self._remove(key)
            self._probed.pop(key, None)

    def _taken(self) -> list[PoolEffect]:
        taken, self._out = self._out, []
        return taken


_NOTHING = ServiceCounts(0, 0, 0, 0)
