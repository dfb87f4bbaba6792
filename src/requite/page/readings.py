"""What a page shows, at one moment, for all who look; of the page of a broker, the broker.

One reading answers all who ask meanwhile, and those of a time after it that grows with what the
reading took, up to 5 s: however many look, readings take about a hundredth of the time of the event
loop, and more only if one takes more than 50 ms.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from datetime import UTC, datetime
from math import inf
from types import coroutine
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

from requite.metrics.figures import BrokerFigures, figures_of
from requite.metrics.selection import Selection
from requite.metrics.watched import BrokerReader
from requite.pair.standby_gate import as_facts
from requite.protocols.majordomo.census import WorkerView
from requite.protocols.majordomo.reading import Reading, reading_of
from requite.protocols.titanic.core import TitanicSnapshot
from requite.shell import clock

COST: Final = 100
"""The time from one reading to the next, in times of what it took."""

FRESH_S: Final = 0.9
"""A reading answers everybody for so long at least."""

WINDOW_S: Final = 10.0
"""Rates and percentiles are of so long, or since the earliest reading of the broker."""

_REUSED_S_MAX: Final = 5.0


_T = TypeVar("_T")


class BrokerToShow(BrokerReader, Protocol):
    """What the page reads of a broker."""

    def worker_views(self, service: str, workers_max: int, holds_max: int) -> list[WorkerView]: ...


class Backlog(NamedTuple):
    """The Titanic inside a broker: its stored requests, and the size of its files in bytes."""

    seen: TitanicSnapshot
    disk_bytes: int


class BrokerSnapshot(NamedTuple):
    """What the page shows of a broker: the broker at the moment `at`, and what happened in the
    time before. `trouble` says why it cannot do its work ("": it can). At most `named_max` services
    have names."""

    at: datetime
    trouble: str
    figures: BrokerFigures
    backlog: Backlog | None
    named_max: int


@coroutine
def _timed(work: Coroutine[Any, Any, _T], turns: list[float]) -> Generator[Any, None, _T]:
    """Await `work`, and append how long each of its turns of the loop takes, in seconds."""
    try:
        while True:
            began = clock.now()
            try:
                waits_for = work.send(None)
            except StopIteration as end:
                result: _T = end.value
                return result
            finally:
                turns.append(clock.now() - began)
            yield waits_for
    finally:
        work.close()


class SharedReadings(Generic[_T]):
    """Readings that `read` makes, each for all who ask."""

    def __init__(self, read: Callable[[], Coroutine[Any, Any, _T]]) -> None:
        self._make: Final = read
        self._taking: asyncio.Task[_T] | None = None  # the latest one
        self._fresh_until = -inf
        self.took_s = 0.0
        """What the latest reading took of the loop's time, without the turns of others."""

    async def latest(self) -> _T:
        """Return the latest reading, or a new one if that is too old."""
        taking = self._taking
        if taking is None or (taking.done() and clock.now() >= self._fresh_until):
            return await self.next()
        return await asyncio.shield(taking)

    async def next(self) -> _T:
        """Return a new reading, or the one in progress."""
        taking = self._taking
        if taking is None or taking.done():
            taking = self._taking = asyncio.create_task(self._take())
        return await asyncio.shield(taking)

    async def close(self) -> None:
        """End the reading in progress."""
        if self._taking is not None:
            self._taking.cancel()
            await asyncio.wait((self._taking,))

    async def _take(self) -> _T:
        turns: list[float] = []
        try:
            return await _timed(self._make(), turns)
        finally:
            self.took_s = sum(turns)
            reused_s = min(max(FRESH_S, COST * self.took_s), _REUSED_S_MAX)
            self._fresh_until = clock.now() + reused_s


class Readings(SharedReadings[BrokerSnapshot]):
    """Readings of `broker`. `named_max`: how many services are shown by their names."""

    def __init__(self, broker: BrokerToShow, named_max: int) -> None:
        super().__init__(self._read)
        self._broker: Final = broker
        self._named_max: Final = named_max
        self._selection: Final = Selection(named_max)
        self._recent: deque[Reading] = deque()  # the oldest first

    async def _read(self) -> BrokerSnapshot:
        broker = self._broker
        census = broker.census()
        await asyncio.sleep(0)  # 10,000 services and as many peers take 1 ms
        services = await self._selection.read(census)
        pair = None if broker.pair is None else as_facts(broker.pair.view)
        now = reading_of(census, services, clock.now(), pair)
        figures = self._figures(now)
        return BrokerSnapshot(
            datetime.now(UTC), broker.trouble, figures, self._backlog(), self._named_max
        )

    def _figures(self, now: Reading) -> BrokerFigures:
        """Return what happened since the earliest reading of the window that can be compared."""
        recent = self._recent
        while len(recent) > 1 and recent[1].at <= now.at - WINDOW_S:
            recent.popleft()
        found = next(filter(None, (figures_of(each, now) for each in recent)), None)
        recent.append(now)
        if found is not None:
            return found
        nothing = figures_of(now._replace(at=now.at - 1.0), now)
        assert nothing is not None
        return nothing

    def _backlog(self) -> Backlog | None:
        titanic = self._broker.titanic
        if titanic is None:
            return None
        return Backlog(titanic.snapshot(), titanic.store_view().disk_bytes)
