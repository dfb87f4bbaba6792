"""Feed one engine: group its inputs into turns, and queue those that arrive during a turn.

    feed ─────────────► the engine ──effects──► perform
      │                     ▲                      │
      └──► backlog ─────────┤   ◄──inputs of user callbacks
    put_off ──feed_later────┘

An input that arrives while effects are performed (a user's callback makes the next call) waits
until all are done: engines are never re-entered, and effects of different turns never interleave.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence

from requite.engine import Effect, Engine, Input
from requite.errors import LocalViolation


class Feeder:
    """Feeds one engine. `clock` returns monotonic seconds; `perform` performs the effects of a turn
    in order.

    `feeding`: whether the engine or `perform` is running. `later`: the deferred inputs.
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
        self._refused: LocalViolation | None = None  # of the deferred inputs
        self.feeding = False
        self.later: list[Input] = []

    def __len__(self) -> int:
        """Return how many inputs wait."""
        return len(self._backlog) + len(self.later)

    def feed(self, events: Sequence[Input]) -> LocalViolation | None:
        """Feed inputs together, then one by one those that arrive meanwhile. Return the error of
        the first input that the engine refused, or None."""
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
        except LocalViolation as violation:  # still perform the effects of the other inputs
            self._perform(self._handle((), self._clock()))
            return violation
        self._perform(effects)
        return None

    def feed_later(self) -> None:
        """Feed the deferred inputs together; `take_refusal` returns the error of a refused one."""
        events, self.later = self.later, []
        refused = self.feed(events)
        self._refused = self._refused or refused

    def take_refusal(self) -> LocalViolation | None:
        """Return and clear the error of a refused deferred input, or None."""
        refused, self._refused = self._refused, None
        return refused
