"""`requite worker`: serve functions of a Python module."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final

from cyclopts import Group, Parameter

from requite.cli.access.options import AccessFile, Insecure
from requite.cli.config import DEFAULT_SETUP, Setup
from requite.cli.credentials import names_keys, names_user
from requite.cli.options import (
    BOUND_URLS,
    INTERVAL,
    LIVENESS,
    PLAIN,
    POSITIVE,
    QUIET,
    URLS,
    Connection,
    JournalFolder,
    Logging,
    one_of,
    within,
)
from requite.cli.output import say
from requite.cli.retention import JournalRetain, JournalShip, journal_option
from requite.cli.tls import NO_TLS, Tls
from requite.cli.watching import UNWATCHED, Watching
from requite.core.liveness import HeartbeatPolicy
from requite.errors import ConfigurationError, RequiteError, TransportError
from requite.protocols.scalability.policy import RepPolicy
from requite.speaks.url import redact

if TYPE_CHECKING:
    from requite.metrics.monitor import Watched
    from requite.worker import Worker

_ADDRESSES: Final = Group(
    "Addresses", sort_key=5, validator=one_of("--connect", "--bind", "--pool")
)
_HANDLERS: Final = Group("Handlers", sort_key=10)
_LIVENESS: Final = Group("Liveness", sort_key=20)
_DEFAULTS: Final = HeartbeatPolicy()
_FINITE: Final = within(lambda _number: None)
_HOPS: Final = within(lambda hops: RepPolicy(hops=hops))


@Parameter(name="*", group=_ADDRESSES)
@dataclass(frozen=True, slots=True)
class Addresses:
    """Addresses to connect to, and addresses to listen at."""

    connect: Annotated[
        tuple[str, ...],
        Parameter(
            metavar="URL",
            validator=URLS,
            show_default=False,
            help="Connect to a broker: `mdp://HOST:PORT` or `mdp+tls://HOST:PORT?ca=FILE`; "
            "to SP clients or devices: `sp+tcp://HOST:PORT`; to the back of a queue: "
            "`pirate://HOST:PORT`; or to RabbitMQ: `amqp://USER:PASSWORD@HOST/VHOST`. Repeatable.",
        ),
    ] = ()
    bind: Annotated[
        tuple[str, ...],
        Parameter(
            metavar="URL",
            validator=BOUND_URLS,
            show_default=False,
            help="Listen for SP clients: `sp+tcp://HOST:PORT`, `sp+ipc:///PATH`, `sp+tls://`, "
            "`sp+ws://HOST:PORT/PATH` or `sp+wss://`; for Freelance clients: `flp://HOST:PORT` or "
            "`flp+tls://`; or for Lazy Pirate clients: `pirate://HOST:PORT` or `pirate+tls://`. "
            "Repeatable. Port 0 chooses a free port.",
        ),
    ] = ()
    access: AccessFile = None
    insecure: Insecure = False
    pool: Annotated[
        bool,
        Parameter(
            show_default=False,
            help="Serve a group of a pool. The pool manager sets the addresses in the environment: "
            "WORKER_AMQP_URL or WORKER_BROKER_URL, WORKER_POOL, WORKER_KEY, WORKER_ID and more.",
        ),
    ] = False
    wait_connected: Annotated[
        float | None,
        Parameter(
            metavar="SECONDS",
            validator=(POSITIVE, _FINITE),
            help="Exit with 5 unless all URLs of --connect are connected by then. A broker of MDP "
            "0.1 or 0.2 counts as connected at its first heartbeat (2.5 s for the Guide's broker). "
            "[default: retry without limit]",
        ),
    ] = None
    hops: Annotated[
        int | None,
        Parameter(
            metavar="N",
            validator=_HOPS,
            help="SP: drop requests whose stack has more than N tags, one per device and one of "
            "the client. [default: 8]",
        ),
    ] = None


@Parameter(name="*", group=_HANDLERS)
@dataclass(frozen=True, slots=True)
class Handlers:
    """Concurrency and time limits of the handlers."""

    capacity: Annotated[
        int | None,
        Parameter(
            metavar="N",
            validator=POSITIVE,
            help="Requests to accept at a time, per service. Requests that no handler runs yet "
            "wait in this worker, so set it low for slow handlers. [default: 16; MDP 0.1 and 0.2: "
            "1]",
        ),
    ] = None
    threads: Annotated[
        int | None,
        Parameter(
            metavar="N",
            validator=POSITIVE,
            help="Threads for plain (not `async`) functions. [default: the capacity]",
        ),
    ] = None
    handler_timeout: Annotated[
        float | None,
        Parameter(
            metavar="SECONDS",
            validator=POSITIVE,
            help="Give the request to another worker when its handler neither ends nor calls "
            "`request.progress()` for this time. [default: no limit]",
        ),
    ] = None
    drain_timeout: Annotated[
        float,
        Parameter(
            metavar="SECONDS",
            validator=POSITIVE,
            help="After SIGTERM: time for handlers to finish.",
        ),
    ] = 30.0


@Parameter(name="*", group=_LIVENESS)
@dataclass(frozen=True, slots=True)
class Liveness:
    """When worker and broker count each other as lost."""

    heartbeat_interval: Annotated[
        float | None,
        Parameter(
            metavar="SECONDS",
            validator=INTERVAL,
            help="Send the broker a heartbeat after this time without a message. The longer of "
            f"the broker's and the worker's interval applies. [default: {_DEFAULTS.interval_s}]",
        ),
    ] = None
    liveness: Annotated[
        int | None,
        Parameter(
            metavar="N",
            validator=LIVENESS,
            help="Reconnect after N silent intervals of the broker. "
            f"[default: {_DEFAULTS.liveness}]",
        ),
    ] = None

    def policy(self) -> HeartbeatPolicy | None:
        """Return the policy; None without either option."""
        if self.heartbeat_interval is None and self.liveness is None:
            return None
        return HeartbeatPolicy(
            _DEFAULTS.interval_s if self.heartbeat_interval is None else self.heartbeat_interval,
            _DEFAULTS.liveness if self.liveness is None else self.liveness,
        )


def worker(
    *targets: Annotated[
        str,
        Parameter(
            name="MODULE:ATTR",
            required=True,
            help="The functions to serve, each decorated with `@requite.service(NAME)`, and typed "
            "services (`requite.Service`).",
        ),
    ],
    addresses: Addresses = Addresses(),
    handlers: Handlers = Handlers(),
    liveness: Liveness = Liveness(),
    connection: Connection = PLAIN,
    tls: Tls = NO_TLS,
    journal: JournalFolder = None,
    journal_retain: JournalRetain = None,
    journal_ship: JournalShip = None,
    watching: Watching = UNWATCHED,
    logging: Logging = QUIET,
    setup: Setup = DEFAULT_SETUP,
) -> int:
    """Serve functions of a Python module.

    A handler takes one request, and returns the reply's bytes or yields those of
    partial replies:

      @requite.service("echo")
      async def echo(request):
          return request.body

    Modules are imported from the current directory, too. The worker may start
    before its broker, and registers again after the broker restarts. It prints
    `serving NAME for URL` once the broker has answered; until then a line on
    stderr says what it waits for.

    SP has no broker: clients and devices connect to the worker, or the worker
    connects to them, and it serves one function. It prints `serving NAME at URL`
    for each address where it listens.

    SIGTERM or Ctrl-C drains: the worker accepts no new requests, finishes the
    running ones, and exits with 0. A second signal stops it at once; the broker gives its
    requests to other workers.

      $ requite worker requite.examples:echo --connect mdp://127.0.0.1:5555
      $ requite worker shop:price shop:stock --connect mdp://broker --capacity 4
      $ requite worker requite.examples:echo --bind sp+tcp://127.0.0.1:7000
      $ requite worker requite.examples:echo --bind flp://127.0.0.1:5555
      $ requite worker requite.examples:echo --connect amqp://guest:guest@localhost/
    """
    from requite.cli.serving import run_until_stopped
    from requite.cli.targets import load_service
    from requite.worker import Worker
    from requite.worker.environment import place_of

    connect, capacity = addresses.connect, handlers.capacity
    if addresses.wait_connected is not None and not (connect or addresses.pool):
        raise ConfigurationError("--wait-connected requires --connect or --pool")
    logging.start()
    if addresses.pool:
        place = place_of(os.environ)
        connect, capacity = (*connect, place.url), capacity or place.prefetch
    services = [load_service(each) for each in targets]
    [binds] = tls.complete(addresses.bind)
    server = Worker(
        [_complete(connection, url, is_from_manager=addresses.pool) for url in connect],
        *services,
        bind=binds,
        capacity=capacity,
        heartbeat=liveness.policy(),
        handler_timeout=handlers.handler_timeout,
        threads=handlers.threads,
        drain_timeout=handlers.drain_timeout,
        dialect=connection.dialect,
        hops=addresses.hops,
        access=addresses.access,
        insecure=addresses.insecure,
        journal=journal_option(journal, journal_retain, journal_ship),
    )
    monitor = watching.monitor("worker", lambda: _watched(server))
    names = ", ".join(server.services)
    if setup.check:
        places = [f"for {redact(url)}" for url in connect]
        places += [f"at {redact(url)}" for url in addresses.bind]
        return setup.report(
            f"the worker would serve {names} {' and '.join(places)}",
            folders={"--journal": journal},
        )

    def announce() -> None:
        for url in server.addresses:
            say(f"serving {names} at {url}")

    async def until_failed() -> RequiteError:
        lines = [f"serving {names} for {redact(url)}" for url in connect]
        return await _until_not_connected(server, lines, addresses.wait_connected)

    return run_until_stopped(server, announce, until_failed, server.until_over, monitor=monitor)


def _watched(server: Worker) -> Watched:
    from requite.metrics.servers import of_worker
    from requite.metrics.watched import WatchedServer

    return WatchedServer(server, lambda: of_worker(server.handled()))


async def _until_not_connected(
    server: Worker, lines: Sequence[str], timeout_s: float | None
) -> RequiteError:
    """Print a line when each URL is connected; after `timeout_s` return a `TransportError`.

    Without a time-out it never returns.
    """

    async def say_when_served(number: int, text: str) -> None:
        await server.until_connected(number)
        say(text)

    try:
        async with asyncio.timeout(timeout_s), asyncio.TaskGroup() as group:
            for number, text in enumerate(lines):
                group.create_task(say_when_served(number, text))
    except TimeoutError:
        text = f"not connected within {timeout_s:g} s: {server.trouble}"
        return TransportError(text, may_have_executed=False)
    never: asyncio.Future[RequiteError] = asyncio.get_running_loop().create_future()
    return await never


def _complete(connection: Connection, url: str, *, is_from_manager: bool) -> str:
    """Add the credentials, unless the URL is from a pool manager and has some."""
    is_complete = is_from_manager and (names_user(url) or names_keys(url))
    return url if is_complete else connection.complete(url)
