"""A table of airports, and the search for the nearest ones.

A request is an ICAO or IATA code, optionally the number of neighbours, and then optionally a
reference that the reply repeats: `EDDF`, `FRA 3`, `EDDF 5 order-17`. The reply is JSON, nearest
first: `{"airport": "EDDF", "reference": "", "nearest": [{"icao", "name", "country", "metres"}]}`.
Distances are great circles on a sphere, in whole metres; equal distances are ordered by code.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from requite.errors import ConfigurationError
from requite.examples.tree import build, nearest_to, point

NEIGHBOURS: Final = 5
NEIGHBOURS_MAX: Final = 100

Rows = Mapping[str, Any]
"""Rows of `airportsdata` by ICAO code."""


def load() -> Rows:
    """Return all airports. Raises `ConfigurationError` without the package `airportsdata`."""
    try:
        import airportsdata
    except ImportError as error:
        raise ConfigurationError(
            "the airport services require the package airportsdata: pip install 'requite[demo]'"
        ) from error
    rows: Rows = airportsdata.load()
    return rows


def within(country: str, rows: Rows) -> Rows:
    """Return the airports of a country. Raises `ConfigurationError` if there are none."""
    found = {code: row for code, row in rows.items() if row["country"] == country}
    if not found:
        raise ConfigurationError(
            f"{country!r} is not the code of a country with airports, such as IS"
        )
    return found


class Airports:
    """Airports in a k-d tree. Building it takes half a second for the whole world."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._icao_by_iata = {row["iata"]: code for code, row in rows.items() if row["iata"]}
        self.points = {code: point(code, row["lat"], row["lon"]) for code, row in rows.items()}
        self.tree = build(list(self.points.values()))

    def answer(self, body: bytes) -> bytes:
        """Return the reply to a request. Raises `ValueError` for an invalid request."""
        name, count, reference = _parse(body)
        try:
            code, found = self.nearest(name, count)
        except LookupError as error:
            raise ValueError(error.args[0]) from error
        return json.dumps({"airport": code, "reference": reference, "nearest": found}).encode()

    def nearest(self, name: str, count: int) -> tuple[str, list[dict[str, Any]]]:
        """Return the code of an airport and its neighbours, nearest first. Raises `LookupError`."""
        code = self._icao_by_iata.get(name.upper(), name.upper())
        if code not in self.points:
            raise LookupError(f"no airport has the code {name!r}")
        found = nearest_to(self.points[code], self.tree, count)
        return code, [self._describe(*one) for one in found]

    def _describe(self, metres: int, code: str) -> dict[str, Any]:
        row = self._rows[code]
        name, country = row["name"], row["country"]
        return {"icao": code, "name": name, "country": country, "metres": metres}


def _parse(body: bytes) -> tuple[str, int, str]:
    name, _, rest = body.decode().strip().partition(" ")
    wanted, _, reference = rest.partition(" ")
    count = int(wanted) if wanted else NEIGHBOURS
    if not 1 <= count <= NEIGHBOURS_MAX:
        raise ValueError(f"the number of neighbours must be 1 to {NEIGHBOURS_MAX}, not {count}")
    return name, count, reference
