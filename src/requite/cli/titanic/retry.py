"""`requite titanic retry`: have a request that was put aside tried again."""

from __future__ import annotations

from requite.cli.options import PLAIN, QUIET, BrokerUrl, Connection, Logging, Timeout
from requite.cli.titanic.asking import Ticket, Titanic
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
    """Have a request tried again that was put aside, its attempts being used up.

    $ requite titanic retry mdp://127.0.0.1:5555 3F2504E04F8941D39A0C0305E82C3301
    """
    logging.start()
    Titanic(url, connection, timeout).ask_about(RETRY, ticket)
