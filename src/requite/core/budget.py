"""The retry budget, which all calls of a client share to prevent retry storms (I11)."""

from __future__ import annotations

from math import inf
from typing import Final

from requite.request import RetryBudget, RetryPolicy

BUDGET_PAUSE_S: Final = 0.1
"""Seconds that a call waits for an empty budget: about the time in which it earns one retry."""

CALLS_WORTH_A_SECOND: Final = 50
"""What the budget earns with time, in calls per second: ten retries a second, at the default of one
per five calls. Without it, the calls of a client that makes no new ones could not be retried."""


class TimedBudget:
    """A retry budget that also earns with time. It begins full."""

    __slots__ = ("_budget", "_earned_at", "again_at")

    def __init__(self, policy: RetryPolicy) -> None:
        self._budget = RetryBudget(policy)
        self._earned_at = 0.0  # any instant will do: the budget is full
        self.again_at = -inf  # when calls that were declined may ask again

    def earn(self, calls: float = 1) -> None:
        """Count new calls."""
        self._budget.earn(calls)

    def maybe_spend(self, now: float) -> bool:
        """Take one retry and return True; return False if there is none before `again_at`."""
        self._budget.earn((now - self._earned_at) * CALLS_WORTH_A_SECOND)
        self._earned_at = now
        if now < self.again_at:
            return False
        if self._budget.maybe_spend():
            return True
        self.again_at = now + BUDGET_PAUSE_S
        return False
