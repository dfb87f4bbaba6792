"""How long a group commit waits for more records: the store's commits adapt to disk and clients.

While the disk syncs, the next records accumulate. Clients that wait for each acknowledgement then
form two groups, which take turns: each sync has half of the records that it could have. So after a
commit the store waits for those that it has just acknowledged to come again.

After a commit it waits at most half as long as recent commits took. With a slow disk, that is
longer than clients need, so all share each sync. With a fast disk, it is shorter: the disk syncs
the records of some clients while others are served. Then waits are in vain, and almost all are left
out. The same holds if records arrive at random, from clients that do not wait for acknowledgements:
in half the time of a commit comes half of what the commit before had.
"""

from __future__ import annotations

from typing import Final

_SHARE: Final = 0.5  # of the time of a commit
_WEIGHT: Final = 0.125  # of the last commit in the average
_ENOUGH: Final = 0.875  # share of the expected records with which a wait was not in vain
_SKIPPED_MAX: Final = 64


class Gathering:
    """The pace of one store; in turn: `expect`, `patience_s`, perhaps `waited`, `committed`."""

    def __init__(self) -> None:
        self._commit_s = 0.0  # moving average
        self._committed = 0  # records of the last commit
        self._expected = 0
        self._until = 0.0
        self._skipped = 0  # waits to leave out after one in vain; doubles each time
        self._to_skip = 0

    def committed(self, records: int, began_at: float, ended_at: float) -> None:
        """Count a commit, with the instants of its beginning and end in seconds."""
        took_s = ended_at - began_at
        self._committed = records
        self._commit_s += (took_s - self._commit_s) * (_WEIGHT if self._commit_s else 1.0)
        self._until = ended_at + self._commit_s * _SHARE

    def expect(self, queued: int) -> None:
        """Begin the next commit, with the records that were queued during the last one: as many
        as that had may follow."""
        self._expected = self._committed + queued

    def patience_s(self, records: int, now: float) -> float:
        """Return the longest time to wait for more than these records, in seconds."""
        if not 0 < records < self._expected:
            return 0.0
        if now >= self._until:
            # Nothing came during the last commit, which had all, and nothing in time after it.
            if self._expected == self._committed:
                self.waited(records)
            return 0.0
        if self._to_skip:
            self._to_skip -= 1
            return 0.0
        return self._until - now

    def is_enough(self, records: int) -> bool:
        """Whether no more records are expected."""
        return records >= self._expected

    def waited(self, records: int) -> None:
        """Judge a wait by the records at its end."""
        if records >= self._expected * _ENOUGH:
            self._skipped = 0
        else:
            self._skipped = min(2 * self._skipped or 1, _SKIPPED_MAX)
        self._to_skip = self._skipped
