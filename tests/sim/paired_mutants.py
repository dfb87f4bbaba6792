"""Brokers of a pair that break one rule each, for the checkers to find."""

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
    """Who has served once goes on, whatever the pair says."""

    def handle(self, events: Sequence[Input], now: float) -> Iterable[Effect]:
        if self._mode.value == "open":
            return self._broker.handle(events, now)
        return super().handle(events, now)


class LetsNobodyIn(StandbyGate):
    """It hangs up on everybody, also when it serves."""

    def lets_in(self) -> bool:
        return False


class LeaseWithoutEnd(BinaryStarPeer):
    """Active once, it may serve for ever: it does not notice that it stood still."""

    @property
    def serves_until(self) -> float:
        return inf if self.state is State.ACTIVE else -inf

    @serves_until.setter
    def serves_until(self, _at: float) -> None:
        pass


class SameEpoch(BinaryStarPeer):
    """Who takes over goes on counting where the other one was."""

    def _apply(self, event: Any, now: float) -> None:
        before = self.epoch
        super()._apply(event, now)
        if self.epoch > before > 0:
            self.epoch = before


class KeepsEverybody(MajordomoBroker):
    """It steps down, and keeps its workers."""

    def step_down(self, reason: str, now: float) -> list[Effect]:
        workers = {peer: party for peer, party in self.parties.items() if isinstance(party, Worker)}
        effects = super().step_down(reason, now)
        self.parties.update(workers)
        return effects


class GivesBackTooMuch(MajordomoBroker):
    """It gives requests back that are with workers, as if they had not run."""

    def step_down(self, reason: str, now: float) -> list[Effect]:
        for party in self.parties.values():
            for pending in getattr(party, "pending", {}).values():
                pending.attempts = 0
        return super().step_down(reason, now)
