"""REP hop by hop: ids for the channels that requests come by, turns for requests, ways for replies.

What a worker and the front of a device have in common. (REQ hop by hop is `channels.py`.) Every
channel gets an id, by which a reply finds its way back. Requests that cannot be taken at once wait
at their channel, and channels take turns, one request each. A channel with too much waiting is not
read from for a while.

A channel that pushes back, since whoever is at its other end does not read the replies, has its
turn when it takes replies again; if its turn has come meanwhile, it is the next.

Source: sp-request-reply-01, "REP endpoint".
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

from requite.engine import Peer
from requite.protocols.scalability.wire import IDS, channel_tag


class Caller:
    """A channel that requests come by. `tag` is its id, as it stands in front of them.

    `waiting` are its requests, with their sizes, and `size` the sum of these. `is_open`: it does
    not push back. `backlog`: bytes it was sent while it did. `is_read`: we do not push back.
    """

    __slots__ = ("backlog", "has_turn", "is_open", "is_read", "peer", "size", "tag", "waiting")

    def __init__(self, peer: Peer, tag: bytes) -> None:
        self.peer = peer
        self.tag = tag
        self.waiting: deque[tuple[int, Any]] = deque()
        self.size = 0
        self.has_turn = False
        self.is_open = True
        self.is_read = True
        self.backlog = 0


class Callers:
    """All channels that requests come by.

    `first_id` MUST be random per start: a reply to a request that came through a former life of
    this endpoint must not find a channel. `queue_max` and `queue_size_max` say how many requests,
    and bytes of them, may wait per channel before it is not read from; it is read from again at
    half of that. `backlog_size_max`: how much is sent to a channel that pushes back.
    """

    __slots__ = (
        "_backlog_size_max",
        "_next_id",
        "_queue_max",
        "_queue_size_max",
        "by_peer",
        "by_tag",
        "turns",
    )

    def __init__(
        self, first_id: int, *, queue_max: int, queue_size_max: int, backlog_size_max: int
    ) -> None:
        self.by_peer: dict[Peer, Caller] = {}
        self.by_tag: dict[bytes, Caller] = {}
        self.turns: deque[Caller] = deque()  # those with something waiting; the first one is next
        self._next_id = first_id % IDS
        self._queue_max = queue_max
        self._queue_size_max = queue_size_max
        self._backlog_size_max = backlog_size_max

    def __iter__(self) -> Iterator[Caller]:
        return iter(self.by_peer.values())

    def join(self, peer: Peer) -> Caller:
        """Take a new channel; give it the next id that is free."""
        while (tag := channel_tag(self._next_id)) in self.by_tag:
            self._next_id = (self._next_id + 1) % IDS
        self._next_id = (self._next_id + 1) % IDS
        caller = self.by_peer[peer] = self.by_tag[tag] = Caller(peer, tag)
        return caller

    def leave(self, peer: Peer) -> Caller | None:
        """Forget a channel, if it is one, and what waits there."""
        caller = self.by_peer.pop(peer, None)
        if caller is not None:
            del self.by_tag[caller.tag]
            if caller.has_turn:
                self.turns.remove(caller)
        return caller

    def block(self, peer: Peer) -> None:
        """Note that a channel pushes back, if it is one."""
        if caller := self.by_peer.get(peer):
            caller.is_open = False

    def unblock(self, peer: Peer) -> None:
        """Note that a channel takes replies again, if it is one; its turn may be due."""
        caller = self.by_peer.get(peer)
        if caller is None or caller.is_open:
            return
        caller.is_open = True
        caller.backlog = 0
        if caller.waiting and not caller.has_turn:
            caller.has_turn = True
            self.turns.appendleft(caller)

    def takes(self, caller: Caller, size: int) -> bool:
        """Whether a channel, which may be pushing back, is to be sent a reply of `size` bytes.

        The first one may be as large as it will; the others have to fit in the bound.
        """
        if caller.is_open:
            return True
        limit, backlog = self._backlog_size_max, caller.backlog
        if backlog >= limit or (backlog and backlog + size > limit):
            return False
        caller.backlog += size
        return True

    # --- requests that wait -----------------------------------------------------------------------
    def push(self, caller: Caller, request: Any, size: int) -> bool:
        """Let a request wait; tell whether its channel is to be read no more."""
        caller.waiting.append((size, request))
        caller.size += size
        if not caller.has_turn:
            caller.has_turn = True
            self.turns.append(caller)
        if caller.is_read and (
            len(caller.waiting) > self._queue_max or caller.size > self._queue_size_max
        ):
            caller.is_read = False
            return True
        return False

    def pop(self) -> tuple[Caller, Any] | None:
        """Take the request whose turn it is; None if none waits whose channel takes replies."""
        turns = self.turns
        while turns:
            caller = turns.popleft()
            caller.has_turn = False
            if not caller.is_open:
                continue  # the turn is owed to it
            size, request = caller.waiting.popleft()
            caller.size -= size
            if caller.waiting:
                caller.has_turn = True
                turns.append(caller)
            return caller, request
        return None

    def clear(self) -> int:
        """Forget everything that waits; tell how much it was."""
        count = self.waiting
        self.turns.clear()
        for caller in self:
            caller.waiting.clear()
            caller.size = 0
            caller.has_turn = False
        return count

    def resumes(self, caller: Caller) -> bool:
        """Tell whether a channel that is not read from is to be read again, and note it."""
        if (
            caller.is_read
            or len(caller.waiting) > self._queue_max // 2
            or caller.size > self._queue_size_max // 2
        ):
            return False
        caller.is_read = True
        return True

    @property
    def waiting(self) -> int:
        """How many requests wait."""
        return sum(len(caller.waiting) for caller in self)
