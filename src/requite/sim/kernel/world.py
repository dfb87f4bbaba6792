"""The world of a simulated run: one virtual clock, one queue of events, seeded randomness.

Nothing in a run happens outside the queue. Events of the same time run in the order in which they
were scheduled, so a run is a function of its seed: no wall clock, no hash order, no threads.
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
    """The run does not end: it has had a hundred times the events of a long run."""


def luck(seed: int, concern: str) -> Random:
    """Return the random stream of one concern; draws from it do not change the other streams.

    A text seed goes through SHA-512, not `hash()`, so it is the same in every process.
    """
    return Random(f"{seed}/{concern}")


class World:
    """The virtual clock (`now`, in seconds from 0) and the queue of events."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.now = 0.0
        self.events = 0
        self.is_stopped = False
        self._queue: list[tuple[float, int, Act, tuple[Any, ...]]] = []
        self._order = count()

    def rng(self, concern: str) -> Random:
        """Return the random stream of one concern; see `luck`."""
        return luck(self.seed, concern)

    def at(self, instant: float, act: Act, *args: Any) -> None:
        """Schedule `act(*args)` at `instant`, or now if that has passed.

        Events cannot be cancelled: callers number their events, and ignore obsolete ones.
        """
        heappush(self._queue, (max(instant, self.now), next(self._order), act, args))

    def after(self, delay_s: float, act: Act, *args: Any) -> None:
        """Schedule `act(*args)` in `delay_s`."""
        heappush(self._queue, (self.now + delay_s, next(self._order), act, args))

    def stop(self) -> None:
        """Drop all events; time still passes."""
        self.is_stopped = True
        self._queue.clear()

    def run(self, until: float = inf, *, unless: Callable[[], bool] | None = None) -> None:
        """Run all events up to `until`; stop before an event once `unless` is true."""
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
