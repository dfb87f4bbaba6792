"""`requite result`: wait for the reply to a kept request."""

from __future__ import annotations

import time
from typing import Annotated

from cyclopts import Parameter

from requite.cli.call import BytesPrinter, JsonPrinter, Printer
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
from requite.cli.presence import check_keeps_requests, unless_refused, wait_for_worker
from requite.client.durable import check_ticket
from requite.errors import CallError
from requite.protocols.titanic.wire import REPLY


def result(
    url: BrokerUrl,
    ticket: Annotated[str, Parameter(help="What `requite call --submit` printed: 32 hex digits.")],
    /,
    *,
    timeout: Timeout = 10.0,
    forget: Annotated[
        bool,
        Parameter(
            group=CALLS,
            show_default=False,
            help="Have the request and its reply dropped once the reply has been printed.",
        ),
    ] = False,
    as_json: JsonFlag = False,
    connection: Connection = PLAIN,
    logging: Logging = QUIET,
) -> int:
    """Wait for the reply to a kept request; its bytes go to stdout as they are.

    The request was kept by `requite call --submit`, in this process or long
    ago. Its reply stays until it is forgotten, so it may be asked for again.

    Exit code 3: there is no reply yet, and the request is still kept. 6: it was
    put aside, its attempts being used up. 1: nothing is kept under the ticket.
    With --json the last line is an object, as that of `requite call`.

      $ requite result mdp://127.0.0.1:5555 3F2504E04F8941D39A0C0305E82C3301
    """
    from requite.shell.aio import run

    logging.start()
    check_keeps_requests(url)
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
        printer.final(await client.result(ticket, timeout=left_s))
        if forget:
            await client.forget(ticket)
