"""`requite admin resume`: hand out the requests of a paused service again."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from requite.cli.admin.asking import operate
from requite.cli.candidates import services
from requite.cli.options import PLAIN, QUIET, BrokerUrl, Connection, JsonFlag, Logging, Timeout


def resume(
    url: BrokerUrl,
    service: Annotated[str, Parameter(completer=services, help="The service.")],
    /,
    *,
    timeout: Timeout = 5.0,
    as_json: JsonFlag = False,
    connection: Connection = PLAIN,
    logging: Logging = QUIET,
) -> int:
    """Hand out the requests of a paused service again, in the order of each client.

    Needs `admin = ["pause"]` at a broker with an access file. Prints how many
    requests waited.

      $ requite admin resume mdp://127.0.0.1:5555 pay
    """

    logging.start()
    return operate(
        url, "resume", service, timeout_s=timeout, as_json=as_json, connection=connection
    )
