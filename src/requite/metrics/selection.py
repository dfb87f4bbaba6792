"""Which services have metrics of their own, and the sum of the others.

A broker may have 10,000 services, and Prometheus keeps each combination of labels for weeks. So the
services with most requests have metrics under their names, and all others are one, `other`. A
service that never had a worker is always among the others: clients may invent any number of names.

No request is counted twice when a service changes its place, so that rates stay true. The counter
of a named service has what it counted since it was named, this time; if it was seen before under
`other`, that stays there. `other` never goes down, and has everything that no name has ever had:
also what removed services counted since the last reading.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from heapq import nlargest
from itertools import chain, islice
from math import inf
from typing import Final, NamedTuple

from requite.protocols.majordomo.census import (
    NO_TALLY,
    Census,
    Tally,
    Traffic,
    added,
    reduced,
    traffic_of,
)
from requite.protocols.majordomo.parties import Service

OTHER: Final = "other"
_OTHER: Final = OTHER.encode()
# Services in one turn of the loop (CPython 3.11).
_PER_TURN: Final = 200  # that are read, in 1.3 ms
_COMPARED_PER_TURN: Final = 1000  # that are compared, in 1 ms


class _Named(NamedTuple):
    """A named service: its counters when it was named, and its metrics at the last reading."""

    before: Tally
    shown: Tally


class Selection:
    """Chooses the services with metrics of their own, at most `named_max`, at each reading.

    One reading at a time.
    """

    def __init__(self, named_max: int) -> None:
        self._named_max: Final = named_max
        self._named: dict[int, _Named] = {}  # by number of the service
        self._former = NO_TALLY  # what services showed that are not named any more
        self._newest = 0  # the number of the newest service at the last reading
        self._has_others = False

    async def read(self, census: Census) -> list[Traffic]:
        """Return the numbers of the named services, and those of all others as `OTHER`."""
        services = census.services
        chosen = await self._choose(services)
        named: list[Traffic] = []
        total = census.forgotten
        rest = _NOTHING
        remaining = iter(services)
        while portion := list(islice(remaining, _PER_TURN)):
            seen = list(map(traffic_of, portion))
            columns = zip(total, *(each.tally for each in seen), strict=True)
            total = tuple(map(sum, columns))
            named += [each for each in seen if each.number in chosen]
            rest = _together(rest, (each for each in seen if each.number not in chosen))
            await asyncio.sleep(0)
        shown = [self._show(each) for each in named]
        for number in self._named.keys() - chosen:
            self._former = added(self._former, self._named.pop(number).shown)
        for each in shown:
            total = reduced(total, each.tally)
        self._newest = max((each.number for each in services), default=self._newest)
        self._has_others = self._has_others or len(services) > len(chosen) or total != self._former
        if self._has_others:
            shown.append(rest._replace(tally=reduced(total, self._former)))
        return shown

    async def _choose(self, services: Iterable[Service]) -> set[int]:
        """Return the numbers of the services with most requests, of those that have had workers or
        that an operator paused; among equals those that are named already."""
        named = self._named
        most: list[Service] = []
        remaining = (each for each in services if each.namer is None)
        while portion := list(islice(remaining, _COMPARED_PER_TURN)):
            most = nlargest(
                self._named_max,
                chain(most, portion),
                key=lambda each: 2 * each.counters.accepted + (each.number in named),
            )
            await asyncio.sleep(0)
        return {each.number for each in most if each.name != _OTHER}

    def _show(self, seen: Traffic) -> Traffic:
        """Return the numbers of a service with the counters that are shown under its name."""
        known = self._named.get(seen.number)
        if known is not None:
            before = known.before
        else:
            before = seen.tally if seen.number <= self._newest else NO_TALLY
        shown = reduced(seen.tally, before)
        self._named[seen.number] = _Named(before, shown)
        return seen._replace(tally=shown)


_NOTHING: Final = Traffic(OTHER, 0, NO_TALLY, 0, 0, 0, inf, 0, 0, 0, 0, 0)


def _together(one: Traffic, others: Iterable[Traffic]) -> Traffic:
    """Return the sum of what services have and do now, without their counters."""
    all_of_them = (one, *others)
    return one._replace(
        queued=sum([each.queued for each in all_of_them]),
        unserved=sum([each.unserved for each in all_of_them]),
        in_progress=sum([each.in_progress for each in all_of_them]),
        oldest_at=min([each.oldest_at for each in all_of_them]),
        idle=sum([each.idle for each in all_of_them]),
        busy=sum([each.busy for each in all_of_them]),
        draining=sum([each.draining for each in all_of_them]),
        blocked=sum([each.blocked for each in all_of_them]),
        paused=sum([each.paused for each in all_of_them]),
    )
