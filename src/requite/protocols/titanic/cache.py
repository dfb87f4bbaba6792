"""Bodies that are kept in memory as well as in the log, so that few have to be read again.

A request's body is wanted once more, soon, when it is sent: what has no room is not kept. A reply
is wanted by whoever waits for it: the newest are kept, and the oldest make room.
"""

from __future__ import annotations

from collections.abc import Sequence

from requite.protocols.titanic.requests import DurableRequest


class Cache:
    """Bounds the bytes of all `DurableRequest.frames` and `DurableRequest.reply` by `size_max`."""

    def __init__(self, size_max: int) -> None:
        self.size = 0
        self._size_max = size_max
        self._replies: dict[DurableRequest, None] = {}  # the oldest first

    def keep_request(self, request: DurableRequest) -> None:
        """Keep the body of a request that has just been stored, if there is room."""
        if self.size + request.size <= self._size_max:
            self.size += request.size
        else:
            request.frames = None

    def maybe_keep(self, request: DurableRequest, frames: Sequence[bytes]) -> None:
        """Keep a body that had to be read: it may be sent again."""
        if self.size + request.size <= self._size_max:
            self.size += request.size
            request.frames = frames

    def drop_request(self, request: DurableRequest) -> None:
        """Let go of a request's body."""
        if request.frames is not None:
            request.frames = None
            self.size -= request.size

    def keep_reply(self, request: DurableRequest) -> None:
        """Keep a reply, at the expense of older ones."""
        if request.reply_size > self._size_max:
            request.reply = None
            return
        self._replies[request] = None
        self.size += request.reply_size
        while self.size > self._size_max and self._replies:
            self.drop_reply(next(iter(self._replies)))

    def drop_reply(self, request: DurableRequest) -> None:
        """Let go of a reply."""
        if request in self._replies:
            del self._replies[request]
            self.size -= request.reply_size
        request.reply = None
