"""Deadlines that nearly always are not reached.

`Timers` (`requite.core.timers`) costs 0.9 us per deadline to arm, disarm and check, where the rest
of a call costs three. A sweep stores only the earliest deadline; arming is one comparison, and
disarming is free. When that instant comes, all things are scanned, due ones are handled, and the
next instant is computed. With timeouts of seconds and replies within milliseconds, that is one scan
every few seconds. A deadline whose owner has ended costs one scan in vain.

If many deadlines pass one after the other, scans are spaced to bound their cost: `_SPACING_S` apart
per thing (1 ms with 1000 calls), of which a scan takes a tenth. A deadline may be noticed that much
later.
"""

from __future__ import annotations

from collections.abc import Collection
from math import inf
from operator import attrgetter
from typing import Final, Protocol, TypeVar

_SPACING_S: Final = 1e-6


class Due(Protocol):
    """Something with a deadline (`inf`: none), which its owner may change."""

    due_at: float


Thing = TypeVar("Thing", bound=Due)


class Sweep:
    """The next scan of a table of `Due` things, at the instant `at` (`inf`: never)."""

    __slots__ = ("at",)

    def __init__(self) -> None:
        self.at = inf

    def arm(self, at: float) -> None:
        """Scan at `at` at the latest. A hot path may inline this: `sweep.at = at`."""
        if at < self.at:
            self.at = at

    def due(self, things: Collection[Thing], now: float) -> list[Thing]:
        """Return the due things, earliest first, and set `at` to the next scan.

        The caller must handle each: change its `due_at` (and `arm` it), or remove it.
        """
        due = [thing for thing in things if thing.due_at <= now]
        due.sort(key=attrgetter("due_at"))
        later = min((thing.due_at for thing in things if thing.due_at > now), default=inf)
        self.at = max(later, now + len(things) * _SPACING_S) if due else later
        return due
