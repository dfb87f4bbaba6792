"""What accepted links hold in memory, in bytes: per link, per owner, and in all.

A crowd of links could hold the limit of one link each. So all together may hold `size_max` bytes,
and those of one owner the bytes of its quota. Beyond that, the host drops the link that holds the
most: never one that holds little, whatever others do.
"""

from __future__ import annotations

from collections import Counter

from requite.principal import Principal
from requite.shell.link import Link


class Ledger:
    """Sizes of links with an owner, such as those of incomplete messages or of unsent output."""

    __slots__ = ("_by_owner", "_size", "_size_max", "_sizes")

    def __init__(self, size_max: int) -> None:
        self._size_max = size_max
        self._size = 0
        self._sizes: dict[Link, int] = {}
        self._by_owner: Counter[Principal] = Counter()

    def __len__(self) -> int:
        return len(self._sizes)

    def record(self, link: Link, size: int) -> None:
        """Replace the size of a link; 0: it holds nothing any more."""
        if size or link in self._sizes:
            more = size - self._sizes.pop(link, 0)
            if size:
                self._sizes[link] = size
            self._size += more
            owner = link.principal
            self._by_owner[owner] += more  # even without a limit: its quota may change
            if self._by_owner[owner] <= 0:
                del self._by_owner[owner]

    def choose_dropped(self) -> Link | None:
        """Return the link that holds the most if all exceed the limit."""
        return (
            None if self._size <= self._size_max else max(self._sizes, key=self._sizes.__getitem__)
        )

    def choose_over_quota(self, owner: Principal) -> Link | None:
        """Return the link of an owner that holds the most if all of its exceed its quota."""
        if not owner.quota.bytes or self._by_owner[owner] <= owner.quota.bytes:
            return None
        links = [link for link in self._sizes if link.principal is owner]
        return max(links, key=self._sizes.__getitem__, default=None)
