"""The typed service `airports`: the neighbours of an airport, with the same table as `nearest`.

    requite worker requite.examples.typed:airports --connect mdp://127.0.0.1:5555
    requite describe mdp://127.0.0.1:5555 airports
    requite call mdp://127.0.0.1:5555/airports.nearest '{"code": "FRA", "count": 3}' --json

Requires the extra `demo`. The demo (`requite demo`) serves it over each of its protocols: where
messages carry no service names, the name of the method is in their bodies
(docs/protocols/typed.md, section "In the body").
"""

from __future__ import annotations

from requite.examples.airports import WORLD
from requite.examples.questions import service_of

airports = service_of(WORLD)
