"""What is kept, and for how long: a window, a number of replies, and a size."""

from __future__ import annotations

from collections.abc import Iterator

from requite.dedup.entries import Entries, Entry, Segments, State
from requite.dedup.policy import DedupPolicy


class Keeping:
    """All entries, and the segments of the log if there is one.

    `expired` counts what was let go with its window, `evicted` what had to go before.
    """

    def __init__(self, policy: DedupPolicy) -> None:
        self._policy = policy
        self.entries = Entries()
        self.segments = Segments()
        self.expired = 0
        self.evicted = 0

    @property
    def size_bytes(self) -> int:
        """The size that is bounded: that of the log, or of the replies in memory."""
        return self.segments.size_bytes if self._policy.durable else self.entries.size_bytes

    def next_end(self) -> float:
        """When the next window ends; `inf` if nothing is kept."""
        return self.entries.oldest_at() + self._policy.window_s

    def expire(self, now: float) -> None:
        """Let go of what has had its window."""
        while now >= self.next_end():
            self._let_go_oldest()
            self.expired += 1

    def forget(self, entry: Entry) -> None:
        """Know nothing of a key any more."""
        self.entries.remove(entry)
        self.segments.leave(entry)

    def is_beyond(self) -> bool:
        """Whether anything may have to go."""
        if self.entries.settled > self._policy.entries_max or len(self.segments) > 1:
            return True
        return not self._policy.durable and self.entries.size_bytes > self._policy.bytes_max

    def bound(self) -> list[Entry]:
        """Let go of what is too much, the oldest first. Return what runs, and was noted where the
        log is about to be cut: it has to be noted again."""
        policy, entries = self._policy, self.entries
        while entries.settled > policy.entries_max:
            self._evict_oldest()
        while not policy.durable and entries.size_bytes > policy.bytes_max and entries.settled:
            self._evict_oldest()
        return self._shorten() if policy.durable else []

    def take_idle(self) -> Iterator[int]:
        """Yield the segments that nobody needs any more, and forget them."""
        return self.segments.take_idle()

    def _shorten(self) -> list[Entry]:
        """Let nobody need the oldest segments of a log that has become too long."""
        segments, displaced = self.segments, list[Entry]()
        for number in segments.beyond(self._policy.bytes_max):
            for entry in segments.needed_by(number):
                if entry.state in (State.KEPT, State.IN_DOUBT):
                    self.forget(entry)
                    self.evicted += 1
                    continue
                segments.leave(entry)
                if entry.state is State.RUNNING:
                    displaced.append(entry)
        return displaced

    def _evict_oldest(self) -> None:
        self._let_go_oldest()
        self.evicted += 1

    def _let_go_oldest(self) -> None:
        entry = self.entries.oldest()
        if entry is not None:
            self.forget(entry)
