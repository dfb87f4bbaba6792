"""`requite titanic retry`: retry a request that was set aside."""

from __future__ import annotations

from requite.cli.options import PLAIN, QUIET, BrokerUrl, Connection, Logging, Timeout
from requite.cli.titanic.client import Ticket, Titanic
from requite.protocols.titanic.wire import RETRY


def retry(
    url: BrokerUrl,
    ticket: Ticket,
    /,
    *,
    timeout: Timeout = 10.0,
    connection: Connection = PLAIN,
    logging: Logging = QUIET,
) -> None:
    """Retry a request that was set aside after its last attempt.

    $ requite titanic retry mdp://127.0.0.1:5555 3F2504E04F8941D39A0C0305E82C3301
    """
    logging.start()
    Titanic(url, connection, timeout).ask_about(RETRY, ticket)
