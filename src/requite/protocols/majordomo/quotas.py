"""What each principal uses of a broker, and whether that is within its quota.

All clients of a principal share one `Usage`, so a quota cannot be multiplied by connections. A
principal without limits has none, and costs nothing.
"""

from __future__ import annotations

from collections import Counter
from math import inf
from typing import Final

from requite.principal import Principal

_BURST_S: Final = 1.0  # a second's worth of requests may come at once
_NEWS_EVERY_S: Final = 1.0


class Usage:
    """Outstanding requests of a principal: their number, memory in bytes, and groups by pool.

    `size` includes `joined`: partial replies that wait to be joined for clients of MDP 0.1. `named`
    counts services without workers that its clients have named. Tokens are requests that it
    may send now, by `requests_per_s`.
    """

    __slots__ = (
        "_groups",
        "_refilled_at",
        "_tokens",
        "_told_at",
        "count",
        "joined",
        "named",
        "principal",
        "size",
    )

    def __init__(self, principal: Principal, now: float) -> None:
        self.principal = principal
        self.count = 0
        self.size = 0
        self.joined = 0
        self.named = 0
        self._groups: dict[bytes, Counter[bytes]] = {}
        self._tokens = principal.quota.requests_per_s * _BURST_S
        self._refilled_at = now
        self._told_at = -inf

    def take(self, name: bytes, size: int) -> None:
        """Count a new request for the service `name`."""
        self.count += 1
        self.size += size
        if self.principal.quota.requests_per_s:
            self._tokens -= 1
        if b"/" in name:
            self._groups.setdefault(name.partition(b"/")[0], Counter())[name] += 1

    def free(self, name: bytes, size: int) -> None:
        """Remove a request that has ended."""
        self.count -= 1
        self.size -= size
        pool = name.partition(b"/")[0]
        if (groups := self._groups.get(pool)) and name in groups:
            groups[name] -= 1
            if groups[name] <= 0:
                del groups[name]
            if not groups:
                del self._groups[pool]

    def exceeds(self, name: bytes, now: float) -> str:
        """Return which limit forbids one more request for the service `name`; "" if none."""
        limit = self._limit(name, now)
        return self._reached(limit) if limit else ""

    def exceeds_services(self) -> str:
        """Return why no client of the principal may name a new service; "" if they may."""
        maximum = self.principal.quota.services
        return self._reached("services") if maximum and self.named >= maximum else ""

    def has_room(self, now: float) -> bool:
        """Whether it is within the quota: a client that waited for that may send a request."""
        quota = self.principal.quota
        if self._limit(b"", now) or (quota.services and self.named > quota.services):
            return False
        return not (
            quota.groups and any(len(each) > quota.groups for each in self._groups.values())
        )

    def is_news(self, now: float) -> bool:
        """Whether to journal that a limit was reached: once a second."""
        if now - self._told_at < _NEWS_EVERY_S:
            return False
        self._told_at = now
        return True

    def _reached(self, limit: str) -> str:
        maximum = getattr(self.principal.quota, limit)
        return f"{self.principal} has reached its quota: {limit} = {maximum}"

    def wait_s(self, now: float) -> float:
        """Return when its next token comes, in seconds (0: it has one)."""
        self._refill(now)
        rate = self.principal.quota.requests_per_s
        return max(0.0, 1 - self._tokens) / rate if rate else 0.0

    def _limit(self, name: bytes, now: float) -> str:
        quota = self.principal.quota
        if quota.bytes and self.size >= quota.bytes:
            return "bytes"
        if quota.requests and self.count >= quota.requests:
            return "requests"
        if quota.requests_per_s and self.wait_s(now):
            return "requests_per_s"
        if quota.groups and b"/" in name:
            groups = self._groups.get(name.partition(b"/")[0])
            if groups is not None and name not in groups and len(groups) >= quota.groups:
                return "groups"
        return ""

    def _refill(self, now: float) -> None:
        rate = self.principal.quota.requests_per_s
        earned = max(0.0, now - self._refilled_at) * rate
        self._tokens = min(rate * _BURST_S, self._tokens + earned)
        self._refilled_at = now


def usage_for(usages: dict[Principal, Usage], principal: Principal, now: float) -> Usage | None:
    """Return the usage that all clients of a principal share; None if it has no limits."""
    if not principal.quota.is_limited:
        return None
    usage = usages.get(principal)
    if usage is None:
        usage = usages[principal] = Usage(principal, now)
    return usage
