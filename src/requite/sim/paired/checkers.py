"""Check a pair of brokers: I12, and the guarantees to clients.

The checkers that follow one broker's requests (I6 to I8) are for runs with one broker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from requite.protocols.binarystar.table import State
from requite.protocols.binarystar.view import PairView
from requite.sim.kernel.checkers.calls import (
    EndsOnce,
    HonestErrors,
    NeverRepeated,
    OwnReply,
    PartialsInOrder,
)
from requite.sim.kernel.history import Checker, History
from requite.sim.majordomo.checkers.intrusion import NobodyNotices

if TYPE_CHECKING:
    from requite.sim.paired.brokers import PairedBroker


class OneActive(Checker):
    """A broker serves only in its own epoch, and only while it is active."""

    invariant = "I12"
    sentence = "never two actives that both serve a client in one epoch"

    def __init__(self, history: History) -> None:
        super().__init__(history)
        self._by_epoch: dict[int, str] = {}

    def served(self, broker: PairedBroker) -> None:
        """Check a broker that dispatches or replies."""
        if not broker.serves:
            state = broker.half.state.name
            self.violate(f"{broker.name} serves while it is {state}")
        if broker.stood_still_s >= broker.failover_s:
            self.violate(f"{broker.name} was frozen for {broker.stood_still_s:.2f} s, but serves")
        epoch = broker.half.epoch
        other = self._by_epoch.setdefault(epoch, broker.name)
        if other != broker.name:
            self.violate(f"{broker.name} serves in epoch {epoch}, as did {other}")

    def pair_changed(self, broker: PairedBroker, view: PairView) -> None:
        """Check that the two never contradict each other: both are configured correctly."""
        if view.state is State.FAILED:
            self.violate(f"{broker.name} gives up: {view.trouble}")


PAIRED_CHECKERS: Final[tuple[type[Checker], ...]] = (
    EndsOnce,
    OwnReply,
    PartialsInOrder,
    NeverRepeated,
    HonestErrors,
    OneActive,
    NobodyNotices,
)
