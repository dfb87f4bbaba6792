"""`requite titanic promote`: promote a replica."""

from __future__ import annotations

from requite.cli.options import PLAIN, QUIET, BrokerUrl, Connection, Logging, Timeout
from requite.cli.titanic.client import Titanic
from requite.protocols.titanic.wire import PROMOTE


def promote(
    url: BrokerUrl,
    /,
    *,
    timeout: Timeout = 10.0,
    connection: Connection = PLAIN,
    logging: Logging = QUIET,
) -> None:
    """Promote the replica behind a broker: it starts to run its stored requests.

    The replica accepts no more copies from the former primary. A former primary
    that runs, or restarts, stops as soon as it can reach the promoted replica.
    Until then both may run the same request.

      $ requite titanic promote mdp://standby:5555
    """
    logging.start()
    Titanic(url, connection, timeout).ask(PROMOTE)
