"""Retention of replies: bounded by a window, by number and by size.

Surplus replies are those of the principal with the most: a principal with many or large replies
pushes out only its own, until the others have as much.
"""

from __future__ import annotations

from collections.abc import Iterator

from requite.dedup.entries import Entries, Entry, Segments, State
from requite.dedup.policy import DedupPolicy
from requite.dedup.records import principal_of


class Keeping:
    """All entries, and the segments of the log if there is one.

    `expired` counts entries removed at the end of their window, `evicted` those removed earlier.
    """

    def __init__(self, policy: DedupPolicy) -> None:
        self._policy = policy
        self.entries = Entries()
        self.segments = Segments()
        self.expired = 0
        self.evicted = 0

    @property
    def size_bytes(self) -> int:
        """The bounded size: of the log, or else of the replies in memory."""
        return self.segments.size_bytes if self._policy.durable else self.entries.size_bytes

    def next_end(self) -> float:
        """Return when the next window ends; `inf` if there is none."""
        return self.entries.oldest_at() + self._policy.window_s

    def expire(self, now: float) -> None:
        """Remove entries whose windows have ended."""
        while now >= self.next_end():
            entry = self.entries.oldest()
            assert entry is not None  # else there would be no next end
            self.forget(entry)
            self.expired += 1

    def forget(self, entry: Entry) -> None:
        """Remove an entry."""
        self.entries.remove(entry)
        self.segments.leave(entry)

    def evict(self, entry: Entry) -> None:
        """Remove an entry before the end of its window."""
        self.forget(entry)
        self.evicted += 1

    def is_beyond(self) -> bool:
        """Whether a bound may be exceeded."""
        if self.entries.settled > self._policy.entries_max or len(self.segments) > 1:
            return True
        return not self._policy.durable and self.entries.size_bytes > self._policy.bytes_max

    def bound(self) -> list[Entry]:
        """Evict the entries that exceed a bound. Return the other entries whose records are in
        segments to be removed; these must be written again."""
        policy, entries = self._policy, self.entries
        while entries.settled > policy.entries_max:
            self._evict_oldest(entries.counts.heaviest())
        while not policy.durable and entries.size_bytes > policy.bytes_max and entries.settled:
            self._evict_oldest(entries.sizes.heaviest())
        return self._shorten() if policy.durable else []

    def take_idle(self) -> Iterator[int]:
        """Remove and yield the segments that are not needed any more."""
        return self.segments.take_idle()

    def _shorten(self) -> list[Entry]:
        """Evict entries from the oldest segments of a log that is too large. Entries of a principal
        with a small part of the log are copied to its end instead."""
        segments, displaced = self.segments, list[Entry]()
        for number in segments.beyond(self._policy.bytes_max):
            for entry in segments.needed_by(number):
                if entry.state not in (State.KEPT, State.IN_DOUBT):
                    segments.leave(entry)
                    if entry.state is State.RUNNING:
                        displaced.append(entry)
                elif not self._has_small_part(entry):
                    self.evict(entry)
                elif not entry.moves:
                    entry.moves = True
                    displaced.append(entry)
        return displaced

    def _has_small_part(self, entry: Entry) -> bool:
        """Whether a principal has at most its share of half of the log. What is copied then fits
        into half of it."""
        needed = self.segments.needed
        part = needed[principal_of(entry.key)] * 2 * len(needed)
        return len(needed) > 1 and part <= self._policy.bytes_max

    def _evict_oldest(self, principal: bytes | None) -> None:
        entry = self.entries.oldest(principal)
        if entry is not None:
            self.evict(entry)
