"""Which airports the demo of a pool asks for, and when: one country is left alone for a while."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import cycle, islice
from typing import Any, Final

_SLEEPER: Final = "IS"  # Iceland
_LARGEST: Final = 1  # the United States have nearly half of all airports
_SLEEPER_SHARE: Final = 50  # of so many requests, one at least is the sleeper's


class Itinerary:
    """`countries` have the most airports, but for the largest; the last one is the `sleeper`."""

    def __init__(self, rows: Mapping[str, Any], countries: int) -> None:
        self._rows = rows
        sizes = Counter(row["country"] for row in rows.values())
        del sizes[_SLEEPER]
        largest = [country for country, _ in sizes.most_common(countries - 1 + _LARGEST)]
        self.sleeper: Final = _SLEEPER
        self.steady: Final = largest[_LARGEST:]
        self.countries: Final = [*self.steady, _SLEEPER]
        self.airports: Final = sum(len(self._of(country)) for country in self.countries)

    def country(self, code: str) -> str:
        """Return the country of an airport."""
        found: str = self._rows[code]["country"]
        return found

    def codes(self, requests: int, quiet: range) -> list[str]:
        """Return the airport of each request; the sleeper's are at neither of the `quiet` ones, but
        at the first one of all, and at the first one after."""
        places = self._places(requests, quiet)
        sleeping = cycle(self._of(self.sleeper))
        steady = cycle(self._mixed())
        return [next(sleeping) if at in places else next(steady) for at in range(requests)]

    def _places(self, requests: int, quiet: range) -> set[int]:
        """Return when the sleeper is asked for: half of it before, half of it after."""
        wanted = min(len(self._of(self.sleeper)), max(2, requests // _SLEEPER_SHARE))
        early = _spread(range(min(quiet.start, requests)), (wanted + 1) // 2)
        late = _spread(range(quiet.stop, requests), wanted // 2)
        return {0, *early, *late}

    def _mixed(self) -> Sequence[str]:
        """Return the steady countries' airports, those of each spread over the whole."""
        placed = [
            ((number + 0.5) / len(codes), code)
            for codes in map(self._of, self.steady)
            for number, code in enumerate(codes)
        ]
        return [code for _, code in sorted(placed)]

    def _of(self, country: str) -> list[str]:
        return [code for code, row in self._rows.items() if row["country"] == country]


def _spread(places: range, count: int) -> Sequence[int]:
    """Return so many of the places, the first one among them."""
    step = max(1, len(places) // max(1, count))
    return list(islice(places, 0, None, step))[:count]
