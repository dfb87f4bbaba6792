"""What one server of a pair knows of the other: its last word, and until when that holds."""

from __future__ import annotations

from math import inf

from requite.protocols.binarystar.policy import (
    HEARTBEAT_S_MAX,
    HEARTBEAT_S_MIN,
    LIVENESS,
    BinaryStarPolicy,
)
from requite.protocols.binarystar.table import State
from requite.protocols.binarystar.wire import Word


class Other:
    """The other server. `word` is its newest; None: none has come yet.

    It is silent from `silent_at` on: two heartbeats after its last word, or after anything that may
    have kept us from hearing one. The longer heartbeat of the two holds.
    """

    __slots__ = ("_failover_s", "_heartbeat_s", "heard_at", "silent_at", "word")

    def __init__(self, policy: BinaryStarPolicy) -> None:
        self.word: Word | None = None
        self.heard_at = -inf
        self.silent_at = -inf
        self._heartbeat_s = policy.heartbeat_s
        self._failover_s = policy.failover_s

    @property
    def state(self) -> State | None:
        """What it last said it is."""
        return None if self.word is None else self.word.state

    @property
    def epoch(self) -> int:
        """The epoch of its last word; 0 if there is none."""
        return 0 if self.word is None else self.word.epoch

    def is_silent(self, now: float) -> bool:
        """Whether it counts as gone."""
        return now >= self.silent_at

    def is_new(self, word: Word) -> bool:
        """Whether a word is the first of a process."""
        return self.word is None or self.word.instance != word.instance

    def note(self, word: Word, now: float) -> bool:
        """Take a word; tell whether it is newer than what was known. It may come twice, over two
        connections. One that has failed says so, but does not count as living."""
        before = self.word
        if before is not None and before.instance == word.instance and word.number <= before.number:
            return False
        self.word = word
        self.heard_at = now
        if word.state is not State.FAILED:
            announced_s = min(max(word.interval_ms / 1000, HEARTBEAT_S_MIN), HEARTBEAT_S_MAX)
            self._failover_s = LIVENESS * max(self._heartbeat_s, announced_s)
            self.silent_at = now + self._failover_s
        return True

    def excuse(self, now: float) -> None:
        """Count a pause of our own as heard: what the other said meanwhile is still unread."""
        self.silent_at = max(self.silent_at, now + self._failover_s)
