"""`requite call`: make one call."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from cyclopts import Group, Parameter, validators

from requite.chronicle import CALL_ID_SIZE, EventRow, Kind, WriterRole
from requite.cli.access.options import Insecure
from requite.cli.candidates import services, urls_of_services
from requite.cli.checked import CheckedCall, check, is_method
from requite.cli.descriptions import DESCRIBE, typed_errors
from requite.cli.exit_codes import ExitCode, exit_code_of
from requite.cli.failures import advised, is_brokerless
from requite.cli.options import (
    CALLS,
    PLAIN,
    QUIET,
    Connection,
    JournalFolder,
    JsonFlag,
    Logging,
    Timeout,
)
from requite.cli.output import complain, say, say_json
from requite.cli.presence import (
    can_be_asked,
    check_stores_requests,
    name_service,
    unless_refused,
    wait_for_worker,
)
from requite.cli.replies import BytesPrinter, JsonPrinter, Printer
from requite.cli.serving import CannotListenError
from requite.errors import (
    CallError,
    ConfigurationError,
    NoService,
    TransportError,
)
from requite.protocols.titanic.wire import REQUEST
from requite.request import Partial, RetryPolicy, Status
from requite.shell import clock
from requite.shell.journaling import new_name
from requite.speaks.registry import carries, read_endpoints

if TYPE_CHECKING:
    from requite.client import AsyncClient

_SERVICE: Final = Group("Service", sort_key=5)
_DURABLE: Final = Group("Durable requests", sort_key=15)
_STDIN: Final = "-"
_RETRIES: Final = 2


@Parameter(name="*", group=_SERVICE)
@dataclass(frozen=True, slots=True)
class ServiceOptions:
    """The service to call, for a URL that does not name it."""

    service: Annotated[
        str | None,
        Parameter(
            metavar="NAME",
            completer=services,
            help="The service, if the URL does not name it.",
        ),
    ] = None
    bind: Annotated[
        bool,
        Parameter(
            show_default=False,
            help="SP: listen at the URL, and call a service that connects to it.",
        ),
    ] = False
    insecure: Insecure = False


@Parameter(name="*", group=CALLS)
@dataclass(frozen=True, slots=True)
class Calls:
    """How long the call may take, how often it is sent, and how its replies are printed."""

    timeout: Timeout = 10.0
    retries: Annotated[
        int | None,
        Parameter(
            metavar="N",
            validator=validators.Number(gte=0),
            help="Retry up to N times when a connection, worker or service is missing. "
            "[default: 2; over SP no limit]",
        ),
    ] = None
    once: Annotated[
        bool,
        Parameter(
            show_default=False,
            help="The request is not idempotent: never send it again once it may have run.",
        ),
    ] = False
    stream: Annotated[
        bool,
        Parameter(show_default=False, help="Print each partial reply on a line, as it arrives."),
    ] = False
    key: Annotated[
        str,
        Parameter(
            metavar="KEY",
            show_default=False,
            help="Idempotency key: a service with Dedup runs the request once, however often it is "
            "called with this key. With --submit it is stored once, and each submission prints "
            "the same ticket.",
        ),
    ] = ""

    def retry(self, url: str) -> RetryPolicy | None:
        """Return the policy; None for the default of SP."""
        if self.retries is None:
            return None if is_brokerless(url) else RetryPolicy(attempts=_RETRIES + 1)
        return RetryPolicy(attempts=self.retries + 1)


@Parameter(name="*", group=_DURABLE)
@dataclass(frozen=True, slots=True)
class Submission:
    """Whether a Titanic stores the request until it is answered."""

    submit: Annotated[
        bool,
        Parameter(
            show_default=False,
            help="Store the request until it is answered, and print its ticket for "
            "`requite result`. The broker needs a Titanic (`requite broker --titanic DIR`).",
        ),
    ] = False


def call(
    url: Annotated[
        str,
        Parameter(
            completer=urls_of_services,
            help="Broker and service: `mdp://HOST:PORT/SERVICE`, or over TLS "
            "`mdp+tls://HOST:PORT/SERVICE?ca=FILE`. SP service or device: "
            "`sp+tcp://HOST:PORT`, `sp+ipc:///PATH`, `sp+tls://`, `sp+ws://HOST:PORT/PATH`, "
            "`sp+wss://`. Freelance servers: `flp://A:PORT,B:PORT`. Pirate server, or front of a "
            "queue: `pirate://HOST:PORT`. Queue of RabbitMQ: "
            "`amqp://USER:PASSWORD@HOST/VHOST?queue=NAME`.",
        ),
    ],
    body: Annotated[
        str | None,
        Parameter(
            allow_leading_hyphen=True,
            help="Body of the request. `-` reads stdin; so does a missing BODY if stdin is a pipe.",
        ),
    ] = None,
    /,
    *,
    chosen: ServiceOptions = ServiceOptions(),
    calls: Calls = Calls(),
    submission: Submission = Submission(),
    as_json: JsonFlag = False,
    connection: Connection = PLAIN,
    journal: JournalFolder = None,
    logging: Logging = QUIET,
) -> int:
    """Make one call, and write the reply's bytes to stdout unchanged.

    A failure is one sentence on stderr, which says whether the request may have
    run. The exit code gives the kind of failure (`requite --help`).

    With --json the last line is an object: status, body, encoding ("utf-8" or
    "base64"), attempts, elapsed_ms. A failed call prints status, message,
    may_have_executed, request_id (for `requite why`), attempts, elapsed_ms. With
    --stream each partial reply is an object on a line before it.

    With --json, the body for a method of a typed service (`orders.price`, or
    `orders.v2.price` for its version 2) is JSON. It is checked against the
    service's description before it is sent, and `body` is the reply as JSON
    (encoding "json"). Partial replies are printed without --stream, too; the data
    of declared errors are in `data`.

    With --submit the command prints a ticket instead of the reply. `requite
    result` fetches the reply with the ticket, in any process, at any time.

      $ requite call mdp://127.0.0.1:5555/echo "hello, world"
      $ requite call mdp://127.0.0.1:5555/orders.price '{"sku": "a", "count": 2}' --json
      $ requite call sp+tcp://127.0.0.1:7000 "hello, world"
      $ requite call mdp://127.0.0.1:5555/echo "hello, later" --submit
      $ gzip -c big.csv | requite call mdp://127.0.0.1:5555/store --once > receipt
    """
    from requite.shell.aio import run

    logging.start()
    _check_submission(submission, calls.stream or calls.once or chosen.bind, url)
    name = name_service(url, chosen.service)
    target = Target(
        connection.complete(url), chosen.bind, name, connection.dialect, chosen.insecure
    )
    retry = calls.retry(target.url)
    key = os.fsencode(calls.key)
    planned = PlannedCall(target, _read_body(body), calls.timeout, retry, calls.once, key, journal)
    printer: Printer = JsonPrinter() if as_json else BytesPrinter(line_by_line=calls.stream)
    stream = calls.stream
    began = time.monotonic()
    try:
        with advised(url):
            if as_json and is_method(name):
                planned, checked = run(_check(planned))
                stream, printer = stream or checked.streams, JsonPrinter(checked.shown)
            if submission.submit:
                run(_submit(planned, as_json))
            else:
                run(_ask(planned, stream, printer))
    except CannotListenError as error:
        complain(str(error))
        return ExitCode.CANNOT_LISTEN
    except CallError as error:
        printer.failed(error, time.monotonic() - began)
        return exit_code_of(error)
    return ExitCode.OK


@dataclass(frozen=True, slots=True)
class Target:
    """The URL and service of the call; `service` is "" over SP."""

    url: str
    bind: bool
    service: str
    dialect: str | None
    insecure: bool


@dataclass(frozen=True, slots=True)
class PlannedCall:
    """A call and its limits, as the command line gives them."""

    target: Target
    body: bytes
    timeout: float
    retry: RetryPolicy | None
    once: bool
    key: bytes
    journal: Path | None


async def _check(planned: PlannedCall) -> tuple[PlannedCall, CheckedCall]:
    """Check the request with a client without a journal. Return the call to make, and how to print
    its replies."""
    target, left_s = planned.target, planned.timeout
    if target.bind:
        raise ConfigurationError("--json checks calls of typed services, which have no --bind")
    carried = carries(read_endpoints(target.url, ()), target.dialect)
    if can_be_asked(target.url, target.service) and carried.names:
        described_by = target.service.rpartition(".")[0] + DESCRIBE
        left_s = await _wait_unrecorded(planned, unless_served=described_by)
    unnamed = replace(target, service="")
    async with _client(replace(planned, target=unnamed, journal=None, timeout=left_s)) as client:
        checking = check(client, target.url, target.service, planned.body, carried, left_s)
        checked = await unless_refused(client, checking)
    target = target if carried.names else unnamed
    return replace(planned, target=target, body=checked.body), checked


async def _ask(planned: PlannedCall, stream: bool, printer: Printer) -> None:
    waits = can_be_asked(planned.target.url, planned.target.service)
    waits_apart = waits and planned.journal is not None
    left_s = await _wait_unrecorded(planned) if waits_apart else planned.timeout
    client = _client(planned)
    try:
        await _open(client)
        if waits and not waits_apart:
            waiting = wait_for_worker(client, planned.target.service, planned.timeout)
            left_s = await unless_refused(client, waiting)
        left = replace(planned, timeout=left_s)
        with typed_errors():
            await unless_refused(client, _print_replies(client, left, stream, printer))
    finally:
        await client.close()


def _check_submission(submission: Submission, other: bool, url: str) -> None:
    if submission.submit and other:
        raise ConfigurationError("--submit cannot be combined with --stream, --once or --bind")
    if submission.submit:
        check_stores_requests(url)


async def _submit(planned: PlannedCall, as_json: bool) -> None:
    async with _client(planned) as client:
        ticket = await unless_refused(client, _ticket(client, planned))
    if as_json:
        say_json({"status": Status.OK.name, "ticket": ticket})
    else:
        say(ticket)


async def _ticket(client: AsyncClient, planned: PlannedCall) -> str:
    left_s = await wait_for_worker(client, REQUEST, planned.timeout)
    return await client.submit(planned.body, timeout=left_s, idempotency_key=planned.key)


async def _wait_unrecorded(planned: PlannedCall, *, unless_served: str = "") -> float:
    """Wait with a client without a journal, since its queries to the broker are not the user's
    calls (`wait_for_worker`). Record a `NoService` in the journal as the user's failed call."""
    from requite.journal.folder import prepare

    if planned.journal is not None:
        prepare(planned.journal)
    began = clock.now()
    try:
        async with _client(replace(planned, journal=None)) as asking:
            return await wait_for_worker(
                asking, planned.target.service, planned.timeout, unless_served=unless_served
            )
    except NoService as error:
        if planned.journal is not None:
            await asyncio.to_thread(_record_failure, planned, error, began)
        raise


