"""`requite titanic promote`: let a replica take over."""

from __future__ import annotations

from requite.cli.options import PLAIN, QUIET, BrokerUrl, Connection, Logging, Timeout
from requite.cli.titanic.asking import Titanic
from requite.protocols.titanic.wire import PROMOTE


def promote(
    url: BrokerUrl,
    /,
    *,
    timeout: Timeout = 10.0,
    connection: Connection = PLAIN,
    logging: Logging = QUIET,
) -> None:
    """Let the replica at a broker take over: from now on it runs what it keeps.

    It takes nothing more from the Titanic that it followed. If that one still
    runs, or comes back, it is told that it was superseded, and stops; as long as
    the two cannot reach each other, each of them may run what both have.

      $ requite titanic promote mdp://standby:5555
    """
    logging.start()
    Titanic(url, connection, timeout).ask(PROMOTE)
