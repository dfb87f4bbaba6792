"""What keeps retries by time from becoming a storm: a client's calls share one budget (I11)."""

from __future__ import annotations

from math import inf
from typing import Final

from requite.request import RetryBudget, RetryPolicy

BUDGET_PAUSE_S: Final = 0.1
"""How long a call waits that finds no budget: about as long as time takes to add one retry."""

CALLS_WORTH_A_SECOND: Final = 50
"""What time adds to the budget of retries: ten a second, with the usual one for five calls. Who
makes no call any more must still come to the end of those made before."""


class TimedBudget:
    """A budget of retries that time fills as well; it knows when to ask again if it is empty.

    It begins full.
    """

    __slots__ = ("_budget", "_earned_at", "again_at")

    def __init__(self, policy: RetryPolicy) -> None:
        self._budget = RetryBudget(policy)
        self._earned_at = 0.0  # whatever that is: it is full
        self.again_at = -inf  # when those that found nothing ask again, all at once

    def earn(self, calls: float = 1) -> None:
        """Count new calls."""
        self._budget.earn(calls)

    def maybe_spend(self, now: float) -> bool:
        """Take one retry, or decline until `again_at`."""
        self._budget.earn((now - self._earned_at) * CALLS_WORTH_A_SECOND)
        self._earned_at = now
        if now < self.again_at:
            return False
        if self._budget.maybe_spend():
            return True
        self.again_at = now + BUDGET_PAUSE_S
        return False
