"""Check how many requests a party has in hand (I9)."""

from __future__ import annotations

from requite.sim.kernel.history import Checker
from requite.sim.kernel.hub import Hub


class Bounded(Checker):
    """No party has more requests in hand than allowed."""

    invariant = "I9"
    sentence = "bounded memory: every table is back at its baseline after a drain"

    def rested(self, hub: Hub) -> None:
        """Check, after each input, the requests in hand."""
        party, state = hub.process, hub.snapshot()
        in_hand = sum(getattr(state, name) for name in party.in_hand)
        if in_hand > party.in_hand_max:
            self.violate(f"{hub} has {in_hand} requests in hand, more than its limit")
