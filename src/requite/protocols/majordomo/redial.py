"""When to connect again after a connection has ended.

A connection that worked is replaced at once: its broker may just have restarted. When the ones
that follow end without a single valid message (a broker that refuses us, or something that speaks
no MDP), each next attempt waits longer, or both sides would do nothing else (Guide, "Robust
Reliable Queuing": the worker's back-off doubles, and it never abandons). Attempts that never got as
far as a connection are the shell's to space.
"""

from __future__ import annotations

from math import inf
from typing import Final

from requite.backoff import pause_s
from requite.engine import Rng

# The Guide's worker waits from 1 to 32 s; ours begins sooner, as the first retry mostly succeeds.
_FIRST_S: Final = 0.1
_MAX_S: Final = 10.0
_JITTER: Final = 0.5
# A connection that was quiet for this long did not end because the broker would not have us.
_WORKED_AFTER_S: Final = 10.0
_TURNED_AWAY_MAX: Final = 4  # `fruitless` up to which a broker's restart counts: 0.8 s


class Redial:
    """The instant `at` of the next Connect; `inf`: none is planned.

    `fruitless` counts connections in a row that ended without a valid message; whoever receives
    one sets it to 0.
    """

    __slots__ = ("_joined_at", "_rng", "at", "fruitless")

    def __init__(self, rng: Rng) -> None:
        self._rng = rng
        self._joined_at = inf
        self.at = inf
        self.fruitless = 0

    def joined(self, now: float) -> None:
        """Note that a connection stands."""
        self._joined_at = now

    def turned_away(self) -> None:
        """Note that the broker is shutting down, and sent us away: its successor will come soon.

        There is a pause before the next connection, however well this one worked; yet the pauses
        stay below a second, or calls would wait long after the successor has come.
        """
        self.fruitless = min(max(self.fruitless, 1), _TURNED_AWAY_MAX)
        self._joined_at = inf

    def plan(self, now: float) -> None:
        """Set `at`, unless it is set already: a connection has ended, or is wanted for once."""
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
        """Tell whether to connect now; if so, the plan is carried out and forgotten."""
        if now < self.at:
            return False
        self.at = inf
        return True
