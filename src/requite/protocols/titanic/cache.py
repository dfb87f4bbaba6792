"""Bodies that are kept in memory as well as in the log, so that few have to be read again.

A request's body is wanted once more, soon, when it is sent: what has no room is not kept. A reply
is wanted by whoever waits for it: the newest are kept, and the oldest make room.
"""

from __future__ import annotations

from collections.abc import Sequence

from requite.protocols.titanic.requests import Kept


class Cache:
    """Counts the bytes of `Kept.frames` and `Kept.reply`; `size_max` bounds them."""

    def __init__(self, size_max: int) -> None:
        self.size = 0
        self._size_max = size_max
        self._replies: dict[Kept, None] = {}  # the oldest first

    def keep_request(self, kept: Kept) -> None:
        """Keep the body of a request that has just been stored, if there is room."""
        if self.size + kept.size <= self._size_max:
            self.size += kept.size
        else:
            kept.frames = None

    def maybe_keep(self, kept: Kept, frames: Sequence[bytes]) -> None:
        """Keep a body that had to be read: it may be sent again."""
        if self.size + kept.size <= self._size_max:
            self.size += kept.size
            kept.frames = frames

    def drop_request(self, kept: Kept) -> None:
        """Let go of a request's body."""
        if kept.frames is not None:
            kept.frames = None
            self.size -= kept.size

    def keep_reply(self, kept: Kept) -> None:
        """Keep a reply, at the expense of older ones."""
        if kept.reply_size > self._size_max:
            kept.reply = None
            return
        self._replies[kept] = None
        self.size += kept.reply_size
        while self.size > self._size_max and self._replies:
            self.drop_reply(next(iter(self._replies)))

    def drop_reply(self, kept: Kept) -> None:
        """Let go of a reply."""
        if kept in self._replies:
            del self._replies[kept]
            self.size -= kept.reply_size
        kept.reply = None
