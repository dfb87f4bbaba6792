"""The service `nearest-at-home`, for a pool: the neighbours of an airport within its country.

The key of a group is a country by its two letters (ISO 3166-1), and its workers hold the airports
of that country alone: importing this module loads them from `airportsdata` (extra `demo`).

    [driver]
    kind = "subprocess"
    command = ["requite", "worker", "requite.examples.countries:nearest_at_home", "--pool"]

    $ requite call 'amqp://localhost/?pool=countries&key=IS' "RKV 3"

Requests and replies are described in `requite.examples.table`.
"""

from __future__ import annotations

import os
from typing import Final

from requite.examples.table import Airports, load, within
from requite.request import Request
from requite.worker import service

HOME: Final = Airports(within(os.environ.get("WORKER_KEY", ""), load()))


@service("nearest-at-home")
async def nearest_at_home(request: Request) -> bytes:
    """Answer with the airports of the country nearest to the one that is named."""
    return HOME.answer(request.body)
