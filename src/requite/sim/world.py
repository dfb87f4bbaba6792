"""The world a simulated run happens in: one virtual clock, one queue of events, seeded randomness.

Nothing in a run happens outside the queue. Events of the same instant happen in the order in which
they were asked for, so a run is a function of its seed: no wall clock, no hash order, no threads.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from math import inf
from random import Random
from typing import Any, Final

Act = Callable[..., object]


_EVENTS_MAX: Final = 1_000_000


class Stuck(Exception):
    """Events cause events without end: a hundred times more than a long run has."""


def luck(seed: int, concern: str) -> Random:
    """Return the randomness for one concern: drawing more for one leaves the others as they were.

    A text as seed goes through SHA-512, never through `hash()`: the same in every process.
    """
    return Random(f"{seed}/{concern}")


class World:
    """The virtual clock (`now`, in seconds from 0) and what is still to happen."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.now = 0.0
        self.events = 0
        self.is_stopped = False
        self._queue: list[tuple[float, int, Act, tuple[Any, ...]]] = []
        self._order = count()

    def rng(self, concern: str) -> Random:
        """Return the randomness for one concern: see `luck`."""
        return luck(self.seed, concern)

    def at(self, instant: float, act: Act, *args: Any) -> None:
        """Let `act(*args)` happen at `instant`, or at once if that has passed.

        There is no way to take an event back: whoever asks keeps a count, and ignores old events.
        """
        heappush(self._queue, (max(instant, self.now), next(self._order), act, args))

    def after(self, delay_s: float, act: Act, *args: Any) -> None:
        """Let `act(*args)` happen `delay_s` from now."""
        heappush(self._queue, (self.now + delay_s, next(self._order), act, args))

    def stop(self) -> None:
        """Let nothing happen any more; time still passes."""
        self.is_stopped = True
        self._queue.clear()

    def run(self, until: float = inf, *, unless: Callable[[], bool] | None = None) -> None:
        """Let everything up to `until` happen; stop before an event once `unless` is true."""
        queue = self._queue
        if self.is_stopped:
            queue.clear()
        while queue and queue[0][0] <= until:
            if unless is not None and unless():
                return
            self.now, _, act, args = heappop(queue)
            self.events += 1
            if self.events > _EVENTS_MAX:
                raise Stuck(f"{self.events} events, and virtual time is {self.now:.4f} s")
            act(*args)
        if until != inf:
            self.now = until
