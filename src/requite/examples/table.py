"""A table of airports that answers who is nearest to one of them.

A request is a code, ICAO or IATA, optionally how many neighbours are wanted, and then optionally a
reference that the reply shall carry: `EDDF`, `FRA 3`, `EDDF 5 order-17`. The reply is JSON, nearest
first: `{"airport": "EDDF", "reference": "", "nearest": [{"icao", "name", "country", "metres"}]}`.
Distances are great circles on a sphere, in whole metres; equal ones are in the order of the codes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from requite.errors import ConfigurationError
from requite.examples.tree import build, nearest_to, point

NEIGHBOURS: Final = 5
_NEIGHBOURS_MAX: Final = 100

Rows = Mapping[str, Any]
"""Airports by their codes of ICAO, as `airportsdata` has them."""


def load() -> Rows:
    """Return all airports there are. Raises `ConfigurationError` where nobody has brought them."""
    try:
        import airportsdata
    except ImportError as error:
        raise ConfigurationError(
            "the services of airports need the package airportsdata: pip install 'requite[demo]'"
        ) from error
    rows: Rows = airportsdata.load()
    return rows


def within(country: str, rows: Rows) -> Rows:
    """Return those of a country. Raises `ConfigurationError` where there are none."""
    found = {code: row for code, row in rows.items() if row["country"] == country}
    if not found:
        raise ConfigurationError(f"{country!r} is no country with airports, as IS would be")
    return found


class Airports:
    """Airports in a k-d tree. Those of all the world take half a second to build."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._icao_by_iata = {row["iata"]: code for code, row in rows.items() if row["iata"]}
        self.points = {code: point(code, row["lat"], row["lon"]) for code, row in rows.items()}
        self.tree = build(list(self.points.values()))

    def answer(self, body: bytes) -> bytes:
        """Answer with the airports nearest to the one that is named. Raises `ValueError`."""
        name, count, reference = _parse(body)
        code = self._find(name)
        found = nearest_to(self.points[code], self.tree, count)
        answer = {
            "airport": code,
            "reference": reference,
            "nearest": [self._describe(*one) for one in found],
        }
        return json.dumps(answer).encode()

    def _find(self, name: str) -> str:
        code = self._icao_by_iata.get(name.upper(), name.upper())
        if code not in self.points:
            raise ValueError(f"no airport has the code {name!r}")
        return code

    def _describe(self, metres: int, code: str) -> dict[str, Any]:
        row = self._rows[code]
        name, country = row["name"], row["country"]
        return {"icao": code, "name": name, "country": country, "metres": metres}


def _parse(body: bytes) -> tuple[str, int, str]:
    name, _, rest = body.decode().strip().partition(" ")
    wanted, _, reference = rest.partition(" ")
    count = int(wanted) if wanted else NEIGHBOURS
    if not 1 <= count <= _NEIGHBOURS_MAX:
        raise ValueError(f"1 to {_NEIGHBOURS_MAX} neighbours can be asked for, not {count}")
    return name, count, reference
