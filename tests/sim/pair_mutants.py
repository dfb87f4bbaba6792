"""Broken servers of a pair: each breaks one rule."""

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
    """Serves for as long as it is in state ACTIVE, like the server in the ZeroMQ Guide."""

    @property
    def serves_until(self) -> float:
        return inf if self.state is State.ACTIVE else -inf

    @serves_until.setter
    def serves_until(self, _at: float) -> None:
        pass


class BelievesOldWords(BinaryStarPeer):
    """Treats heartbeats read after a pause as current."""

    def _is_credible(self, _event: Event, _word: Word, _now: float) -> bool:
        return True


class _NeverExcused(Other):
    def excuse(self, now: float) -> None:
        if self.liveness.heard_at == -inf:
            super().excuse(now)


class TakesItsPauseForSilence(BinaryStarPeer):
    """Counts votes after its own pause, before it has read the peer's heartbeats."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._other = _NeverExcused(self.policy)


class Impatient(BinaryStarPeer):
    """Takes over on the first vote, even if the peer is not silent."""

    def _voted(self, event: Vote, now: float) -> None:
        if self.state is State.PASSIVE:
            self._apply(Event.CLIENT_VOTE, now)
        super()._voted(event, now)


class StartsActive(BinaryStarPeer):
    """Serves as the primary right after its start, even if the backup is active."""

    def _voted(self, event: Vote, now: float) -> None:
        if self.state is State.PRIMARY:
            self._apply(Event.CLIENT_VOTE, now)
        super()._voted(event, now)


class CountsOneByOne(BinaryStarPeer):
    """Gives both servers the same next epoch, one above the highest known."""

    def _begin_epoch(self, now: float) -> None:
        known = max(self.epoch, self._other.epoch)
        super()._begin_epoch(now)
        self.epoch = known + 1


class IgnoresEpochs(BinaryStarPeer):
    """Fails, as the ZeroMQ Guide prescribes, when both servers are active."""

    def _apply_heartbeat(self, word: Word, now: float) -> None:
        if word.state is State.ACTIVE and self.state is State.ACTIVE:
            self._apply(Event.EQUAL_ACTIVE, now)
        else:
            super()._apply_heartbeat(word, now)


class FailsBack(BinaryStarPeer):
    """Hands back to the primary when the primary returns."""

    def _heard(self, link: PeerLink, word: Word, now: float) -> None:
        super()._heard(link, word, now)
        if self.policy.role is PairRole.BACKUP and word.state is State.PASSIVE:
            self._apply(Event.SWITCH, now)


class NeverTakesOver(BinaryStarPeer):
    """Ignores votes while it is passive."""

    def _voted(self, event: Vote, now: float) -> None:
        if self.state is not State.PASSIVE:
            super()._voted(event, now)


class NeverGoesOn(BinaryStarPeer):
    """Stays suspended whatever the peer answers."""

    def _is_credible(self, event: Event, word: Word, now: float) -> bool:
        return self.state is not State.SUSPENDED and super()._is_credible(event, word, now)


class KeepsSwitchesToItself(BinaryStarPeer):
    """Does not forward an operator's switch command from the passive server."""

    def _broadcast(self, message: list[bytes]) -> None:
        if not isinstance(decode(message), Switch):
            super()._broadcast(message)


class LeavesAtOnce(BinaryStarPeer):
    """Stops without waiting for the peer to take over."""

    def _drained(self, _event: Any, _now: float) -> None:
        self._draining = True
        self.state = State.PASSIVE if self.state is State.RESIGNED else self.state


class NeverLeaves(BinaryStarPeer):
    """Ignores a drain."""

    def _drained(self, _event: Any, _now: float) -> None:
        """Ignore the drain."""


class DiesOfGarbage(BinaryStarPeer):
    """Raises on a message that cannot be decoded."""

    def _refuse(self, link: PeerLink, why: str) -> None:
        raise RemoteViolation(f"{link.peer}: {why}")
