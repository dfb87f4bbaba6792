"""The orphan processor: holds requests without a bound queue until their key's queue is bound.

An orphan is republished, and acknowledged only after RabbitMQ has confirmed it: it may be delivered
twice, but is never lost ("osrdyne republishes orphan messages"). It waits for the generation that
the tracker returned, since a queue that is bound now may belong to an older generation and be about
to be deleted. Keys do not wait for each other. At the prefetch limit, orphans that have waited for
`orphan_hold` go to the end of the queue, so that a key whose queue cannot be declared does not
block the others. Orphans of a key without a group wait as well while the pool has as many groups as
`limits.groups` allows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Any

from requite.core.timers import Timers
from requite.engine import Warn
from requite.errors import ConfigurationError, LocalViolation
from requite.pool.backoff import Pauses
from requite.pool.config import PoolConfig
from requite.pool.effects import Ack, Destination, Forward, PoolEffect
from requite.pool.inputs import OrphanArrived, Published, PublishFailed, Tag
from requite.protocols.amqp.topology import Pool


@dataclass(slots=True, eq=False)
class _Orphan:
    """An unacknowledged request. `expires_at`: when it expires; `to`: where it is republished."""

    tag: Tag
    key: str
    arrived_at: float
    expires_at: float
    to: Destination = Destination.REQUESTS
    reason: str = ""  # the death reason, if it is dead-lettered


@dataclass(slots=True)
class _Key:
    """The waiting orphans of a key, and the generation for which they wait (None: the pool has no
    room for their group)."""

    generation: int | None
    waiting: deque[_Orphan]


@dataclass(frozen=True, slots=True)
class OrphansStatus:
    """Counts: waiting orphans by key, those being published, and the published ones by target."""

    waiting: dict[str, int]
    publishing: int
    forwarded: int
    put_back: int
    expired: int


class Orphans:
    """The orphan processor.

    `require(key, now)` requires the key's group and returns its generation, or None if the pool has
    too many groups; `bound_since(key)`
    returns the generation for which the key's queue is bound, or None; `doubt(key, now)` reports
    that a queue may not be bound; `ticket()` returns a new ticket.
    """

    def __init__(
        self,
        config: PoolConfig,
        require: Callable[[str, float], int | None],
        bound_since: Callable[[str], int | None],
        doubt: Callable[[str, float], object],
        ticket: Callable[[], int],
    ) -> None:
        self._limits = config.limits
        self._pool = Pool(config.pool.name)
        self._require = require
        self._bound_since = bound_since
        self._doubt = doubt
        self._ticket = ticket
        self._keys: dict[str, _Key] = {}
        self._waiting = 0
        self._expiries: Timers[_Orphan] = Timers()
        self._publishing: dict[int, _Orphan] = {}
        self._retries: Pauses[_Orphan] = Pauses(config.loops.backoff_s, config.loops.backoff_max_s)
        self._counts = dict.fromkeys(Destination, 0)
        self._is_leaving = False
        self._out: list[PoolEffect] = []

    # --- what is known ----------------------------------------------------------------------------
    def __len__(self) -> int:
        return self._waiting + len(self._publishing) + len(self._retries)

    def owns(self, ticket: int) -> bool:
        """Whether `ticket` is a pending publication of this engine."""
        return ticket in self._publishing

    def snapshot(self) -> OrphansStatus:
        """Return the current counts."""
        counts = self._counts
        return OrphansStatus(
            {name: len(key.waiting) for name, key in self._keys.items()},
            len(self._publishing),
            counts[Destination.REQUESTS],
            counts[Destination.ORPHANS],
            counts[Destination.DEAD_LETTERS],
        )

    def deadline(self) -> float | None:
        """Return when the next orphan expires, is retried or is put back; or None."""
        ends = (self._retries.deadline(), self._expiries.next(), self._turn_at())
        return min((end for end in ends if end is not None), default=None)

    # --- inputs -----------------------------------------------------------------------------------
    def handle(self, event: Any, now: float) -> list[PoolEffect]:
        """Handle an orphan, or the result of a publication; else raise `LocalViolation`."""
        match event:
            case OrphanArrived():
                self._arrived(event, now)
            case Published(ticket):
                self._published(ticket)
            case PublishFailed(ticket, reason):
                self._failed(ticket, reason, now)
            case _:
                raise LocalViolation(f"{event!r} is not an event about orphans")
        return self._taken()

    def advance(self, now: float) -> list[PoolEffect]:
        """Retry, expire and put back the orphans that are due."""
        for orphan in self._retries.due(now):
            self._try_again(orphan, now)
        for orphan in self._expiries.due(now):
            self._take_out(orphan, Destination.DEAD_LETTERS, "expired", now)
        turn_at = self._turn_at()
        if turn_at is not None and turn_at <= now:
            self._put_back(now)
        return self._taken()

    def renew(self, is_active: Callable[[str], bool], now: float) -> None:
        """Require the groups for which orphans wait, unless they are active.

        This runs whenever a group changes: requiring all of a thousand new groups each time would
        take seconds.
        """
        for name, key in self._keys.items():
            if key.generation is None or not is_active(name):
                key.generation = self._require(name, now)

    def release(self, name: str, now: float) -> list[PoolEffect]:
        """Republish the orphans of a key, if its queue is bound."""
        self._release(name, now)
        return self._taken()

    def drain(self) -> None:
        """Finish pending publications; leave the rest to the next manager."""
        self._is_leaving = True
        self._forget_waiting()

    def disconnected(self) -> None:
        """Forget all orphans: RabbitMQ will redeliver them."""
        self._forget_waiting()
        self._publishing.clear()

    def _forget_waiting(self) -> None:
        self._keys.clear()
        self._waiting = 0
        self._expiries = Timers()
        self._retries = self._retries.emptied()

    # --- one orphan -------------------------------------------------------------------------------
    def _arrived(self, event: OrphanArrived, now: float) -> None:
        tag, name, expires_s, _ = event
        orphan = _Orphan(tag, name, now, inf if expires_s is None else now + expires_s)
        if self._may_have_queue(name):
            self._wait(orphan, now)
            self._doubt(name, now)
            self._release(name, now)
        else:
            self._forward(orphan, Destination.DEAD_LETTERS, now, "rejected")

    def _may_have_queue(self, name: str) -> bool:
        try:
            self._pool.request_binding(name)
        except ConfigurationError as error:
            self._out.append(Warn("orphan-key", str(error)))
            return False
        return True

    def _wait(self, orphan: _Orphan, now: float) -> None:
        generation = self._require(orphan.key, now)
        key = self._keys.setdefault(orphan.key, _Key(generation, deque()))
        key.generation = generation
        key.waiting.append(orphan)
        self._waiting += 1
        if orphan.expires_at < inf:
            self._expiries.set(orphan, orphan.expires_at)

    def _is_ready(self, name: str, generation: int | None) -> bool:
        """Whether the key's queue is bound for `generation` or a later one."""
        bound = self._bound_since(name)
        return bound is not None and generation is not None and bound >= generation

    def _release(self, name: str, now: float) -> None:
        key = self._keys.get(name)
        if key is not None and self._is_ready(name, key.generation):
            del self._keys[name]
            self._waiting -= len(key.waiting)
            for orphan in key.waiting:
                self._expiries.clear(orphan)
                self._forward(orphan, Destination.REQUESTS, now)

    def _forward(self, orphan: _Orphan, to: Destination, now: float, reason: str = "") -> None:
        ticket = self._ticket()
        orphan.to, orphan.reason = to, reason
        self._publishing[ticket] = orphan
        rest_s = None if orphan.expires_at == inf or reason else max(0.0, orphan.expires_at - now)
        self._out.append(Forward(ticket, orphan.tag, to, rest_s, reason))

    def _published(self, ticket: int) -> None:
        orphan = self._publishing.pop(ticket)
        self._counts[orphan.to] += 1
        self._retries.succeeded(orphan)
        self._out.append(Ack(orphan.tag))

    def _failed(self, ticket: int, reason: str, now: float) -> None:
        orphan = self._publishing.pop(ticket)
        if not self._is_leaving:
            self._retries.failed(orphan, now)
        text = f"could not republish an orphan of {orphan.key!r}: {reason}"
        self._out.append(Warn("orphan", text))

    def _try_again(self, orphan: _Orphan, now: float) -> None:
        if orphan.reason:
            self._forward(orphan, orphan.to, now, orphan.reason)
        else:
            self._wait(orphan, now)
            self._release(orphan.key, now)

    # --- orphans that have waited too long --------------------------------------------------------
    def _turn_at(self) -> float | None:
        """Return when to put orphans back; None below the prefetch limit."""
        if len(self) < self._limits.orphans or not self._keys:
            return None
        first = min(key.waiting[0].arrived_at for key in self._keys.values())
        return first + self._limits.orphan_hold_s

    def _put_back(self, now: float) -> None:
        """Move orphans that have waited for `orphan_hold` to the end of the queue."""
        before = now - self._limits.orphan_hold_s
        waiting = [orphan for key in self._keys.values() for orphan in key.waiting]
        for orphan in waiting:
            if orphan.arrived_at <= before:
                self._expiries.clear(orphan)
                self._take_out(orphan, Destination.ORPHANS, "", now)

    def _take_out(self, orphan: _Orphan, to: Destination, reason: str, now: float) -> None:
        key = self._keys[orphan.key]
        key.waiting.remove(orphan)
        self._waiting -= 1
        if not key.waiting:
            del self._keys[orphan.key]
        self._forward(orphan, to, now, reason)

    def _taken(self) -> list[PoolEffect]:
        taken, self._out = self._out, []
        return taken
