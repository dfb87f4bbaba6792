"""Bytes per second that each owner of accepted links may send, over all its links.

A rate is a bucket of tokens, kept as the instant until which received bytes have used the rate
(GCRA). A link whose owner is ahead of its rate is not read from until its bytes are due, so a peer
that floods a broker is slowed down by TCP, before its bytes cost more than being received.
"""

from __future__ import annotations

from math import inf
from typing import Final

from requite.core.timers import Timers
from requite.principal import Principal
from requite.shell.link import Link, Pause

# A tenth of a second's worth may come at once: with more, a burst delays the requests of others.
_BURST_S: Final = 0.1


class Bandwidth:
    """Pauses links whose owners have a quota of `bytes_per_s`."""

    __slots__ = ("_due", "_used_until")

    def __init__(self) -> None:
        self._used_until: dict[Principal, float] = {}
        self._due: Timers[Link] = Timers()

    def __len__(self) -> int:
        return len(self._due)

    def count(self, link: Link, size: int, now: float) -> None:
        """Count received bytes of a link whose owner has a rate; pause it if that is ahead."""
        owner = link.principal
        until = max(now, self._used_until.get(owner, now)) + size / owner.quota.bytes_per_s
        self._used_until[owner] = until
        if until > now + _BURST_S:
            link.pause(Pause.RATE)
            self._due.set(link, until - _BURST_S)

    def next_at(self) -> float | None:
        """Return when to read from the next link again; None without one."""
        return self._due.next()

    def take_due(self, now: float) -> list[Link]:
        """Remove and return the links to read from again."""
        return list(self._due.due(now))

    def forget(self, link: Link) -> None:
        """Remove a link that has ended."""
        self._due.clear(link)

    def review(self, now: float) -> list[Link]:
        """Handle changed quotas: return the links to read from again, since they were paused for a
        rate that may not apply any more."""
        for owner in [*self._used_until]:
            if owner.is_revoked or not owner.quota.bytes_per_s:
                del self._used_until[owner]
        for owner in self._used_until:
            self._used_until[owner] = min(self._used_until[owner], now + _BURST_S)
        return self.take_due(inf)
