"""When to reconnect after a connection has ended.

After a connection that worked, reconnect at once: its broker may have restarted. If further
connections end without a single valid message (the broker refuses us, or does not speak MDP), back
off (Guide, "Robust Reliable Queuing": the worker's back-off doubles, and it never abandons). The
shell spaces attempts that fail to connect.
"""

from __future__ import annotations

from math import inf
from typing import Final

from requite.backoff import pause_s
from requite.engine import Rng

# The Guide's worker waits 1 to 32 s; ours starts lower, since the first retry mostly succeeds.
_FIRST_S: Final = 0.1
_MAX_S: Final = 10.0
_JITTER: Final = 0.5
# A connection that lasted this long did not end because the broker refuses us.
_WORKED_AFTER_S: Final = 10.0
_TURNED_AWAY_MAX: Final = 4  # limit of `fruitless` while a broker restarts: pauses of 0.8 s


class Redial:
    """The instant `at` of the next Connect; `inf`: none is planned.

    `fruitless` counts consecutive connections that ended without a valid message; the engine sets
    it to 0 when it receives one.
    """

    __slots__ = ("_joined_at", "_rng", "at", "fruitless")

    def __init__(self, rng: Rng) -> None:
        self._rng = rng
        self._joined_at = inf
        self.at = inf
        self.fruitless = 0

    def joined(self, now: float) -> None:
        """Record a new connection."""
        self._joined_at = now

    def turned_away(self) -> None:
        """Record that the broker is shutting down: it will probably be replaced soon.

        Pause before the next connection even though this one worked; but keep pauses below a
        second, so that calls do not wait long for the new broker.
        """
        self.fruitless = min(max(self.fruitless, 1), _TURNED_AWAY_MAX)
        self._joined_at = inf

    def plan(self, now: float) -> None:
        """Set `at`, unless it is set: a connection has ended, or the first one is needed."""
        if self.at < inf:
            return
        if now - self._joined_at >= _WORKED_AFTER_S:
            self.fruitless = 0
        self.at = now
        if self.fruitless:
            self.at += pause_s(self.fruitless, _FIRST_S, _MAX_S, _JITTER, self._rng)
        self.fruitless += 1
        self._joined_at = inf

    def is_due(self, now: float) -> bool:
        """Return whether to connect now; if so, clear `at`."""
        if now < self.at:
            return False
        self.at = inf
        return True
