"""`requite admin drain`: have a broker finish its requests, and end."""

from __future__ import annotations

from requite.cli.admin.asking import operate
from requite.cli.options import PLAIN, QUIET, BrokerUrl, Connection, JsonFlag, Logging, Timeout


def drain(
    url: BrokerUrl,
    /,
    *,
    timeout: Timeout = 5.0,
    as_json: JsonFlag = False,
    connection: Connection = PLAIN,
    logging: Logging = QUIET,
) -> int:
    """Drain a broker: it refuses new requests, finishes the pending ones, and ends.

    It ends as on SIGTERM; in a pair, the other broker takes over at once. Needs
    `admin = ["drain"]` at a broker with an access file. Prints how many requests
    are pending.

      $ requite admin drain mdp://127.0.0.1:5555
    """

    logging.start()
    return operate(url, "drain", "", timeout_s=timeout, as_json=as_json, connection=connection)
