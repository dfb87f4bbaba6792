"""`requite titanic forget`: drop a kept request and its reply."""

from __future__ import annotations

from requite.cli.options import PLAIN, QUIET, BrokerUrl, Connection, Logging, Timeout
from requite.cli.titanic.client import Ticket, Titanic
from requite.protocols.titanic.wire import CLOSE


def forget(
    url: BrokerUrl,
    ticket: Ticket,
    /,
    *,
    timeout: Timeout = 10.0,
    connection: Connection = PLAIN,
    logging: Logging = QUIET,
) -> None:
    """Drop a stored request and its reply; a request that still waits will not run.

    For an unknown or already forgotten ticket it does nothing.

      $ requite titanic forget mdp://127.0.0.1:5555 3F2504E04F8941D39A0C0305E82C3301
    """
    logging.start()
    Titanic(url, connection, timeout).ask_about(CLOSE, ticket)
