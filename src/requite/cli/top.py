"""`requite top`: the services of a broker, live in a terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias

from cyclopts import Parameter, validators

from requite.cli.exit_codes import ExitCode
from requite.cli.failures import is_brokerless, place_of
from requite.cli.options import PLAIN, QUIET, BrokerUrl, Connection, JsonFlag, Logging, Timeout
from requite.cli.output import complain
from requite.errors import ConfigurationError

if TYPE_CHECKING:
    from requite.cli.live.polling import Poller

Watch: TypeAlias = "Callable[[Poller, str], Awaitable[int]]"

_INTERVAL_S: Final = 1.0
_INTERVAL_MIN_S: Final = 0.2
_INTERVAL_MAX_S: Final = 60.0
_DUMB: Final = ("", "dumb", "unknown")


def top(
    url: BrokerUrl,
    /,
    *,
    interval: Annotated[
        float,
        Parameter(
            metavar="SECONDS",
            validator=validators.Number(gte=_INTERVAL_MIN_S, lte=_INTERVAL_MAX_S),
            help="How often the broker is asked; more rarely while its answers take long.",
        ),
    ] = _INTERVAL_S,
    once: Annotated[
        bool,
        Parameter(show_default=False, help="Print one table, of one interval, and end."),
    ] = False,
    timeout: Timeout = 5.0,
    as_json: JsonFlag = False,
    connection: Connection = PLAIN,
    logging: Logging = QUIET,
) -> int:
    """Show the services of a broker live: rates, durations, queues, workers.

    Asks the broker (`mmi.census`) once per interval, and at most a fiftieth of the
    time. Shown are the rates of the last interval, so different programs may watch
    one broker. `?` lists the keys. Requires the extra `top`, unless with --once.

    With --once, or if stdout is not a terminal, it asks twice, one interval apart,
    and prints a table; with --json one object: rates per second, durations in
    seconds, and null for what is not known.

      $ requite top mdp://127.0.0.1:5555
      $ requite top mdp://127.0.0.1:5555 --once --json --interval 5
    """
    from requite.shell.aio import run

    if as_json and not once:
        raise ConfigurationError("--json requires --once, which prints one table or object")
    if is_brokerless(url):
        raise ConfigurationError(f"{place_of(url)} has no broker to ask")
    logging.start()
    lacking = "" if once else _lacking()
    if lacking:
        complain(f"{lacking}, so this is one table, as with --once")
    watch = partial(_print_once, as_json=as_json) if once or lacking else _show
    return run(_watch(connection.complete(url), connection.dialect, timeout, interval, watch))


def _lacking() -> str:
    """Return what is missing for a live display; "": nothing."""
    streams = {"stdin": sys.stdin, "stdout": sys.stdout, "stderr": sys.stderr}
    for name, stream in streams.items():
        if not stream.isatty():
            return f"{name} is not a terminal"
    if os.environ.get("TERM", "") in _DUMB:
        return "this terminal (TERM) cannot move its cursor"
    return ""


async def _watch(
    url: str, dialect: str | None, timeout_s: float, interval_s: float, watch: Watch
) -> int:
    from requite.cli.live.polling import Poller
    from requite.client import AsyncClient

    async with AsyncClient(url, timeout=timeout_s, dialect=dialect) as client:
        return await watch(Poller(client, url, interval_s), place_of(url))


async def _print_once(poller: Poller, place: str, *, as_json: bool) -> int:
    from requite.cli.live.once import print_figures

    await poller.look()
    await poller.pause()
    print_figures((await poller.look()).figures, place, as_json=as_json)
    return ExitCode.OK


async def _show(poller: Poller, place: str) -> int:
    try:
        from requite.cli.live.app import TopApp
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"requite top requires the package {error.name}, which is not installed: pip install"
            " 'requite[top]'; --once prints one table without it"
        ) from error
    return await TopApp(poller, place).run_until_left()
