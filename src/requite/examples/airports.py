"""The service `nearest`: the neighbours of an airport, from a table in the worker's memory.

Importing this module loads the airports of the package `airportsdata` (extra `demo`) and builds a
k-d tree over them, once per process (about half a second). Requests and replies are described in
`requite.examples.table`.
"""

from __future__ import annotations

from typing import Final

from requite.examples.table import Airports, load
from requite.request import Request
from requite.worker import service

WORLD: Final = Airports(load())


@service("nearest")
async def nearest(request: Request) -> bytes:
    """Reply with the airports nearest to the requested one; takes about 50 µs."""
    return WORLD.answer(request.body)
