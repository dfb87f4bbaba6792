"""The service `nearest`: the neighbours of an airport, from a table that the worker holds.

Importing this module loads the airports of the package `airportsdata` (extra `demo`) and builds a
k-d tree over them, once per process (about half a second).

A request is a code, ICAO or IATA, optionally how many neighbours are wanted, and then optionally a
reference that the reply shall carry: `EDDF`, `FRA 3`, `EDDF 5 order-17`. The reply is JSON, nearest
first: `{"airport": "EDDF", "reference": "", "nearest": [{"icao", "name", "country", "metres"}]}`.
Distances are great circles on a sphere, in whole metres; equal ones are in the order of the codes.
"""

from __future__ import annotations

import json
import math
from bisect import insort
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Final

from requite.errors import ConfigurationError
from requite.request import Request
from requite.worker import service

try:
    import airportsdata
except ImportError as error:
    raise ConfigurationError(
        "the service `nearest` needs the package airportsdata: pip install 'requite[demo]'"
    ) from error

EARTH_RADIUS_M: Final = 6_371_008.8  # the mean radius of WGS 84 (IUGG)
NEIGHBOURS: Final = 5
_NEIGHBOURS_MAX: Final = 100
_LEAF_SIZE: Final = 8

Point = tuple[float, float, float, str]
"""A place as x, y, z in metres from the centre of the Earth, and its code."""

Neighbour = tuple[int, str]
"""A distance in whole metres and the code of who is that far away."""


@dataclass(frozen=True, slots=True)
class Split:
    """A node of the tree: `below` lies at or under `at` on the axis, `above` at or over it."""

    axis: int
    at: float
    below: Tree
    above: Tree


Tree = Split | list[Point]


def point(code: str, latitude: float, longitude: float) -> Point:
    """Place a code on the sphere; degrees."""
    phi, theta = math.radians(latitude), math.radians(longitude)
    equatorial = EARTH_RADIUS_M * math.cos(phi)
    return (
        equatorial * math.cos(theta),
        equatorial * math.sin(theta),
        EARTH_RADIUS_M * math.sin(phi),
        code,
    )


def build(points: list[Point], axis: int = 0) -> Tree:
    """Build a k-d tree: halve the points along each axis in turn."""
    if len(points) <= _LEAF_SIZE:
        return points
    ordered = sorted(points, key=itemgetter(axis))
    middle = len(ordered) // 2
    after = (axis + 1) % 3
    at = float(ordered[middle][axis])
    return Split(axis, at, build(ordered[:middle], after), build(ordered[middle:], after))


def nearest_to(centre: Point, tree: Tree, count: int) -> list[Neighbour]:
    """Return the `count` nearest to `centre`, itself left out, by distance and code."""
    found: list[Neighbour] = []
    _search(tree, centre, count, found)
    return found


def _search(tree: Tree, centre: Point, count: int, found: list[Neighbour]) -> None:
    if isinstance(tree, list):
        _scan(tree, centre, count, found)
        return
    beyond = float(centre[tree.axis]) - tree.at
    near, far = (tree.above, tree.below) if beyond >= 0 else (tree.below, tree.above)
    _search(near, centre, count, found)
    # Whoever is on the far side is at least `beyond` away; a metre more for the rounding.
    if len(found) < count or abs(beyond) <= found[-1][0] + 1:
        _search(far, centre, count, found)


def _scan(leaf: list[Point], centre: Point, count: int, found: list[Neighbour]) -> None:
    here, code = centre[:3], centre[3]
    for other in leaf:
        chord = math.dist(here, other[:3])
        if other[3] != code and (len(found) < count or chord <= found[-1][0] + 1):
            insort(found, (_arc_m(chord), other[3]))
            del found[count:]


def _arc_m(chord: float) -> int:
    return round(2 * EARTH_RADIUS_M * math.asin(min(1.0, chord / (2 * EARTH_RADIUS_M))))


_AIRPORTS: Final = airportsdata.load()
_ICAO_BY_IATA: Final = {row["iata"]: code for code, row in _AIRPORTS.items() if row["iata"]}
_POINTS: Final = {code: point(code, row["lat"], row["lon"]) for code, row in _AIRPORTS.items()}
_TREE: Final = build(list(_POINTS.values()))


@service("nearest")
async def nearest(request: Request) -> bytes:
    """Answer with the airports nearest to the one that is named; takes some 50 µs."""
    name, count, reference = _parse(request.body)
    code = _find(name)
    found = nearest_to(_POINTS[code], _TREE, count)
    answer = {
        "airport": code,
        "reference": reference,
        "nearest": [_describe(*one) for one in found],
    }
    return json.dumps(answer).encode()


def _parse(body: bytes) -> tuple[str, int, str]:
    name, _, rest = body.decode().strip().partition(" ")
    wanted, _, reference = rest.partition(" ")
    count = int(wanted) if wanted else NEIGHBOURS
    if not 1 <= count <= _NEIGHBOURS_MAX:
        raise ValueError(f"1 to {_NEIGHBOURS_MAX} neighbours can be asked for, not {count}")
    return name, count, reference


def _find(name: str) -> str:
    code = _ICAO_BY_IATA.get(name.upper(), name.upper())
    if code not in _POINTS:
        raise ValueError(f"no airport has the code {name!r}")
    return code


def _describe(metres: int, code: str) -> dict[str, Any]:
    row = _AIRPORTS[code]
    return {"icao": code, "name": row["name"], "country": row["country"], "metres": metres}
