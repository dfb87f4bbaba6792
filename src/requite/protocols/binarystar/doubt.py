"""What a server of a pair may believe after it has stood still.

What it reads then may have been said long before, by a peer that has become something else since.
So it says something itself, and believes what is an answer to that. A word tells which of ours it
is an answer to, by our instance and the number that our word had.
"""

from __future__ import annotations

from math import inf

from requite.protocols.binarystar.wire import Word


class Doubt:
    """Whether the peer's words can be taken at their face; at first they can.

    `instance` is our own; an answer must come within `limit_s`, else the question is put anew.
    """

    __slots__ = ("_asked", "_asked_at", "_instance", "_limit_s", "is_there")

    def __init__(self, instance: int, limit_s: float) -> None:
        self.is_there = False
        self._instance = instance
        self._limit_s = limit_s
        self._asked = 0  # the first of our words that may be answered
        self._asked_at = -inf

    def begin(self) -> None:
        """Note a pause: answers to what was said before it are none."""
        self.is_there = True
        self._asked_at = -inf

    def note_own(self, number: int, now: float) -> None:
        """Note that we are about to say something."""
        if self.is_there and now >= self._asked_at + self._limit_s:
            self._asked, self._asked_at = number, now

    def is_settled_by(self, word: Word, now: float) -> bool:
        """Tell whether a word of the peer can be believed: an answer can, and all after it."""
        is_answer = word.heard_instance == self._instance and word.heard >= self._asked
        if is_answer and now < self._asked_at + self._limit_s:
            self.is_there = False
        return not self.is_there
