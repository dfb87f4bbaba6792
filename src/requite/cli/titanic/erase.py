"""`requite titanic erase`: erase the requests of one user."""

from __future__ import annotations

import json
from typing import Annotated

from cyclopts import Parameter

from requite.cli.failures import place_of
from requite.cli.options import PLAIN, QUIET, BrokerUrl, Connection, Logging, Timeout
from requite.cli.output import counted, printable, say
from requite.cli.titanic.client import Titanic, first_frame
from requite.errors import StoreUnavailable
from requite.protocols.titanic.wire import ERASE, STATS


def erase(
    url: BrokerUrl,
    /,
    *,
    owner: Annotated[
        str,
        Parameter(
            metavar="NAME",
            help="The user whose requests to erase, as `requite titanic ls` shows it; "
            "'' for requests without a user.",
        ),
    ],
    timeout: Timeout = 10.0,
    connection: Connection = PLAIN,
    logging: Logging = QUIET,
) -> None:
    """Erase all durable requests of one user, with replies and idempotency keys.

    Requests that wait or run are closed as well, and their handlers are cancelled.
    Titanic then rewrites the files that held them, without the erased bodies. The
    last line says how many files are left to be rewritten; `requite titanic stats`
    counts them as `store.rewriting`. A replica does the same with its copy.

      $ requite titanic erase mdp://127.0.0.1:5555 --owner ann
    """
    logging.start()
    titanic = Titanic(url, connection, timeout)
    if _files_left(titanic) is None:
        raise StoreUnavailable(
            f"the Titanic at {place_of(url)} is of an older version, which cannot erase: upgrade"
            " it first",
            may_have_executed=False,
        )
    count, cursor, is_complete = 0, b"", False
    while not is_complete:
        frames = titanic.ask(ERASE, owner.encode(), cursor)
        count += int(first_frame(frames, ERASE))
        cursor = frames[1] if len(frames) > 1 else b""
        is_complete = not cursor
    say(printable(f"erased {counted(count, 'request')} of {owner or 'no user'}"))
    say(f"{counted(_files_left(titanic) or 0, 'file')} left to be rewritten")


def _files_left(titanic: Titanic) -> int | None:
    """Return how many files are left to be rewritten; None for a Titanic that cannot erase."""
    left: int | None = json.loads(first_frame(titanic.ask(STATS), STATS))["store"].get("rewriting")
    return left
