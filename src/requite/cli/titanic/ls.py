"""`requite titanic ls`: what is kept."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Literal

from cyclopts import Parameter, validators

from requite.cli.options import OUTPUT, PLAIN, QUIET, BrokerUrl, Connection, Logging, Timeout
from requite.cli.output import printable, say, say_json
from requite.cli.titanic.client import Titanic, first_frame
from requite.protocols.titanic.wire import LIST

_PAGE: Final = 1000
_US: Final = 1_000_000


def ls(
    url: BrokerUrl,
    /,
    *,
    state: Annotated[
        Literal["waiting", "sent", "answered", "poisoned"] | None,
        Parameter(
            help="Only requests in this state: waiting, at a worker, answered, or set aside."
        ),
    ] = None,
    limit: Annotated[
        int | None,
        Parameter(metavar="N", validator=validators.Number(gt=0), help="List at most N requests."),
    ] = None,
    timeout: Timeout = 10.0,
    as_json: Annotated[
        bool,
        Parameter(
            name="--json", show_default=False, group=OUTPUT, help="One object per line and request."
        ),
    ] = False,
    connection: Connection = PLAIN,
    logging: Logging = QUIET,
) -> None:
    """List the requests that a Titanic stores, oldest first.

    One line per request: ticket, state, service, time of submission (UTC), number
    of attempts, bytes of the request and of the reply, the user that submitted it
    (if the broker knows its users), and why the last attempt failed.

      $ requite titanic ls mdp://127.0.0.1:5555 --state poisoned
    """
    logging.start()
    for row in rows(Titanic(url, connection, timeout), state or "", limit):
        if as_json:
            say_json(row)
        else:
            say(_line(row))


def rows(titanic: Titanic, state: str, limit: int | None) -> Iterator[dict[str, Any]]:
    """Yield the record of each request; fetch page by page."""
    cursor, left = b"", limit
    while left is None or left > 0:
        size = _PAGE if left is None else min(_PAGE, left)
        frames = titanic.ask(LIST, cursor, b"%d" % size, state.encode())
        lines = first_frame(frames, LIST).splitlines()
        yield from map(json.loads, lines)
        left = None if left is None else left - len(lines)
        cursor = frames[1] if len(frames) > 1 else b""
        if not cursor:
            return


def _line(row: dict[str, Any]) -> str:
    at = datetime.fromtimestamp(row["submitted_us"] / _US, UTC).strftime("%Y-%m-%d %H:%M:%S")
    tries = f"{row['attempts']} tried"
    sizes = f"{row['size']:,} B"
    if row["state"] == "answered":
        sizes += f" -> {row['reply_size']:,} B"
        sizes += " (negative)" if row.get("negative") else ""
    reason = f"  {row['reason']}" if row["reason"] else ""
    reason = f"  of {row['owner']}{reason}" if row.get("owner") else reason
    line = f"{row['ticket']}  {row['state']:<8}  {row['service']}  {at}  {tries}  {sizes}{reason}"
    return printable(line)
