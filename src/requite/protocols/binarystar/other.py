"""What one server of a pair knows of the other: its last word, and until when that holds."""

from __future__ import annotations

from math import inf

from requite.core.liveness import Liveness
from requite.protocols.binarystar.policy import BinaryStarPolicy
from requite.protocols.binarystar.table import State
from requite.protocols.binarystar.wire import Word


class Other:
    """The other server. `word` is its newest; None: none has come yet.

    It is silent two heartbeats after its last word, or after anything that may have kept us from
    hearing one; `liveness` is about that, and `heard_at` the instant of the word itself. The longer
    heartbeat of the two holds.
    """

    __slots__ = ("_policy", "heard_at", "liveness", "word")

    def __init__(self, policy: BinaryStarPolicy) -> None:
        self.word: Word | None = None
        self.heard_at = -inf
        self.liveness = Liveness(policy.heartbeat, -inf)
        self._policy = policy.heartbeat

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
        return now >= self.liveness.gone_at()

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
            self.liveness = Liveness(self._policy, now)
            self.liveness.agree(word.interval_ms)
        return True

    def excuse(self, now: float) -> None:
        """Count a pause of our own as heard: what the other said meanwhile is still unread."""
        self.liveness.heard_at = now
