"""Which heartbeats of the peer a server trusts after a pause of its own.

Unread heartbeats may be old, and the peer may have changed its state since. So the server sends a
heartbeat and trusts only the answer to it. An answer quotes our instance and the number of our
heartbeat.
"""

from __future__ import annotations

from math import inf

from requite.protocols.binarystar.wire import Word


class Doubt:
    """Whether the peer's heartbeats are in doubt; at first they are not.

    `instance` is our own. An answer must arrive within `limit_s` seconds; after that, only answers
    to a newer heartbeat count.
    """

    __slots__ = ("_asked", "_asked_at", "_instance", "_limit_s", "is_there")

    def __init__(self, instance: int, limit_s: float) -> None:
        self.is_there = False
        self._instance = instance
        self._limit_s = limit_s
        self._asked = 0  # our first heartbeat whose answer counts
        self._asked_at = -inf

    def begin(self) -> None:
        """Record a pause: answers to earlier heartbeats do not count."""
        self.is_there = True
        self._asked_at = -inf

    def note_own(self, number: int, now: float) -> None:
        """Record that we send a heartbeat."""
        if self.is_there and now >= self._asked_at + self._limit_s:
            self._asked, self._asked_at = number, now

    def is_settled_by(self, word: Word, now: float) -> bool:
        """Return whether a heartbeat of the peer can be trusted: an answer, and all after it."""
        is_answer = word.heard_instance == self._instance and word.heard >= self._asked
        if is_answer and now < self._asked_at + self._limit_s:
            self.is_there = False
        return not self.is_there
