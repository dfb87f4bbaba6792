"""`requite admin kick`: end connections of a broker."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from requite.cli.admin.asking import operate
from requite.cli.options import PLAIN, QUIET, BrokerUrl, Connection, JsonFlag, Logging, Timeout


def kick(
    url: BrokerUrl,
    peer: Annotated[
        str,
        Parameter(
            help="`user:NAME` for all connections of a user, or the address or instance of one "
            "connection in hex, as `requite services --workers` shows it."
        ),
    ],
    /,
    *,
    reason: Annotated[
        str, Parameter(show_default=False, help="Why, for the worker's log and the broker's.")
    ] = "",
    timeout: Timeout = 5.0,
    as_json: JsonFlag = False,
    connection: Connection = PLAIN,
    logging: Logging = QUIET,
) -> int:
    """End connections of workers or clients. Other workers get the requests.

    A kick is no ban: clients and workers connect again after a moment. To keep a
    user out, remove it from the access file. Needs `admin = ["kick"]` at a broker
    with an access file. Prints how many connections ended.

      $ requite admin kick mdp://127.0.0.1:5555 user:shop --reason "floods us"
    """
    logging.start()
    more = [reason] if reason else []
    return operate(
        url, "kick", peer, *more, timeout_s=timeout, as_json=as_json, connection=connection
    )
