"""Servers of a pair that are broken on purpose, one way each."""

from __future__ import annotations

from math import inf
from typing import Any

from requite.errors import RemoteViolation
from requite.protocols.binarystar.links import PeerLink
from requite.protocols.binarystar.other import Other
from requite.protocols.binarystar.peer import BinaryStarPeer
from requite.protocols.binarystar.table import Event, PairRole, State
from requite.protocols.binarystar.view import Vote
from requite.protocols.binarystar.wire import Switch, Word, decode


class ServesOnWaking(BinaryStarPeer):
    """Serves as long as it believes to be active, as the Guide's does."""

    @property
    def serves_until(self) -> float:
        return inf if self.state is State.ACTIVE else -inf

    @serves_until.setter
    def serves_until(self, _at: float) -> None:
        pass


class BelievesOldWords(BinaryStarPeer):
    """Takes what it reads after a pause for news."""

    def _is_credible(self, _event: Event, _word: Word, _now: float) -> bool:
        return True


class _NeverExcused(Other):
    def excuse(self, now: float) -> None:
        if self.liveness.heard_at == -inf:
            super().excuse(now)


class TakesItsPauseForSilence(BinaryStarPeer):
    """Votes count after a pause of its own, with the peer's words unread."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._other = _NeverExcused(self.policy)


class Impatient(BinaryStarPeer):
    """Takes over with the first vote, whether the peer is silent or not."""

    def _voted(self, event: Vote, now: float) -> None:
        if self.state is State.PASSIVE:
            self._apply(Event.CLIENT_VOTE, now)
        super()._voted(event, now)


class StartsActive(BinaryStarPeer):
    """A primary that does not wait after its start, whether the backup is active or not."""

    def _voted(self, event: Vote, now: float) -> None:
        if self.state is State.PRIMARY:
            self._apply(Event.CLIENT_VOTE, now)
        super()._voted(event, now)


class CountsOneByOne(BinaryStarPeer):
    """Both servers take the next number for their epoch."""

    def _begin_epoch(self, now: float) -> None:
        known = max(self.epoch, self._other.epoch)
        super()._begin_epoch(now)
        self.epoch = known + 1


class IgnoresEpochs(BinaryStarPeer):
    """An active one that hears of another does what the Guide says: it fails."""

    def _apply_heartbeat(self, word: Word, now: float) -> None:
        if word.state is State.ACTIVE and self.state is State.ACTIVE:
            self._apply(Event.EQUAL_ACTIVE, now)
        else:
            super()._apply_heartbeat(word, now)


class FailsBack(BinaryStarPeer):
    """Lets the primary have its place back when that has come back."""

    def _heard(self, link: PeerLink, word: Word, now: float) -> None:
        super()._heard(link, word, now)
        if self.policy.role is PairRole.BACKUP and word.state is State.PASSIVE:
            self._apply(Event.SWITCH, now)


class NeverTakesOver(BinaryStarPeer):
    """Does not count votes when it is passive."""

    def _voted(self, event: Vote, now: float) -> None:
        if self.state is not State.PASSIVE:
            super()._voted(event, now)


class NeverGoesOn(BinaryStarPeer):
    """Stays suspended, whatever the peer answers."""

    def _is_credible(self, event: Event, word: Word, now: float) -> bool:
        return self.state is not State.SUSPENDED and super()._is_credible(event, word, now)


class KeepsSwitchesToItself(BinaryStarPeer):
    """A passive one that does not pass an operator's wish on."""

    def _broadcast(self, message: list[bytes]) -> None:
        if not isinstance(decode(message), Switch):
            super()._broadcast(message)


class LeavesAtOnce(BinaryStarPeer):
    """Does not let the other one take over before it ends."""

    def _drained(self, _event: Any, _now: float) -> None:
        self._draining = True
        self.state = State.PASSIVE if self.state is State.RESIGNED else self.state


class NeverLeaves(BinaryStarPeer):
    """Does not end when it is told to."""

    def _drained(self, _event: Any, _now: float) -> None:
        """Take no notice."""


class DiesOfGarbage(BinaryStarPeer):
    """Lets what cannot be decoded through to its caller."""

    def _refuse(self, link: PeerLink, why: str) -> None:
        raise RemoteViolation(f"{link.peer}: {why}")
