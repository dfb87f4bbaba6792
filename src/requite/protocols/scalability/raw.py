"""REP hop by hop: ids of incoming pipes, which route replies back.

Used by a worker and by the front of a device. (REQ hop by hop is in `channels.py`, the order of
requests in `requite.core.turns`.)

Source: sp-request-reply-01, "REP endpoint".
"""

from __future__ import annotations

from requite.core.turns import ClientPeer
from requite.engine import Peer
from requite.protocols.scalability.wire import IDS, channel_tag


class ReplyPipe(ClientPeer):
    """An incoming pipe. `tag` is the pipe id that is pushed onto each request, `backlog` the bytes
    that were sent to it during back-pressure."""

    __slots__ = ("backlog", "tag")

    def __init__(self, peer: Peer, tag: bytes, principal: str) -> None:
        super().__init__(peer, principal)
        self.tag = tag
        self.backlog = 0


class ReturnPaths:
    """All incoming pipes, by tag.

    `first_id` MUST be random per start: a reply to a request of an earlier process of this endpoint
    must not match a pipe. `backlog_size_max`: bytes that are sent to a pipe with back-pressure.
    """

    __slots__ = ("_backlog_size_max", "_next_id", "by_tag")

    def __init__(self, first_id: int, *, backlog_size_max: int) -> None:
        self.by_tag: dict[bytes, ReplyPipe] = {}
        self._next_id = first_id % IDS
        self._backlog_size_max = backlog_size_max

    def join(self, peer: Peer, principal: str = "") -> ReplyPipe:
        """Add a new pipe with the next free id, and the name of its owner."""
        while (tag := channel_tag(self._next_id)) in self.by_tag:
            self._next_id = (self._next_id + 1) % IDS
        self._next_id = (self._next_id + 1) % IDS
        pipe = self.by_tag[tag] = ReplyPipe(peer, tag, principal)
        return pipe

    def leave(self, pipe: ReplyPipe) -> None:
        """Remove a pipe."""
        del self.by_tag[pipe.tag]

    def takes(self, pipe: ReplyPipe, size: int) -> bool:
        """Return whether to send a pipe a reply of `size` bytes; count it during back-pressure.

        The first reply may have any size; the others must fit in the bound.
        """
        if pipe.is_open:
            return True
        limit, backlog = self._backlog_size_max, pipe.backlog
        if backlog >= limit or (backlog and backlog + size > limit):
            return False
        pipe.backlog += size
        return True
