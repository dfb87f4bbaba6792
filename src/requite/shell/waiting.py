"""Links that must get on within a time that is the same for all of them.

Ten thousand connections that say nothing cost one entry each, and no timer: the oldest entry is
the next one due, so its instant stands for all.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from math import inf

from requite.shell.link import Link


class Waiting:
    """Links by the instant at which their `limit_s` is over, oldest first."""

    __slots__ = ("_until", "limit_s")

    def __init__(self, limit_s: float) -> None:
        self.limit_s = limit_s
        self._until: OrderedDict[Link, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._until)

    def __iter__(self) -> Iterator[Link]:
        return iter(self._until)

    def add(self, link: Link, now: float) -> float:
        """Let the time of a link begin; return when it ends."""
        self._until[link] = at = now + self.limit_s
        return at

    def discard(self, link: Link) -> None:
        """Note that a link got on, or is gone."""
        self._until.pop(link, None)

    def next_at(self) -> float:
        """Return when the next link is due; `inf` if none waits."""
        return next(iter(self._until.values())) if self._until else inf

    def take_due(self, now: float) -> list[Link]:
        """Remove and return the links whose time is over."""
        due = []
        for link, at in self._until.items():
            if at > now:
                break
            due.append(link)
        for link in due:
            del self._until[link]
        return due
