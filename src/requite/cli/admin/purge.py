"""`requite admin purge`: cancel the queued requests of a service."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from requite.cli.admin.asking import operate
from requite.cli.candidates import services
from requite.cli.options import PLAIN, QUIET, BrokerUrl, Connection, JsonFlag, Logging, Timeout


def purge(
    url: BrokerUrl,
    service: Annotated[str, Parameter(completer=services, help="The service.")],
    /,
    *,
    timeout: Timeout = 5.0,
    as_json: JsonFlag = False,
    connection: Connection = PLAIN,
    logging: Logging = QUIET,
) -> int:
    """Cancel the queued requests of a service: their callers get Cancelled.

    Requests at workers go on. Needs `admin = ["purge"]` at a broker with an
    access file. Prints how many requests were cancelled.

      $ requite admin purge mdp://127.0.0.1:5555 pay
    """

    logging.start()
    return operate(url, "purge", service, timeout_s=timeout, as_json=as_json, connection=connection)
