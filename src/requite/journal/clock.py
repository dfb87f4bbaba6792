"""Which wall time an instant of the monotonic clock was."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic_ns, time_ns
from typing import Final

# An offset is kept as long as the clocks agree within this. Measuring anew for each block would
# shift them against each other by some microseconds.
SLACK_US: Final = 100
_REREADINGS_MAX: Final = 4


class WallClock:
    """Measures how far UTC is ahead of the monotonic clock, and shows when it was set anew."""

    __slots__ = ("_monotonic_ns", "_offset_us", "_wall_ns")

    def __init__(
        self,
        monotonic_ns: Callable[[], int] = monotonic_ns,
        wall_ns: Callable[[], int] = time_ns,
    ) -> None:
        self._monotonic_ns = monotonic_ns
        self._wall_ns = wall_ns
        self._offset_us: int | None = None

    def now(self) -> float:
        """Return the instant, in seconds of the monotonic clock."""
        return self._monotonic_ns() / 1e9

    def offset_us(self) -> int:
        """Return what to add to an instant (in µs) for UTC since 1970; stepped clocks show."""
        measured = self._measure()
        if self._offset_us is None or abs(measured - self._offset_us) > SLACK_US:
            self._offset_us = measured
        return self._offset_us

    def _measure(self) -> int:
        """Read both clocks as close to each other as a busy machine lets us."""
        best = self._read()
        for _ in range(_REREADINGS_MAX):
            if best[0] < SLACK_US * 1000:
                break
            best = min(best, self._read())
        return best[1] // 1000

    def _read(self) -> tuple[int, int]:
        """Return how long reading took, and how far UTC is ahead then, both in ns."""
        before = self._monotonic_ns()
        wall = self._wall_ns()
        after = self._monotonic_ns()
        return after - before, wall - (before + after) // 2
