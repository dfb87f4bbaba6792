"""The typed service `airports` within one country, for a pool.

The key of a group is a country code of two letters (ISO 3166-1). Its workers load the airports of
that country only, from `airportsdata` (extra `demo`), when they import this module.

    [driver]
    kind = "subprocess"
    command = ["requite", "worker", "requite.examples.countries:airports", "--pool"]

    $ requite call 'amqp://localhost/?pool=countries&key=IS' --service airports.nearest \
        '{"code": "RKV", "count": 3}' --json

Its messages are those of `requite.examples.typed`.
"""

from __future__ import annotations

import os
from typing import Final

from requite.examples.questions import service_of
from requite.examples.table import Airports, load, within

HOME: Final = Airports(within(os.environ.get("WORKER_KEY", ""), load()))

airports = service_of(HOME)
