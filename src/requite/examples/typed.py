"""The typed service `airports`: the neighbours of an airport, with the same table as `nearest`.

    requite worker requite.examples.typed:airports --connect mdp://127.0.0.1:5555
    requite describe mdp://127.0.0.1:5555 airports
    requite call mdp://127.0.0.1:5555/airports.nearest '{"code": "FRA", "count": 3}' --json

Requires the extra `demo`. The demo (`requite demo`) serves it over each of its protocols: where
messages carry no service names, the name of the method is in their bodies
(docs/protocols/typed.md, section "In the body").
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from requite.examples.airports import WORLD
from requite.examples.table import NEIGHBOURS, NEIGHBOURS_MAX
from requite.typed import Service


class Question(msgspec.Struct):
    """An airport by its ICAO or IATA code, and how many neighbours are wanted. The answer repeats
    the reference."""

    code: str
    count: Annotated[int, msgspec.Meta(ge=1, le=NEIGHBOURS_MAX)] = NEIGHBOURS
    reference: str = ""


class Neighbour(msgspec.Struct):
    """An airport, and its distance on a great circle."""

    icao: str
    name: str
    country: str
    metres: int


class Neighbours(msgspec.Struct):
    """The neighbours of an airport, nearest first."""

    airport: str
    reference: str
    nearest: list[Neighbour]


class UnknownAirport(Exception):
    """No airport has this code."""


airports = Service("airports", version="1.0")


@airports.method(errors=[UnknownAirport])
async def nearest(question: Question) -> Neighbours:
    """Find the airports nearest to one."""
    try:
        code, found = WORLD.nearest(question.code, question.count)
    except LookupError as error:
        raise UnknownAirport(str(error.args[0])) from error
    return Neighbours(code, question.reference, [Neighbour(**row) for row in found])
