"""A k-d tree of places on the Earth, to find the nearest ones on a sphere, in whole metres."""

from __future__ import annotations

import math
from bisect import insort
from dataclasses import dataclass
from operator import itemgetter
from typing import Final

EARTH_RADIUS_M: Final = 6_371_008.8  # the mean radius of WGS 84 (IUGG)
_LEAF_SIZE: Final = 8

Point = tuple[float, float, float, str]
"""A place as x, y, z in metres from the centre of the Earth, and its code."""

Neighbour = tuple[int, str]
"""A distance in whole metres, and the code of the place."""


@dataclass(frozen=True, slots=True)
class Split:
    """A node of the tree: points in `below` are at most `at` on the axis, in `above` at least."""

    axis: int
    at: float
    below: Tree
    above: Tree


Tree = Split | list[Point]


def point(code: str, latitude: float, longitude: float) -> Point:
    """Return the point of a place, from its coordinates in degrees."""
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
    """Return the `count` points nearest to `centre` (without itself), by distance and code."""
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
    # Points on the far side are at least `beyond` away. One metre more allows for rounding.
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
