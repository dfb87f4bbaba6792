"""Convert instants of the monotonic clock to UTC."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic_ns, time_ns
from typing import Final

# The offset is kept while the clocks agree within this. A new measurement for each block would
# shift blocks against each other by some microseconds.
SLACK_US: Final = 100
_REREADINGS_MAX: Final = 4


class WallClock:
    """Measures the offset of UTC from the monotonic clock, which changes when UTC is set."""

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
        """Return the offset in µs from an instant to UTC since 1970; it changes with UTC."""
        measured = self._measure()
        if self._offset_us is None or abs(measured - self._offset_us) > SLACK_US:
            self._offset_us = measured
        return self._offset_us

    def _measure(self) -> int:
        """Read both clocks as close to each other as possible on a busy machine."""
        best = self._read()
        for _ in range(_REREADINGS_MAX):
            if best[0] < SLACK_US * 1000:
                break
            best = min(best, self._read())
        return best[1] // 1000

    def _read(self) -> tuple[int, int]:
        """Return the duration of a reading, and the offset of UTC, both in ns."""
        before = self._monotonic_ns()
        wall = self._wall_ns()
        after = self._monotonic_ns()
        return after - before, wall - (before + after) // 2
