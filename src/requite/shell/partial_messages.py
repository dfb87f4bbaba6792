"""Incomplete messages of accepted connections: their bytes in all, and a time limit for each.

Every connection has a limit for one message, so a crowd of peers that never complete theirs could
hold that limit each. All together may hold `size_max` bytes: beyond it, the host drops the link
with the largest one. That is never an honest small message, whatever others send. The messages of
one owner together may hold the bytes of its quota.

A message that gets no further byte for `limit_s` ends its link. A minimum rate would be stricter,
but would end honest uploads over slow links, and the bytes in all bound a peer that trickles.
"""

from __future__ import annotations

from collections import Counter

from requite.principal import Principal
from requite.shell.link import Link, LinkLimits
from requite.shell.waiting import Waiting

# The host acts so late only after a pause of this process: the missing bytes may be unread.
_LATE_S = 1.0


class PartialMessages:
    """Tracks links with an incomplete message; `Link.partial_size` is its received part."""

    __slots__ = ("_by_owner", "_size", "_size_max", "_stalled")

    def __init__(self, limits: LinkLimits) -> None:
        self._size_max = limits.partial_size_max
        self._size = 0
        self._by_owner: Counter[Principal] = Counter()
        self._stalled = Waiting(limits.partial_timeout_s)

    def __len__(self) -> int:
        return len(self._stalled)

    def update(self, link: Link, size: int, now: float) -> float:
        """Record the size of a link's incomplete message, not 0, after bytes have arrived; return
        the deadline of the next byte."""
        self._count(link, size)
        self._stalled.discard(link)
        return self._stalled.add(link, now)

    def restart(self, link: Link, now: float) -> None:
        """Give a link that is read from again the whole time for its next byte."""
        if link.partial_size:
            self._stalled.discard(link)
            self._stalled.add(link, now)

    def forget(self, link: Link) -> None:
        """Remove a link whose message is complete, or that has ended."""
        self._count(link, 0)
        self._stalled.discard(link)

    def _count(self, link: Link, size: int) -> None:
        more = size - link.partial_size
        link.partial_size = size
        self._size += more
        owner = link.principal
        self._by_owner[owner] += more  # even without a limit: its quota may change
        if self._by_owner[owner] <= 0:
            del self._by_owner[owner]

    def choose_dropped(self) -> Link | None:
        """Return the link with the largest message if all exceed the limit."""
        if self._size <= self._size_max:
            return None
        return max(self._stalled, key=lambda link: link.partial_size)

    def choose_over_quota(self, owner: Principal) -> Link | None:
        """Return the link with the largest message of an owner whose messages exceed its quota."""
        if not owner.quota.bytes or self._by_owner[owner] <= owner.quota.bytes:
            return None
        links = (link for link in self._stalled if link.principal is owner)
        return max(links, key=lambda link: link.partial_size, default=None)

    def next_at(self) -> float:
        """Return the next deadline (`inf`: none)."""
        return self._stalled.next_at()

    def take_due(self, now: float) -> list[Link]:
        """Return the links that have stalled.

        A link gets another period if this side does not read from it, or was paused.
        """
        is_late = now >= self._stalled.next_at() + _LATE_S
        due = self._stalled.take_due(now)
        for link in due:
            if is_late or link.paused:
                self._stalled.add(link, now)
        return [link for link in due if not (is_late or link.paused)]
