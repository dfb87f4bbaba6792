"""The service `nearest-at-home`, for a pool: the neighbours of an airport within its country.

The key of a group is a country code of two letters (ISO 3166-1). Its workers load the airports of
that country only, from `airportsdata` (extra `demo`), when they import this module.

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
    """Reply with the airports of the country nearest to the requested one."""
    return HOME.answer(request.body)
