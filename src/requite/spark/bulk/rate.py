"""How fast a task may send: its share of the rate of a job."""

from __future__ import annotations

from typing import Final

# What an idle task may send at once: enough for timers that count in milliseconds to keep up.
_BURST_S: Final = 0.05


class Bucket:
    """A token bucket: `rate` requests per second, with at most 50 ms' worth of them at once.

    It holds one token at first, so that many short tasks in a row keep to the rate, too. `now` is
    monotonic, in seconds.
    """

    __slots__ = ("_burst", "_filled_at", "_rate", "_tokens")

    def __init__(self, rate: float, now: float) -> None:
        self._rate = rate
        self._burst = max(1.0, rate * _BURST_S)
        self._tokens = 1.0
        self._filled_at = now

    def take(self, now: float) -> float:
        """Take a token and return 0.0; where there is none, return seconds until there is one."""
        earned = (now - self._filled_at) * self._rate
        self._tokens = min(self._burst, self._tokens + earned)
        self._filled_at = now
        if self._tokens < 1:
            return (1 - self._tokens) / self._rate
        self._tokens -= 1
        return 0.0
