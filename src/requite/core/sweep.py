"""Deadlines of things that nearly always end well before them.

`Timers` (`requite.core.timers`) pays for every deadline, kept or not: 0.9 us to arm, disarm and
look, where the rest of a call costs three. Here only the earliest instant is known, as one number;
arming is one comparison and disarming is nothing. When that instant comes, all things are looked
through, whoever is due is handled, and the next instant is found. With a timeout of seconds and
replies within milliseconds that is one look every few seconds. An instant whose owner has ended
since costs one look in vain.

Where many deadlines do pass, one after the other, looks are spaced so that they cannot eat the
processor: `_SPACING_S` apart per thing looked at (1 ms with 1000 calls), a tenth of which a look
takes. A deadline may be noticed late by that much.
"""

from __future__ import annotations

from collections.abc import Collection
from math import inf
from operator import attrgetter
from typing import Final, Protocol, TypeVar

_SPACING_S: Final = 1e-6


class Due(Protocol):
    """Something with a deadline (`inf`: none), which its owner may move."""

    due_at: float


Thing = TypeVar("Thing", bound=Due)


class Sweep:
    """When to look through a table of `Due` things next; `at` is that instant (`inf`: never)."""

    __slots__ = ("at",)

    def __init__(self) -> None:
        self.at = inf

    def arm(self, at: float) -> None:
        """Note that some thing is due at `at`. A hot path may do this in place: `sweep.at = at`."""
        if at < self.at:
            self.at = at

    def due(self, things: Collection[Thing], now: float) -> list[Thing]:
        """Return what is due, earliest first, and find out when to look again.

        The caller must handle each: move its `due_at` (and `arm` it), or take it off the table.
        """
        due = [thing for thing in things if thing.due_at <= now]
        due.sort(key=attrgetter("due_at"))
        later = min((thing.due_at for thing in things if thing.due_at > now), default=inf)
        self.at = max(later, now + len(things) * _SPACING_S) if due else later
        return due
