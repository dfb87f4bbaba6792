"""Which airports the pool's demo asks for, and when: one country gets no requests for a while."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import cycle, islice
from typing import Any, Final

_IDLE: Final = "IS"  # Iceland
_LARGEST: Final = 1  # the United States have nearly half of all airports
_IDLE_SHARE: Final = 50  # of so many requests, at least one is for the idle country


class Countries:
    """Airports by country: the `busy` countries have the most airports but for the largest one.

    `keys` are the busy countries and the `idle` one.
    """

    def __init__(self, rows: Mapping[str, Any], count: int) -> None:
        self._rows = rows
        sizes = Counter(row["country"] for row in rows.values())
        del sizes[_IDLE]
        largest = [country for country, _ in sizes.most_common(count - 1 + _LARGEST)]
        self.idle: Final = _IDLE
        self.busy: Final = largest[_LARGEST:]
        self.keys: Final = [*self.busy, _IDLE]
        self.airports: Final = sum(len(self._of(country)) for country in self.keys)

    def country(self, code: str) -> str:
        """Return the country of an airport."""
        found: str = self._rows[code]["country"]
        return found

    def codes(self, requests: int, quiet: range) -> list[str]:
        """Return the airport of each request.

        Request 0 and the first one after `quiet` are for the idle country, none within `quiet`.
        """
        places = self._places(requests, quiet)
        idle = cycle(self._of(self.idle))
        busy = cycle(self._mixed())
        return [next(idle) if at in places else next(busy) for at in range(requests)]

    def _places(self, requests: int, quiet: range) -> set[int]:
        """Return the requests for the idle country: half before `quiet`, half after it."""
        wanted = min(len(self._of(self.idle)), max(2, requests // _IDLE_SHARE))
        early = _spread(range(min(quiet.start, requests)), (wanted + 1) // 2)
        late = _spread(range(quiet.stop, requests), wanted // 2)
        return {0, *early, *late}

    def _mixed(self) -> Sequence[str]:
        """Return the airports of the busy countries, those of each country evenly spread."""
        placed = [
            ((number + 0.5) / len(codes), code)
            for codes in map(self._of, self.busy)
            for number, code in enumerate(codes)
        ]
        return [code for _, code in sorted(placed)]

    def _of(self, country: str) -> list[str]:
        return [code for code, row in self._rows.items() if row["country"] == country]


def _spread(places: range, count: int) -> Sequence[int]:
    """Return `count` evenly spread places, the first one among them."""
    step = max(1, len(places) // max(1, count))
    return list(islice(places, 0, None, step))[:count]
