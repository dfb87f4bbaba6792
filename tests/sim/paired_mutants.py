"""Broken brokers of a pair: each breaks one rule."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf
from typing import Any

from requite.engine import Effect, Input
from requite.pair.standby_gate import StandbyGate
from requite.protocols.binarystar.peer import BinaryStarPeer
from requite.protocols.binarystar.table import State
from requite.protocols.majordomo.broker import MajordomoBroker
from requite.protocols.majordomo.parties import Worker


class NeverShuts(StandbyGate):
    """Keeps serving once it has served, whatever the state of the pair."""

    def handle(self, events: Sequence[Input], now: float) -> Iterable[Effect]:
        if self._mode.value == "open":
            return self._broker.handle(events, now)
        return super().handle(events, now)


class LetsNobodyIn(StandbyGate):
    """Rejects all connections, even while it serves."""

    def lets_in(self) -> bool:
        return False


class LeaseWithoutEnd(BinaryStarPeer):
    """Keeps its lease while it is active, so it does not notice that it was frozen."""

    @property
    def serves_until(self) -> float:
        return inf if self.state is State.ACTIVE else -inf

    @serves_until.setter
    def serves_until(self, _at: float) -> None:
        pass


class SameEpoch(BinaryStarPeer):
    """Keeps the old epoch when it takes over."""

    def _apply(self, event: Any, now: float) -> None:
        before = self.epoch
        super()._apply(event, now)
        if self.epoch > before > 0:
            self.epoch = before


class KeepsEverybody(MajordomoBroker):
    """Keeps its workers when it steps down."""

    def step_down(self, reason: str, now: float) -> list[Effect]:
        workers = {peer: party for peer, party in self.parties.items() if isinstance(party, Worker)}
        effects = super().step_down(reason, now)
        self.parties.update(workers)
        return effects


class GivesBackTooMuch(MajordomoBroker):
    """Reports in-flight requests as not executed when it steps down."""

    def step_down(self, reason: str, now: float) -> list[Effect]:
        for party in self.parties.values():
            for pending in getattr(party, "pending", {}).values():
                pending.attempts = 0
        return super().step_down(reason, now)
