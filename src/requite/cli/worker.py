"""`requite worker`: serve functions of a Python module."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING, Annotated, Final

from cyclopts import Group, Parameter, validators

from requite.cli.credentials import names_user
from requite.cli.options import PLAIN, QUIET, Connection, JournalFolder, Logging, one_of
from requite.cli.output import say
from requite.cli.retention import JournalRetain, JournalShip, journal_option
from requite.core.liveness import HeartbeatPolicy
from requite.errors import ConfigurationError, RequiteError, TransportError
from requite.speaks.url import redact

if TYPE_CHECKING:
    from requite.worker import Worker

_PLACES: Final = Group("Places", sort_key=5, validator=one_of("--connect", "--bind", "--pool"))
_HANDLERS: Final = Group("Handlers", sort_key=10)
_LIVENESS: Final = Group("Liveness", sort_key=20)
_DEFAULTS: Final = HeartbeatPolicy()
_POSITIVE: Final = validators.Number(gt=0)


def _check_finite(_type: object, value: float | None) -> None:
    if value is not None and not isfinite(value):
        raise ValueError(f"must be a finite number, not {value}")


@Parameter(name="*", group=_PLACES)
@dataclass(frozen=True, slots=True)
class Places:
    """Where the worker dials brokers and clients, and where it listens."""

    connect: Annotated[
        tuple[str, ...],
        Parameter(
            metavar="URL",
            show_default=False,
            help="Where the broker is: `mdp://HOST:PORT`. Or, without a broker, where clients or "
            "devices of SP listen: `sp+tcp://HOST:PORT`; repeat it for several. Or a queue's back: "
            "`pirate://HOST:PORT`. Or RabbitMQ: `amqp://USER:PASSWORD@HOST/VHOST`.",
        ),
    ] = ()
    bind: Annotated[
        tuple[str, ...],
        Parameter(
            metavar="URL",
            show_default=False,
            help="Listen here for clients of SP: `sp+tcp://HOST:PORT`, `sp+ipc:///PATH`, "
            "`sp+tls://`, `sp+ws://HOST:PORT/PATH` or `sp+wss://`; repeat it for several. Or be a "
            "Freelance server: `flp://HOST:PORT`, or a Lazy Pirate's: `pirate://HOST:PORT`. Port 0 "
            "takes a free one.",
        ),
    ] = ()
    pool: Annotated[
        bool,
        Parameter(
            show_default=False,
            help="Be a worker of a pool, as its manager starts them: the environment says where "
            "(WORKER_AMQP_URL or WORKER_BROKER_URL, WORKER_POOL, WORKER_KEY, WORKER_ID and more).",
        ),
    ] = False
    wait_connected: Annotated[
        float | None,
        Parameter(
            metavar="SECONDS",
            validator=(_POSITIVE, _check_finite),
            help="End with exit code 5 when it is not served at all URLs of --connect by then. A "
            "broker of MDP 0.1 or 0.2 is heard only with its first heartbeat (2.5 s for the "
            "Guide's). [default: it goes on trying]",
        ),
    ] = None
    hops: Annotated[
        int | None,
        Parameter(
            metavar="N",
            help="SP: drop requests whose stack has more than N tags, one per device and one of "
            "the client. [default: 8]",
        ),
    ] = None


@Parameter(name="*", group=_HANDLERS)
@dataclass(frozen=True, slots=True)
class Handlers:
    """How many requests the handlers get at a time, and for how long."""

    capacity: Annotated[
        int | None,
        Parameter(
            metavar="N",
            validator=_POSITIVE,
            help="Requests taken at a time, per service. Those beyond what the handlers work on "
            "wait here, so give slow handlers few. [default: 16, with older dialects 1]",
        ),
    ] = None
    threads: Annotated[
        int | None,
        Parameter(
            metavar="N",
            validator=_POSITIVE,
            help="How many plain (not `async`) functions run at a time. [default: the capacity]",
        ),
    ] = None
    handler_timeout: Annotated[
        float | None,
        Parameter(
            metavar="SECONDS",
            validator=_POSITIVE,
            help="A handler that neither ends nor calls `request.progress()` for so long loses its "
            "request to another worker. [default: no limit]",
        ),
    ] = None
    drain_timeout: Annotated[
        float,
        Parameter(
            metavar="SECONDS",
            validator=_POSITIVE,
            help="After SIGTERM: how long handlers may go on.",
        ),
    ] = 30.0


@Parameter(name="*", group=_LIVENESS)
@dataclass(frozen=True, slots=True)
class Liveness:
    """When the worker and its broker count each other as lost."""

    heartbeat_interval: Annotated[
        float | None,
        Parameter(
            metavar="SECONDS",
            help="Be heard at least this often. Of the broker's and the worker's interval the "
            f"longer one holds. [default: {_DEFAULTS.interval_s}]",
        ),
    ] = None
    liveness: Annotated[
        int | None,
        Parameter(
            metavar="N",
            help=f"Leave a broker that was silent for N intervals. [default: {_DEFAULTS.liveness}]",
        ),
    ] = None

    def policy(self) -> HeartbeatPolicy | None:
        """Return the policy; None where neither option is given."""
        if self.heartbeat_interval is None and self.liveness is None:
            return None
        return HeartbeatPolicy(
            _DEFAULTS.interval_s if self.heartbeat_interval is None else self.heartbeat_interval,
            _DEFAULTS.liveness if self.liveness is None else self.liveness,
        )


def worker(
    target: Annotated[
        str,
        Parameter(
            name="MODULE:ATTR",
            help="What to serve: a function decorated with `@requite.service(NAME)`.",
        ),
    ],
    /,
    *more: Annotated[
        str, Parameter(name="MORE", help="Further functions, each a service of its own.")
    ],
    places: Places = Places(),
    handlers: Handlers = Handlers(),
    liveness: Liveness = Liveness(),
    connection: Connection = PLAIN,
    journal: JournalFolder = None,
    journal_retain: JournalRetain = None,
    journal_ship: JournalShip = None,
    logging: Logging = QUIET,
) -> int:
    """Serve functions of a Python module.

    A handler is a function of one request that returns the reply's bytes, or
    yields those of partial replies:

      @requite.service("echo")
      async def echo(request):
          return request.body

    Modules in the current directory are found. The broker need not be there
    yet, and when it went away the worker registers again by itself. It prints
    `serving NAME for URL` once it is connected and the broker has answered, and
    says on stderr what it waits for until then.

    With URLs of SP there is no broker: clients and devices dial the worker, or
    it dials them, and one function is served to all of them. It prints
    `serving NAME at URL` for each place where it listens.

    SIGTERM or Ctrl-C drains: no new requests, those in hand are finished, exit
    code 0. A second one stops at once; what was in hand goes to other workers.

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

    connect, capacity = places.connect, handlers.capacity
    if places.wait_connected is not None and not (connect or places.pool):
        raise ConfigurationError("--wait-connected is for --connect: --bind alone dials nobody")
    logging.start()
    if places.pool:
        place = place_of(os.environ)
        connect, capacity = (*connect, place.url), capacity or place.prefetch
    services = [load_service(each) for each in (target, *more)]
    server = Worker(
        [_complete(connection, url, is_told=places.pool) for url in connect],
        *services,
        bind=places.bind,
        capacity=capacity,
        heartbeat=liveness.policy(),
        handler_timeout=handlers.handler_timeout,
        threads=handlers.threads,
        drain_timeout=handlers.drain_timeout,
        dialect=connection.dialect,
        hops=places.hops,
        journal=journal_option(journal, journal_retain, journal_ship),
    )
    names = ", ".join(service.name for service in services)

    def announce() -> None:
        for url in server.addresses:
            say(f"serving {names} at {url}")

    async def until_failed() -> RequiteError:
        lines = [f"serving {names} for {redact(url)}" for url in connect]
        return await _until_not_connected(server, lines, places.wait_connected)

    return run_until_stopped(server, announce, until_failed, server.until_over)


async def _until_not_connected(
    server: Worker, lines: Sequence[str], timeout_s: float | None
) -> RequiteError:
    """Say of each place when it is served there; return what to end with where it is not in time,
    or never."""

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


def _complete(connection: Connection, url: str, *, is_told: bool) -> str:
    """Add the credentials; a manager tells its workers where to connect, and perhaps as whom."""
    return url if is_told and names_user(url) else connection.complete(url)
