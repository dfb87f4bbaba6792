"""`requite admin pause`: hold the requests of a service."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from requite.cli.admin.asking import operate
from requite.cli.candidates import services
from requite.cli.options import PLAIN, QUIET, BrokerUrl, Connection, JsonFlag, Logging, Timeout


def pause(
    url: BrokerUrl,
    service: Annotated[str, Parameter(completer=services, help="The service.")],
    /,
    *,
    timeout: Timeout = 5.0,
    as_json: JsonFlag = False,
    connection: Connection = PLAIN,
    logging: Logging = QUIET,
) -> int:
    """Hold the requests of a service: workers get no more until it is resumed.

    Running requests finish. New ones are queued, within the limits of the broker,
    and time out as usual; requests do not fail because the service has no
    workers. `requite services` shows which services are paused. A broker that is
    restarted, and the other broker of a pair, do not know of the pause.

    Needs `admin = ["pause"]` at a broker with an access file. Prints how many
    requests wait.

      $ requite admin pause mdp://127.0.0.1:5555 pay
    """

    logging.start()
    return operate(url, "pause", service, timeout_s=timeout, as_json=as_json, connection=connection)
