"""The typed service `airports`, for any table of airports: its messages and its method."""

from __future__ import annotations

from typing import Annotated

import msgspec

from requite.examples.table import NEIGHBOURS, NEIGHBOURS_MAX, Airports
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


def service_of(table: Airports) -> Service:
    """Return the service of the airports in a table."""
    airports = Service("airports", version="1.0")

    @airports.method(errors=[UnknownAirport])
    async def nearest(question: Question) -> Neighbours:
        """Find the airports nearest to one."""
        try:
            code, found = table.nearest(question.code, question.count)
        except LookupError as error:
            raise UnknownAirport(str(error.args[0])) from error
        return Neighbours(code, question.reference, [Neighbour(**row) for row in found])

    return airports