def _record_failure(planned: PlannedCall, error: NoService, began: float) -> None:
    from requite.journal import Journal

    name, ended = new_name(), clock.now()
    call_id, service = name + bytes(CALL_ID_SIZE - len(name)), planned.target.service.encode()
    deadline = max(ended, began + planned.timeout)
    failure: dict[str, Any] = {
        "outcome": Status.NO_SERVICE,
        "error": NoService.__name__,
        "reason": str(error),
    }
    with Journal(planned.journal or "", WriterRole.CLIENT, name) as journal:
        journal.chronicle.event_rows += [
            EventRow(
                began, Kind.ACCEPTED, call_id, service, size=len(planned.body), value=deadline
            ),
            EventRow(ended, Kind.ANSWERED, call_id, service, **failure),
        ]


def _client(planned: PlannedCall) -> AsyncClient:
    from requite.client import AsyncClient

    target = planned.target
    return AsyncClient(
        () if target.bind else target.url,
        bind=target.url if target.bind else (),
        service=target.service or None,
        timeout=planned.timeout,
        retry=planned.retry,
        dialect=target.dialect,
        insecure=target.insecure,
        journal=planned.journal,
    )


async def _open(client: AsyncClient) -> None:
    """Connect and listen; print each listening address on stderr, for services to connect to."""
    try:
        await client.__aenter__()
    except TransportError as error:
        raise CannotListenError(str(error)) from error
    for url in client.addresses:
        complain(f"listening on {url}")


async def _print_replies(
    client: AsyncClient, planned: PlannedCall, stream: bool, printer: Printer
) -> None:
    """Print the replies. Raises the errors of calls."""
    options: dict[str, Any] = {
        "timeout": planned.timeout,
        "idempotent": not planned.once,
        "idempotency_key": planned.key,
    }
    if not stream:
        printer.final(await client.call(planned.body, **options))
        return
    async for part in client.stream(planned.body, **options):
        if isinstance(part, Partial):
            printer.partial(part)
        else:
            printer.final(part)


def _read_body(word: str | None) -> bytes:
    if word == _STDIN or (word is None and not sys.stdin.isatty()):
        return sys.stdin.buffer.read()
    return b"" if word is None else os.fsencode(word)
