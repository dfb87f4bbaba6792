"""Incomplete messages of accepted connections: the sizes of all, and a time limit for each.

A message that gets no further byte for `limit_s` ends its link. A minimum rate would be stricter,
but would end honest uploads over slow links, and the bytes in all bound a peer that trickles.
"""

from __future__ import annotations

from requite.shell.ledger import Ledger
from requite.shell.link import Link, LinkLimits
from requite.shell.waiting import Waiting

# The host acts so late only after a pause of this process: the missing bytes may be unread.
_LATE_S = 1.0


class PartialMessages:
    """Tracks links with an incomplete message; `Link.partial_size` is its received part, and
    `sizes` has those of all."""

    __slots__ = ("_stalled", "sizes")

    def __init__(self, limits: LinkLimits) -> None:
        self.sizes = Ledger(limits.partial_size_max)
        self._stalled = Waiting(limits.partial_timeout_s)

    def __len__(self) -> int:
        return len(self._stalled)

    def update(self, link: Link, size: int, now: float) -> None:
        """Record the size of a link's incomplete message, not 0, after bytes have arrived."""
        self._record(link, size)
        self._stalled.discard(link)
        self._stalled.add(link, now)

    def restart(self, link: Link, now: float) -> None:
        """Give a link that is read from again the whole time for its next byte."""
        if link.partial_size:
            self._stalled.discard(link)
            self._stalled.add(link, now)

    def forget(self, link: Link) -> None:
        """Remove a link whose message is complete, or that has ended."""
        self._record(link, 0)
        self._stalled.discard(link)

    def _record(self, link: Link, size: int) -> None:
        link.partial_size = size
        self.sizes.record(link, size)

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
