"""Links with the same time limit.

Ten thousand silent connections cost one entry each and no timer: the oldest entry is always the
next one due.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from math import inf

from requite.shell.link import Link


class Waiting:
    """Links by deadline, `limit_s` after they were added, oldest first."""

    __slots__ = ("_until", "limit_s")

    def __init__(self, limit_s: float) -> None:
        self.limit_s = limit_s
        self._until: OrderedDict[Link, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._until)

    def __iter__(self) -> Iterator[Link]:
        return iter(self._until)

    def add(self, link: Link, now: float) -> float:
        """Start a link's time limit; return its deadline."""
        self._until[link] = at = now + self.limit_s
        return at

    def discard(self, link: Link) -> None:
        """Remove a link that has made progress or ended."""
        self._until.pop(link, None)

    def next_at(self) -> float:
        """Return the next deadline; `inf` if there is no link."""
        return next(iter(self._until.values())) if self._until else inf

    def take_due(self, now: float) -> list[Link]:
        """Remove and return the overdue links."""
        due = []
        for link, at in self._until.items():
            if at > now:
                break
            due.append(link)
        for link in due:
            del self._until[link]
        return due
