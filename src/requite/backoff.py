"""Exponential back-off with jitter.

Every pause in requite uses it: retries of calls and durable requests, reconnecting engines and
shells, the manager of pools.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from requite.errors import ConfigurationError

FIRST_S: Final = 0.05
MAX_S: Final = 2.0
_JITTER: Final = 0.5
_DOUBLINGS_MAX: Final = 30


def _no_jitter() -> float:
    return 0.0


def pause_s(
    failures: int,
    first_s: float,
    max_s: float,
    jitter: float = 0.0,
    rng: Callable[[], float] = _no_jitter,
) -> float:
    """Return the seconds to wait after `failures` consecutive failures (1 or more).

    The first pause is `first_s`; each further pause doubles, up to `max_s`. Each is multiplied by a
    random factor in [1 - jitter, 1]. `rng` is uniform in [0, 1).
    """
    ceiling_s = min(first_s * 2.0 ** min(failures - 1, _DOUBLINGS_MAX), max_s)
    return ceiling_s * (1 - jitter * rng())


class Backoff:
    """A series of pauses, each random in the upper half of a ceiling that doubles.

    `rng` is uniform in [0, 1). The jitter spreads out clients that reconnect to the same broker.
    """

    __slots__ = ("_failures", "_first_s", "_max_s", "_rng")

    def __init__(
        self, rng: Callable[[], float], first_s: float = FIRST_S, max_s: float = MAX_S
    ) -> None:
        if not 0 < first_s <= max_s:
            raise ConfigurationError(
                f"the first pause ({first_s} s) must be positive and not exceed the longest "
                f"({max_s} s)"
            )
        self._rng = rng
        self._first_s = first_s
        self._max_s = max_s
        self._failures = 0

    def next_s(self) -> float:
        """Return the seconds to wait now, and double the ceiling of the next pause."""
        self._failures += 1
        return pause_s(self._failures, self._first_s, self._max_s, _JITTER, self._rng)

    def reset(self) -> None:
        """Restart the series after a successful attempt."""
        self._failures = 0
