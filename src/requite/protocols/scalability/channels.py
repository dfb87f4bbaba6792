"""Which channel a request takes: in turn, among those that do not push back.

Time is divided into *rounds*. In a round every channel is served as often as its weight says, once
by default. It keeps its account when it pushes back, so one that does so again and again loses its
turn only while it really takes nothing. A newcomer is served in the next round at the earliest, so
one that comes and goes gains nothing by it. From these two follows what I8 asks for: however others
come, go and block, the counts of any two equal channels that are there throughout differ by at most
one per unit of weight.

Source: sp-request-reply-01, "REQ endpoint": priorities and weights are allowed, equal by default;
round robin among equals "MUST also take care not to become unfair when new channels are added or
old ones are removed on the fly".
"""

from __future__ import annotations

from collections import deque
from typing import Final

from requite.engine import Peer
from requite.protocols.scalability.policy import PipeOptions

PORTION_SIZE: Final = 256 << 10
"""Bytes of what waited for a channel that are let go at once: as much as a stream takes before it
pushes back. What a channel is given it keeps, even if another one comes free in the next moment."""

_NEVER: Final = -1


class Channel:
    """A connection to whoever takes requests. `is_open`: it does not push back.

    `left` is how often it will still be served in the round `round`.
    """

    __slots__ = ("is_open", "left", "peer", "priority", "round", "weight")

    def __init__(self, peer: Peer, priority: int, weight: int) -> None:
        self.peer = peer
        self.priority = priority
        self.weight = weight
        self.is_open = True
        self.left = weight
        self.round = _NEVER


class _Tier:
    """The channels of one priority: those still to be served in this round, and those in the next.
    Channels that push back are in neither, but count as `members`."""

    __slots__ = ("later", "members", "now", "round")

    def __init__(self) -> None:
        self.members = 0
        self.now: deque[Channel] = deque()
        self.later: deque[Channel] = deque()
        self.round = 0

    def add(self, channel: Channel) -> None:
        """Take a newcomer: it has had its share of this round."""
        self.members += 1
        channel.round = self.round + 1
        self.later.append(channel)

    def remove(self, channel: Channel) -> None:
        """Take a channel out; what is left to it in this round is on its account. O(n)."""
        (self.later if channel.round > self.round else self.now).remove(channel)

    def put_back(self, channel: Channel) -> None:
        """Take a channel back, with what was left to it."""
        if channel.round > self.round:
            self.later.append(channel)
            return
        if channel.round < self.round:  # that round is over, without it
            channel.round = self.round
            channel.left = channel.weight
        self.now.append(channel)

    def begin(self) -> deque[Channel]:
        """Begin the next round; return who is to be served in it."""
        self.now, self.later = self.later, self.now
        self.round += 1
        return self.now

    def sole(self) -> Channel | None:
        """Return the only channel, if there is but one."""
        if len(self.now) + len(self.later) != 1:
            return None
        return self.now[0] if self.now else self.later[0]

    def __bool__(self) -> bool:
        return bool(self.now or self.later)


class Channels:
    """All channels to those who take requests, and whose turn it is."""

    __slots__ = ("_best", "_by_peer", "_tiers", "sole")

    def __init__(self) -> None:
        self._by_peer: dict[Peer, Channel] = {}
        self._tiers: dict[int, _Tier] = {}  # by priority, the best one first
        self._best: _Tier | None = None  # the first one with a channel that is open
        self.sole: Channel | None = None  # the only one that has turns, of which no account is kept

    def __len__(self) -> int:
        return len(self._by_peer)

    def __contains__(self, peer: Peer) -> bool:
        return peer in self._by_peer

    def join(self, peer: Peer, place: PipeOptions) -> None:
        """Take a new channel, which is open."""
        channel = Channel(peer, place.priority, place.weight)
        self._by_peer[peer] = channel
        if channel.priority not in self._tiers:
            self._tiers[channel.priority] = _Tier()
            self._tiers = dict(sorted(self._tiers.items()))
        self._tiers[channel.priority].add(channel)
        self._choose_tier()

    def leave(self, peer: Peer) -> bool:
        """Forget a channel; tell whether it was one."""
        channel = self._by_peer.pop(peer, None)
        if channel is None:
            return False
        tier = self._tiers[channel.priority]
        tier.members -= 1
        if channel.is_open:
            tier.remove(channel)
        if not tier.members:
            del self._tiers[channel.priority]
        self._choose_tier()
        return True

    def block(self, peer: Peer) -> None:
        """Note that a channel pushes back, if it is one."""
        channel = self._by_peer.get(peer)
        if channel is not None and channel.is_open:
            channel.is_open = False
            self._tiers[channel.priority].remove(channel)
            self._choose_tier()

    def unblock(self, peer: Peer) -> None:
        """Note that a channel takes more again, if it is one."""
        channel = self._by_peer.get(peer)
        if channel is not None and not channel.is_open:
            channel.is_open = True
            self._tiers[channel.priority].put_back(channel)
            self._choose_tier()

    def next(self) -> Channel | None:
        """Serve the channel whose turn it is; None if none takes anything."""
        if self.sole is not None:
            return self.sole
        tier = self._best
        if tier is None:
            return None
        now = tier.now or tier.begin()
        channel = now.popleft()
        if channel.left > 1:
            channel.left -= 1
            now.append(channel)
        else:
            channel.left = channel.weight
            channel.round = tier.round + 1
            tier.later.append(channel)
        return channel

    def next_but(self, peer: Peer) -> Channel | None:
        """Serve the channel whose turn it is, but not this one, which has not answered, if another
        of its priority takes anything. It loses its turn: to make good for it later would be to
        give it many requests at once."""
        channel = self.next()
        while channel is not None and channel.peer is peer and channel is not self.sole:
            channel = self.next()
        return channel

    @property
    def any_open(self) -> bool:
        """Whether any channel takes requests."""
        return self._best is not None

    @property
    def blocked(self) -> int:
        """How many channels push back."""
        return sum(not channel.is_open for channel in self._by_peer.values())

    def _choose_tier(self) -> None:
        self._best = next((tier for tier in self._tiers.values() if tier), None)
        self.sole = None if self._best is None else self._best.sole()
