"""REP hop by hop: ids for the channels that requests come by, by which replies find their way back.

What a worker and the front of a device have in common. (REQ hop by hop is `channels.py`; whose
request is next, `requite.core.turns`.)

Source: sp-request-reply-01, "REP endpoint".
"""

from __future__ import annotations

from requite.core.turns import ClientPeer
from requite.engine import Peer
from requite.protocols.scalability.wire import IDS, channel_tag


class ReplyPipe(ClientPeer):
    """A channel that requests come by. `tag` is its id, as it stands in front of them, `backlog`
    the bytes that it was sent while it pushed back."""

    __slots__ = ("backlog", "tag")

    def __init__(self, peer: Peer, tag: bytes) -> None:
        super().__init__(peer)
        self.tag = tag
        self.backlog = 0


class ReturnPaths:
    """All channels that requests come by, by tag.

    `first_id` MUST be random per start: a reply to a request that came through a former life of
    this endpoint must not find a channel. `backlog_size_max`: how much is sent to a channel that
    pushes back.
    """

    __slots__ = ("_backlog_size_max", "_next_id", "by_tag")

    def __init__(self, first_id: int, *, backlog_size_max: int) -> None:
        self.by_tag: dict[bytes, ReplyPipe] = {}
        self._next_id = first_id % IDS
        self._backlog_size_max = backlog_size_max

    def join(self, peer: Peer) -> ReplyPipe:
        """Take a new channel; give it the next id that is free."""
        while (tag := channel_tag(self._next_id)) in self.by_tag:
            self._next_id = (self._next_id + 1) % IDS
        self._next_id = (self._next_id + 1) % IDS
        pipe = self.by_tag[tag] = ReplyPipe(peer, tag)
        return pipe

    def leave(self, pipe: ReplyPipe) -> None:
        """Forget a channel."""
        del self.by_tag[pipe.tag]

    def takes(self, pipe: ReplyPipe, size: int) -> bool:
        """Whether a channel, which may be pushing back, is to be sent a reply of `size` bytes.

        The first one may be as large as it will; the others have to fit in the bound.
        """
        if pipe.is_open:
            return True
        limit, backlog = self._backlog_size_max, pipe.backlog
        if backlog >= limit or (backlog and backlog + size > limit):
            return False
        pipe.backlog += size
        return True
