"""What each principal uses of a broker, and whether that is within its quota.

All clients of a principal share one `Usage`, so a quota cannot be multiplied by connections. A
principal without limits has none, and costs nothing.
"""

from __future__ import annotations

from collections import Counter
from math import inf
from typing import Any, Final

from requite.principal import Principal

_BURST_S: Final = 1.0  # a second's worth of requests may come at once
_NEWS_EVERY_S: Final = 1.0
_NO_LIMIT: Final = 1 << 62
_PORTIONS: Final = 16  # of a second's worth of requests
_PORTION_MAX: Final = 1024


class Usage:
    """Outstanding requests of a principal: their memory in bytes, number, and groups by pool.

    Its clients may send `room` more requests before `admit` looks at the quota again: a hot path
    that looked at each would take 0.5 us more per request. `size` counts the bytes of outstanding
    requests, `joined` included: partial replies that wait to be joined for clients of MDP 0.1.
    `ended` counts requests since the start, `named` services without workers that its clients have
    named; `groups` the requests of each group of a pool, if `groups_max` limits them. `untold` are
    its clients that cannot be told of a limit.
    `requests_per_s` is a bucket of tokens, as the time until which requests have used the rate
    (GCRA).
    """

    __slots__ = (
        "_ahead_s",
        "_given",
        "_interval_s",
        "_portion",
        "_requests_max",
        "_told_at",
        "_used_until",
        "bytes_max",
        "ended",
        "groups",
        "groups_max",
        "joined",
        "named",
        "principal",
        "room",
        "size",
        "untold",
    )

    def __init__(self, principal: Principal) -> None:
        self.principal = principal
        self.size = 0
        self.room = 0
        self.ended = 0
        self.joined = 0
        self.named = 0
        self.groups: dict[bytes, Counter[bytes]] = {}
        self.untold: dict[Any, None] = {}
        self._given = 0  # all room since the start
        self._used_until = -inf
        self._told_at = -inf
        self.renew()

    def renew(self) -> None:
        """Apply the present quota of the principal; `groups` has to be counted again."""
        quota = self.principal.quota
        self.bytes_max = quota.bytes or _NO_LIMIT
        self.groups_max = quota.groups
        self._requests_max = quota.requests or _NO_LIMIT
        rate = quota.requests_per_s
        self._interval_s = 1 / rate if rate else 0.0
        self._ahead_s = _BURST_S - self._interval_s / 2  # half an interval: for rounding errors
        self._portion = max(1, rate // _PORTIONS) if rate else _PORTION_MAX
        self._given -= self.room  # what was given by the former quota
        self.room = 0
        self.groups.clear()

    @property
    def count(self) -> int:
        """The number of outstanding requests."""
        return self._given - self.room - self.ended

    def admit(self, name: bytes, now: float) -> str:
        """Return which limit forbids one more request for the service `name`; if none, "", and
        there is room for it."""
        if why := self.exceeds(name, now):
            return why
        if self.room <= 0:
            self._give(min(self._portion, self._requests_max - self.count), now)
        return ""

    def admit_anyway(self, now: float) -> None:
        """Make room for one more request, although a limit is reached."""
        if self.room <= 0:
            self._give(1, now)

    def spend(self, now: float) -> str:
        """Count a request that is answered at once for `requests_per_s`; return why that forbids
        it, "" if it does not."""
        if not self._interval_s:
            return ""
        if self.room <= 0:
            if self._used_until > now + self._ahead_s:
                return self._reached("requests_per_s")
            self._give(max(1, min(self._portion, self._requests_max - self.count)), now)
        self.room -= 1
        self.ended += 1
        return ""

    def _give(self, count: int, now: float) -> None:
        """Make room for `count` requests, or as many as the rate allows now, but at least one."""
        used_until = max(now, self._used_until)
        if self._interval_s:
            count = max(1, min(count, round((now + _BURST_S - used_until) / self._interval_s)))
        self._used_until = used_until + count * self._interval_s
        self._given += count
        self.room += count

    def join_group(self, name: bytes) -> None:
        """Count a request for a group of a pool; other names are ignored."""
        if b"/" in name:
            self.groups.setdefault(name.partition(b"/")[0], Counter())[name] += 1

    def leave_group(self, name: bytes) -> None:
        """Remove a request for a group that has ended."""
        pool = name.partition(b"/")[0]
        if (groups := self.groups.get(pool)) and name in groups:
            groups[name] -= 1
            if groups[name] <= 0:
                del groups[name]
            if not groups:
                del self.groups[pool]

    def exceeds(self, name: bytes, now: float) -> str:
        """Return which limit forbids one more request for the service `name`; "" if none."""
        if self.size >= self.bytes_max:
            return self._reached("bytes")
        if self.count >= self._requests_max:
            return self._reached("requests")
        if self.room <= 0 and self._used_until > now + self._ahead_s:
            return self._reached("requests_per_s")
        if self.groups_max and b"/" in name:
            groups = self.groups.get(name.partition(b"/")[0])
            if groups is not None and name not in groups and len(groups) >= self.groups_max:
                return self._reached("groups")
        return ""

    def exceeds_services(self) -> str:
        """Return why no client of the principal may name a new service; "" if they may."""
        maximum = self.principal.quota.services
        return self._reached("services") if maximum and self.named >= maximum else ""

    def has_room(self, now: float) -> bool:
        """Whether it is within the quota: a client that waited for that may send a request."""
        quota = self.principal.quota
        if self.exceeds(b"", now) or (quota.services and self.named > quota.services):
            return False
        return not (quota.groups and any(len(each) > quota.groups for each in self.groups.values()))

    def is_news(self, now: float) -> bool:
        """Whether to journal that a limit was reached: once a second."""
        if now - self._told_at < _NEWS_EVERY_S:
            return False
        self._told_at = now
        return True

    def wait_s(self, now: float) -> float:
        """Return when the rate allows the next request, in seconds (0: now)."""
        return max(0.0, self._used_until - self._ahead_s - now)

    def _reached(self, limit: str) -> str:
        maximum = getattr(self.principal.quota, limit)
        return f"{self.principal} has reached its quota: {limit} = {maximum}"


def usage_for(usages: dict[Principal, Usage], principal: Principal) -> Usage | None:
    """Return the usage that all clients of a principal share; None if its requests have no
    limits."""
    if not principal.quota.limits_of_requests:
        return None
    usage = usages.get(principal)
    if usage is None:
        usage = usages[principal] = Usage(principal)
    return usage
