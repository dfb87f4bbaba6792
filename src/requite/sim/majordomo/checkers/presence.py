"""Check heartbeats: the rule [worker-heartbeat] of docs/protocols/mdp-0.3.md."""

from __future__ import annotations

from functools import cached_property

from requite.sim.kernel.history import Checker
from requite.sim.majordomo.parties import BROKER


class HeardInTime(Checker):
    """Broker and workers are never silent to each other for longer than the negotiated interval."""

    invariant = "heartbeat"
    sentence = "each side sends something at least once per interval, the longer of the two"

    @cached_property
    def _limit_s(self) -> dict[str, float]:
        limit_s: dict[str, float] = self.knobs.silence_limit_s
        return limit_s

    def spoke(self, sender: str, receiver: str, silent_s: float) -> None:
        """Check how long `sender` was silent before a message."""
        limit_s = self._limit_s.get(receiver if sender == BROKER else sender)
        if limit_s is not None and silent_s > limit_s:
            self.violate(f"{sender} was silent to {receiver} for {silent_s:.4f} s")
