"""`requite result`: wait for the reply to a durable request."""

from __future__ import annotations

import time
from typing import Annotated

from cyclopts import Parameter

from requite.cli.descriptions import typed_errors
from requite.cli.exit_codes import ExitCode, exit_code_of
from requite.cli.failures import advised
from requite.cli.options import (
    CALLS,
    PLAIN,
    QUIET,
    BrokerUrl,
    Connection,
    JsonFlag,
    Logging,
    Timeout,
)
from requite.cli.presence import check_stores_requests, unless_refused, wait_for_worker
from requite.cli.replies import BytesPrinter, JsonPrinter, Printer
from requite.client.durable import check_ticket
from requite.errors import CallError
from requite.protocols.titanic.wire import REPLY


def result(
    url: BrokerUrl,
    ticket: Annotated[
        str, Parameter(help="The ticket that `requite call --submit` printed: 32 hex digits.")
    ],
    /,
    *,
    timeout: Timeout = 10.0,
    forget: Annotated[
        bool,
        Parameter(
            group=CALLS,
            show_default=False,
            help="Drop the request and its reply after the reply is printed.",
        ),
    ] = False,
    as_json: JsonFlag = False,
    connection: Connection = PLAIN,
    logging: Logging = QUIET,
) -> int:
    """Wait for the reply to a durable request, and write its bytes to stdout.

    `requite call --submit` stored the request and printed its ticket. The reply
    stays until it is forgotten, so that it can be fetched again.

    Exit code 3: there is no reply yet, and the request is still stored. 6: the
    request was set aside after its last attempt. 1: the ticket is unknown, or the
    reply is a negative one.
    With --json the last line is an object as printed by `requite call --json`.

      $ requite result mdp://127.0.0.1:5555 3F2504E04F8941D39A0C0305E82C3301
    """
    from requite.shell.aio import run

    logging.start()
    check_stores_requests(url)
    place = connection.complete(url)
    printer: Printer = JsonPrinter() if as_json else BytesPrinter(line_by_line=False)
    began = time.monotonic()
    try:
        with advised(url):
            run(_fetch(place, connection.dialect, check_ticket(ticket), timeout, forget, printer))
    except CallError as error:
        printer.failed(error, time.monotonic() - began)
        return exit_code_of(error)
    return ExitCode.OK


async def _fetch(
    url: str, dialect: str | None, ticket: str, timeout_s: float, forget: bool, printer: Printer
) -> None:
    from requite.client import AsyncClient

    async with AsyncClient(url, dialect=dialect) as client:
        waiting = wait_for_worker(client, REPLY, timeout_s)
        left_s = await unless_refused(client, waiting)
        with typed_errors():
            printer.final(await client.result(ticket, timeout=left_s))
        if forget:
            await client.forget(ticket)
