"""Compute the correct answers of the demo, without any code of the service.

The service searches a k-d tree and measures chords. This module compares an airport with all others
whose height over the equator's plane differs by less than a radius, and computes haversines.
Airports outside of this slab are farther away than the radius. So the answer is exact once the
radius has enough neighbours; until then it is doubled.
"""

from __future__ import annotations

import json
import math
import os
import sys
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from itertools import compress, islice, repeat
from typing import Final, NamedTuple

_EARTH_RADIUS_M: Final = 6_371_008.8
_FIRST_RADIUS_M: Final = 16_000.0
_ROUNDING_M: Final = 1.0

_NICENESS: Final = 10

Answer = tuple[tuple[int, str], ...]
"""Neighbours as (metres, code), nearest first."""


class Place(NamedTuple):
    """An airport; angles in radians."""

    code: str
    latitude: float
    longitude: float


class World(NamedTuple):
    """Airports from south to north, their points in space, and the points' heights (m)."""

    places: list[Place]
    points: list[tuple[float, float, float]]
    heights: list[float]


def load_world(country: str | None = None) -> World:
    """Read the airports of the package `airportsdata`, or those of a country."""
    import airportsdata

    rows = airportsdata.load().items()
    places = sorted(
        (
            Place(code, math.radians(row["lat"]), math.radians(row["lon"]))
            for code, row in rows
            if country in (None, row["country"])
        ),
        key=lambda place: place.latitude,
    )
    points = [_point(place) for place in places]
    return World(places, points, [height for _x, _y, height in points])


def direct_answers(
    neighbours: int, codes: Iterable[str] | None = None, country: str | None = None
) -> dict[str, Answer]:
    """Return the correct answer for each of `codes` (None: all), in the world or a country."""
    world = load_world(country)
    wanted = {place.code for place in world.places} if codes is None else set(codes)
    return {
        place.code: _answer(place, point, world, neighbours)
        for place, point in zip(world.places, world.points, strict=True)
        if place.code in wanted
    }


def _point(place: Place) -> tuple[float, float, float]:
    equatorial = _EARTH_RADIUS_M * math.cos(place.latitude)
    return (
        equatorial * math.cos(place.longitude),
        equatorial * math.sin(place.longitude),
        _EARTH_RADIUS_M * math.sin(place.latitude),
    )


def _answer(
    centre: Place, point: tuple[float, float, float], world: World, neighbours: int
) -> Answer:
    radius_m = _FIRST_RADIUS_M
    while True:
        start = bisect_left(world.heights, point[2] - radius_m)
        end = bisect_right(world.heights, point[2] + radius_m)
        chords = map(math.dist, repeat(point), world.points[start:end])
        within = compress(world.places[start:end], map(radius_m.__ge__, chords))
        found = sorted((_metres(centre, place), place.code) for place in within if place != centre)
        is_whole_world = end - start == len(world.places) and radius_m > 2 * _EARTH_RADIUS_M
        is_exact = len(found) >= neighbours and found[neighbours - 1][0] < radius_m - _ROUNDING_M
        if is_exact or is_whole_world:
            return tuple(found[:neighbours])
        radius_m *= 2


def _metres(here: Place, there: Place) -> int:
    haversine = (
        math.sin((there.latitude - here.latitude) / 2) ** 2
        + math.cos(here.latitude)
        * math.cos(there.latitude)
        * math.sin((there.longitude - here.longitude) / 2) ** 2
    )
    return round(2 * _EARTH_RADIUS_M * math.asin(min(1.0, math.sqrt(haversine))))


def main() -> None:
    """Print the answers for the first airports: code to [[metres, code], ...].

    python -m requite.cli.show.direct NEIGHBOURS AIRPORTS [COUNTRY...]

    With countries: for all their airports; neighbours are in the same country.
    """
    os.nice(_NICENESS)
    import airportsdata

    neighbours, airports = map(int, sys.argv[1:3])
    answers: dict[str, Answer] = {}
    for country in sys.argv[3:]:
        answers |= direct_answers(neighbours, country=country)
    if not sys.argv[3:]:
        answers = direct_answers(neighbours, islice(airportsdata.load(), airports))
    json.dump(answers, sys.stdout)


if __name__ == "__main__":
    main()
