"""Time that a manager's engine takes per input, with few groups and with many."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median
from time import perf_counter
from typing import Any, Final

from bench.page import table
from requite.engine import Wake
from requite.pool.config import PoolConfig, PoolSection
from requite.pool.effects import ListGroups, ListQueues
from requite.pool.engine import PoolEngine
from requite.pool.inputs import (
    ActivityArrived,
    Connected,
    GroupDone,
    GroupsListed,
    OrphanArrived,
    QueueDone,
    QueuesListed,
    RunningGroup,
)

_TIMES: Final = 20
_VERSION: Final = "1"


def engine_times(counts: Sequence[int]) -> str:
    """Return a table: microseconds per kind of input, by number of groups."""
    columns = [Rounds(count).measure() for count in counts]
    header = ["one input of the engine", *(f"{count:,} groups, µs" for count in counts)]
    rows = [[what, *(f"{each[what]:,.0f}" for each in columns)] for what in columns[0]]
    return table(header, rows)


class Rounds:
    """An engine with a number of groups; its effects succeed at once."""

    def __init__(self, count: int) -> None:
        self._keys = [f"key {number}" for number in range(count)]
        self._bound = dict.fromkeys(self._keys, True)
        self._running = {key: RunningGroup(_VERSION, 1) for key in self._keys}
        self._engine = PoolEngine(PoolConfig(PoolSection("bench", version=_VERSION)))
        self._now = 0.0
        self._feed(Connected())

    def measure(self) -> dict[str, float]:
        """Return the medians, in microseconds."""
        return {
            "a report of a worker": self._median(
                lambda n: [ActivityArrived(self._key(n), "ready")]
            ),
            "the queues, listed, and the groups": self._median(lambda _: [Wake()], pause_s=10.0),
            "all inputs about one more group": self._median(self._one_more),
        }

    def _key(self, number: int) -> str:
        return self._keys[number % len(self._keys)]

    def _one_more(self, number: int) -> list[Any]:
        key = f"new {number}"
        self._bound[key] = True
        self._running[key] = RunningGroup(_VERSION, 1)
        return [OrphanArrived(number, key), QueueDone(key), QueueDone(key), GroupDone(key)]

    def _median(self, make: Callable[[int], list[Any]], pause_s: float = 0.0) -> float:
        times_s = []
        for number in range(_TIMES):
            self._now += pause_s
            inputs = make(number)
            began = perf_counter()
            for event in inputs:
                self._feed(event)
            times_s.append(perf_counter() - began)
        return median(times_s) * 1e6

    def _feed(self, event: Any) -> None:
        """Feed an input, and the results of the engine's effects."""
        for effect in self._engine.handle([event], self._now):
            match effect:
                case ListQueues(ticket):
                    self._feed(QueuesListed(ticket, dict(self._bound)))
                case ListGroups(ticket):
                    self._feed(GroupsListed(ticket, dict(self._running)))
