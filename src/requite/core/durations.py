"""How long requests took, as counts by upper bound: what a Prometheus histogram needs."""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

BOUNDS_S: Final[tuple[float, ...]] = (
    0.0005,
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
)
"""The upper bounds, in seconds. Longer durations have a count of their own, the last one."""


class Durations:
    """Counts of durations: `counts[n]` of those up to `BOUNDS_S[n]`, without shorter ones, and
    `total_s`, their sum in seconds."""

    __slots__ = ("counts", "total_s")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_S) + 1)
        self.total_s = 0.0

    def add(self, took_s: float) -> None:
        """Count a duration."""
        self.counts[bisect_left(BOUNDS_S, took_s)] += 1
        self.total_s += took_s

    @property
    def count(self) -> int:
        """The number of durations."""
        return sum(self.counts)
