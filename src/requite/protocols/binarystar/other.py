"""What one server of a pair knows of the other: its last heartbeat, and whether it is silent."""

from __future__ import annotations

from math import inf

from requite.core.liveness import Liveness
from requite.protocols.binarystar.policy import BinaryStarPolicy
from requite.protocols.binarystar.table import State
from requite.protocols.binarystar.wire import Word


class Other:
    """The other server. `word` is its newest heartbeat; None: none has arrived yet.

    It counts as silent two intervals after its last heartbeat, or after any pause that may have
    kept us from reading one (`liveness`); `heard_at` is the instant of the heartbeat itself. The
    longer of both servers' intervals applies.
    """

    __slots__ = ("_policy", "heard_at", "liveness", "word")

    def __init__(self, policy: BinaryStarPolicy) -> None:
        self.word: Word | None = None
        self.heard_at = -inf
        self.liveness = Liveness(policy.heartbeat, -inf)
        self._policy = policy.heartbeat

    @property
    def state(self) -> State | None:
        """The state in its last heartbeat."""
        return None if self.word is None else self.word.state

    @property
    def epoch(self) -> int:
        """The epoch of its last heartbeat; 0 if there is none."""
        return 0 if self.word is None else self.word.epoch

    def is_silent(self, now: float) -> bool:
        """Whether it counts as dead."""
        return now >= self.liveness.gone_at()

    def is_new(self, word: Word) -> bool:
        """Whether a heartbeat is the first of a process."""
        return self.word is None or self.word.instance != word.instance

    def note(self, word: Word, now: float) -> bool:
        """Record a heartbeat; return whether it is new: each may arrive twice, over two
        connections. A heartbeat with state FAILED does not count as a sign of life."""
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
        """Restart the silence timer after a pause of this process, whose input is still unread."""
        self.liveness.heard_at = now
