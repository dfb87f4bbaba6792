"""`requite gateway`: make typed services callable over HTTP."""

from __future__ import annotations

import logging as std_logging
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from requite.cli.access.options import AccessFile, Insecure
from requite.cli.config import DEFAULT_SETUP, Setup
from requite.cli.options import (
    CALLS,
    LIMITS,
    PLAIN,
    POSITIVE,
    QUIET,
    URLS,
    Connection,
    Logging,
    in_mib,
    within,
)
from requite.cli.output import say
from requite.cli.tls import NO_TLS, Tls
from requite.errors import ConfigurationError
from requite.speaks.url import redact

if TYPE_CHECKING:
    from requite.cli.serving import Reload
    from requite.gateway.server import GatewayServer

_log = std_logging.getLogger("requite.cli")


def _parse_place(text: str) -> None:
    from requite.web.place import parse_place

    parse_place(text)


def gateway(
    url: Annotated[
        str,
        Parameter(validator=URLS, help="Broker: `mdp://HOST:PORT`; or RabbitMQ: `amqp://HOST`."),
    ],
    /,
    *services: Annotated[
        str,
        Parameter(
            name="SERVICE",
            help="The name of a typed service: `orders`, or `orders.v2`. Without one, all that the "
            "broker knows; RabbitMQ needs names.",
        ),
    ],
    http: Annotated[
        str,
        Parameter(
            metavar="HOST:PORT",
            validator=within(_parse_place),
            help="Listen here. `:8080` is port 8080 of loopback; port 0 chooses a free port.",
        ),
    ] = "127.0.0.1:8080",
    host: Annotated[
        tuple[str, ...],
        Parameter(
            metavar="NAME",
            show_default=False,
            help="Accept requests with this host in their URL, too, such as the name of a proxy; "
            "repeatable.",
        ),
    ] = (),
    timeout: Annotated[
        float,
        Parameter(
            metavar="SECONDS",
            group=CALLS,
            validator=POSITIVE,
            help="Deadline of calls without X-Request-Timeout.",
        ),
    ] = 30.0,
    timeout_max: Annotated[
        float,
        Parameter(
            metavar="SECONDS",
            group=CALLS,
            validator=POSITIVE,
            help="The most that X-Request-Timeout may ask for.",
        ),
    ] = 300.0,
    drain_timeout: Annotated[
        float,
        Parameter(
            metavar="SECONDS",
            group=CALLS,
            validator=POSITIVE,
            help="How long a stopped gateway waits for calls in progress.",
        ),
    ] = 30.0,
    body_size_max: Annotated[
        int,
        Parameter(
            metavar="BYTES",
            group=LIMITS,
            validator=POSITIVE,
            show_default=in_mib,
            help="Refuse larger bodies with 413.",
        ),
    ] = 1 << 20,
    concurrency: Annotated[
        int,
        Parameter(
            metavar="N",
            group=LIMITS,
            validator=POSITIVE,
            help="Refuse requests with 503 while N are in progress, streams included.",
        ),
    ] = 1024,
    access: AccessFile = None,
    insecure: Insecure = False,
    tls: Tls = NO_TLS,
    connection: Connection = PLAIN,
    logging: Logging = QUIET,
    setup: Setup = DEFAULT_SETUP,
) -> int:
    """Make typed services callable over HTTP.

    `POST /orders.price` calls the method `price` of the service `orders`, with
    JSON in and out, and server-sent events for partial replies. `/` is a page to
    try the methods, `/openapi.json` describes them. It prints
    `listening on URL`.

    A failed request is answered with problem details (RFC 9457), which say
    whether the method may have run. With --access a request needs the token or
    the password of a user who may call the method.

    SIGTERM or Ctrl-C drains: `/ready` and new requests are answered with 503,
    those in progress are finished, and the exit code is 0. SIGHUP reads
    --access again.

      $ requite gateway mdp://127.0.0.1:5555
      $ curl localhost:8080/orders.price --json '{"sku": "apple", "count": 2}'
    """
    from requite.cli.serving import run_until_stopped
    from requite.gateway.policy import GatewayPolicy
    from requite.gateway.server import GatewayServer
    from requite.web.place import parse_place

    logging.start()
    server = GatewayServer(
        connection.complete(url),
        parse_place(http),
        services=services,
        access=access,
        insecure=insecure,
        hosts=host,
        tls=tls.settings(),
        policy=GatewayPolicy(
            body_size_max=body_size_max,
            concurrency=concurrency,
            timeout=timeout,
            timeout_max=timeout_max,
        ),
        dialect=connection.dialect,
        drain_timeout=drain_timeout,
    )
    if setup.check:
        what = ", ".join(services) or "all typed services"
        return setup.report(
            f"the gateway would listen on {http} for {what} of {redact(url)}",
            None if access is None else f"for the users of {access}",
            folders={},
        )
    reload = None if access is None else _reloader(server)
    return run_until_stopped(server, lambda: say(f"listening on {server.url}"), reload=reload)


def _reloader(server: GatewayServer) -> Reload:
    async def read_access() -> None:
        try:
            await server.gateway.read_access()
        except ConfigurationError as error:
            _log.warning("SIGHUP: the users and their rights remain as they were: %s", error)

    return read_access
