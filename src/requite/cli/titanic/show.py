"""`requite titanic show`: show a durable request and its reply."""

from __future__ import annotations

import json
from typing import Any

from requite.cli.options import PLAIN, QUIET, BrokerUrl, Connection, JsonFlag, Logging, Timeout
from requite.cli.output import printable, say, say_json
from requite.cli.replies import encode_body
from requite.cli.titanic.client import Ticket, Titanic, first_frame
from requite.protocols.titanic.wire import SHOW


def show(
    url: BrokerUrl,
    ticket: Ticket,
    /,
    *,
    timeout: Timeout = 10.0,
    as_json: JsonFlag = False,
    connection: Connection = PLAIN,
    logging: Logging = QUIET,
) -> None:
    """Show the state, body and reply of one durable request.

    $ requite titanic show mdp://127.0.0.1:5555 3F2504E04F8941D39A0C0305E82C3301
    """
    logging.start()
    frames = Titanic(url, connection, timeout).ask_about(SHOW, ticket)
    record: dict[str, Any] = json.loads(first_frame(frames, SHOW))
    asked = record.get("request_frames", 1)
    bodies = {"request": frames[1 : 1 + asked], "reply": frames[1 + asked :]}
    if as_json:
        say_json(
            record | {name: [encode_body(each) for each in body] for name, body in bodies.items()}
        )
        return
    for name, value in record.items():
        say(printable(f"{name:<16}{value}"))
    for name, body in bodies.items():
        for each in body:
            say(f"{name:<16}{printable(each.decode(errors='backslashreplace'))}")
