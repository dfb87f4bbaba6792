"""`requite stub`: write classes to call a typed service."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from requite.cli.candidates import typed_services
from requite.cli.descriptions import fetch
from requite.cli.failures import advised
from requite.cli.options import PLAIN, QUIET, Connection, Logging, Timeout
from requite.cli.output import say


def stub(
    url: Annotated[str, Parameter(help="Broker, or a service without one, as for `call`.")],
    service: Annotated[
        str,
        Parameter(
            completer=typed_services,
            help="The name of a typed service: `orders`, or `orders.v2` for its version 2.",
        ),
    ],
    /,
    *,
    timeout: Timeout = 5.0,
    connection: Connection = PLAIN,
    logging: Logging = QUIET,
) -> None:
    """Write a module of Python with the classes to call a typed service.

    It has the types of the messages, the errors, and two `Protocol` classes: one
    for `AsyncClient.bind`, and one whose name ends with `Blocking` for
    `Client.bind`.

      $ requite stub mdp://127.0.0.1:5555 orders > orders_api.py
    """
    from requite.shell.aio import run
    from requite.typed.stub import stub_of

    logging.start()
    with advised(url):
        [described] = run(fetch(url, (service,), connection, timeout))
    say(stub_of(described).rstrip("\n"))
