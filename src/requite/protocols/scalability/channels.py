"""Choice of the channel for a request: round robin among channels without back-pressure.

Channels are served in *rounds*. In each round, a channel is served as often as its weight says,
once by default. Its remaining share is retained during back-pressure, so it loses turns only while
it accepts nothing. A new channel is served from the next round on, so reconnecting gains nothing.
This ensures I8: however other channels come, go and block, the counts of any two equal channels
that exist throughout differ by at most one per unit of weight.

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
"""Bytes of held requests that are sent at once: as much as a stream accepts before back-pressure. A
request stays with its channel, even if another one becomes free just after."""

_NEVER: Final = -1


class Channel:
    """A connection to a server of requests. `is_open`: it has no back-pressure.

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
    """The channels of one priority: those to be served in this round, and those in the next.
    Channels with back-pressure are in neither, but count as `members`."""

    __slots__ = ("later", "members", "now", "round")

    def __init__(self) -> None:
        self.members = 0
        self.now: deque[Channel] = deque()
        self.later: deque[Channel] = deque()
        self.round = 0

    def add(self, channel: Channel) -> None:
        """Add a new channel, to be served from the next round on."""
        self.members += 1
        channel.round = self.round + 1
        self.later.append(channel)

    def remove(self, channel: Channel) -> None:
        """Remove a channel, which retains its remaining share of this round. O(n)."""
        (self.later if channel.round > self.round else self.now).remove(channel)

    def put_back(self, channel: Channel) -> None:
        """Put a channel back, with its remaining share."""
        if channel.round > self.round:
            self.later.append(channel)
            return
        if channel.round < self.round:  # that round has ended
            channel.round = self.round
            channel.left = channel.weight
        self.now.append(channel)

    def begin(self) -> deque[Channel]:
        """Begin the next round; return its channels."""
        self.now, self.later = self.later, self.now
        self.round += 1
        return self.now

    def sole(self) -> Channel | None:
        """Return the only channel, if there is exactly one."""
        if len(self.now) + len(self.later) != 1:
            return None
        return self.now[0] if self.now else self.later[0]

    def __bool__(self) -> bool:
        return bool(self.now or self.later)


class Channels:
    """All channels to servers, and the round robin among them."""

    __slots__ = ("_best", "_by_peer", "_tiers", "sole")

    def __init__(self) -> None:
        self._by_peer: dict[Peer, Channel] = {}
        self._tiers: dict[int, _Tier] = {}  # by priority, the best one first
        self._best: _Tier | None = None  # the first one with an open channel
        self.sole: Channel | None = None  # the only open channel of the best tier; not counted

    def __len__(self) -> int:
        return len(self._by_peer)

    def __contains__(self, peer: Peer) -> bool:
        return peer in self._by_peer

    def join(self, peer: Peer, place: PipeOptions) -> None:
        """Add a new, open channel."""
        channel = Channel(peer, place.priority, place.weight)
        self._by_peer[peer] = channel
        if channel.priority not in self._tiers:
            self._tiers[channel.priority] = _Tier()
            self._tiers = dict(sorted(self._tiers.items()))
        self._tiers[channel.priority].add(channel)
        self._choose_tier()

    def leave(self, peer: Peer) -> bool:
        """Remove a channel; return whether the peer was one."""
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
        """Record back-pressure on a channel; ignore other peers."""
        channel = self._by_peer.get(peer)
        if channel is not None and channel.is_open:
            channel.is_open = False
            self._tiers[channel.priority].remove(channel)
            self._choose_tier()

    def unblock(self, peer: Peer) -> None:
        """Record the end of back-pressure on a channel; ignore other peers."""
        channel = self._by_peer.get(peer)
        if channel is not None and not channel.is_open:
            channel.is_open = True
            self._tiers[channel.priority].put_back(channel)
            self._choose_tier()

    def next(self) -> Channel | None:
        """Return the channel whose turn it is, and count it; None if all have back-pressure."""
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
        """Return the next channel, but if possible not the one that has not answered. That one
        loses its turn: otherwise it would get many requests at once later."""
        channel = self.next()
        while channel is not None and channel.peer is peer and channel is not self.sole:
            channel = self.next()
        return channel

    @property
    def any_open(self) -> bool:
        """Whether any channel accepts requests."""
        return self._best is not None

    @property
    def blocked(self) -> int:
        """The number of channels with back-pressure."""
        return sum(not channel.is_open for channel in self._by_peer.values())

    def _choose_tier(self) -> None:
        self._best = next((tier for tier in self._tiers.values() if tier), None)
        self.sole = None if self._best is None else self._best.sole()
