"""The rate limit of a task: its share of the job's rate."""

from __future__ import annotations

from typing import Final

# Burst of an idle task: long enough for timers with a resolution of milliseconds.
_BURST_S: Final = 0.05


class Bucket:
    """A token bucket: `rate` requests per second, in bursts of at most 50 ms' worth.

    It starts with one token, so that a series of short tasks keeps to the rate, too. `now` is
    monotonic, in seconds.
    """

    __slots__ = ("_burst", "_filled_at", "_rate", "_tokens")

    def __init__(self, rate: float, now: float) -> None:
        self._rate = rate
        self._burst = max(1.0, rate * _BURST_S)
        self._tokens = 1.0
        self._filled_at = now

    def take(self, now: float) -> float:
        """Take a token and return 0.0; without a token, return the seconds until the next one."""
        earned = (now - self._filled_at) * self._rate
        self._tokens = min(self._burst, self._tokens + earned)
        self._filled_at = now
        if self._tokens < 1:
            return (1 - self._tokens) / self._rate
        self._tokens -= 1
        return 0.0
