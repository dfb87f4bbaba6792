"""`requite titanic stats`: counts of a Titanic."""

from __future__ import annotations

import json
from typing import Any

from requite.cli.options import PLAIN, QUIET, BrokerUrl, Connection, JsonFlag, Logging, Timeout
from requite.cli.output import printable, say, say_json
from requite.cli.titanic.client import Titanic, first_frame
from requite.protocols.titanic.wire import STATS


def stats(
    url: BrokerUrl,
    /,
    *,
    timeout: Timeout = 10.0,
    as_json: JsonFlag = False,
    connection: Connection = PLAIN,
    logging: Logging = QUIET,
) -> None:
    """Show the requests of a Titanic by state, its store and its replica.

    $ requite titanic stats mdp://127.0.0.1:5555
    """
    logging.start()
    frames = Titanic(url, connection, timeout).ask(STATS)
    told: dict[str, Any] = json.loads(first_frame(frames, STATS))
    if as_json:
        say_json(told)
    else:
        _say_all(told)


def _say_all(told: dict[str, Any], prefix: str = "") -> None:
    for name, value in told.items():
        if isinstance(value, dict):
            _say_all(value, f"{prefix}{name}.")
        else:
            is_count = isinstance(value, int) and not isinstance(value, bool)
            shown = f"{value:,}" if is_count else value
            say(printable(f"{prefix + name:<28}{shown}"))
