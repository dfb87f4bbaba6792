"""The inputs of one engine: which of them it is fed together, and which of them wait.

    feed ─────────────► the engine ──effects──► perform
      │                     ▲                      │
      └──► backlog ─────────┤   ◄──inputs of user callbacks
    put_off ──feed_later────┘

An input that arrives while effects are being performed (a user's callback that makes the next call)
waits until they are through: engines are never re-entered, and the effects of one turn are never
interleaved with those of another.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence

from requite.engine import Effect, Engine, Input
from requite.errors import LocalViolation


class Feeder:
    """Feeds one engine. `clock` gives monotonic seconds; `perform` performs the effects of a turn,
    in order.

    `feeding`: the engine or `perform` is at work. `later` are the inputs that were put off.
    """

    __slots__ = ("_backlog", "_clock", "_handle", "_perform", "_refused", "feeding", "later")

    def __init__(
        self,
        engine: Engine,
        clock: Callable[[], float],
        perform: Callable[[Iterable[Effect]], None],
    ) -> None:
        self._handle = engine.handle
        self._clock = clock
        self._perform = perform
        self._backlog: deque[Input] = deque()
        self._refused: LocalViolation | None = None  # of those that were put off
        self.feeding = False
        self.later: list[Input] = []

    def __len__(self) -> int:
        """Return how many inputs wait."""
        return len(self._backlog) + len(self.later)

    def feed(self, events: Sequence[Input]) -> LocalViolation | None:
        """Feed inputs together, then one by one those that come up meanwhile. Return why the engine
        refused one of them, if it did."""
        if self.feeding:
            self._backlog += events
            return None
        self.feeding = True
        refused: LocalViolation | None = None
        try:
            if self._backlog:  # an exception ended the turn before: these inputs are older
                self._backlog += events
            else:
                refused = self._turn(events)
            while self._backlog:
                later = self._turn((self._backlog.popleft(),))
                refused = refused or later
        finally:
            self.feeding = False
        return refused

    def _turn(self, events: Sequence[Input]) -> LocalViolation | None:
        try:
            effects = self._handle(events, self._clock())
        except LocalViolation as violation:  # the effects of the other inputs are to be performed
            self._perform(self._handle((), self._clock()))
            return violation
        self._perform(effects)
        return None

    def feed_later(self) -> None:
        """Feed together what was put off; `take_refusal` tells if the engine refused any of it."""
        events, self.later = self.later, []
        refused = self.feed(events)
        self._refused = self._refused or refused

    def take_refusal(self) -> LocalViolation | None:
        """Return once why an input that was put off was refused, if one was."""
        refused, self._refused = self._refused, None
        return refused
