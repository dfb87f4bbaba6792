"""A cache of bodies, to avoid reading them from the log.

A request's body is needed once, soon, when it is sent: bodies that do not fit are not cached.
Replies are evicted oldest first.
"""

from __future__ import annotations

from collections.abc import Sequence

from requite.protocols.titanic.requests import DurableRequest


class Cache:
    """Bounds the bytes of all `DurableRequest.frames` and `DurableRequest.reply` by `size_max`."""

    def __init__(self, size_max: int) -> None:
        self.size = 0
        self._size_max = size_max
        self._replies: dict[DurableRequest, None] = {}  # oldest first

    def keep_request(self, request: DurableRequest) -> None:
        """Cache the body of a request that has just been stored, if it fits; else drop it."""
        if self.size + request.size <= self._size_max:
            self.size += request.size
        else:
            request.frames = None

    def maybe_keep(self, request: DurableRequest, frames: Sequence[bytes]) -> None:
        """Cache a body that was read from the log, if it fits: it may be sent again."""
        if self.size + request.size <= self._size_max:
            self.size += request.size
            request.frames = frames

    def drop_request(self, request: DurableRequest) -> None:
        """Drop a request's body."""
        if request.frames is not None:
            request.frames = None
            self.size -= request.size

    def keep_reply(self, request: DurableRequest) -> None:
        """Cache a reply; evict older ones to make room."""
        if request.reply_size > self._size_max:
            request.reply = None
            return
        self._replies[request] = None
        self.size += request.reply_size
        while self.size > self._size_max and self._replies:
            self.drop_reply(next(iter(self._replies)))

    def drop_reply(self, request: DurableRequest) -> None:
        """Drop a reply."""
        if request in self._replies:
            del self._replies[request]
            self.size -= request.reply_size
        request.reply = None
