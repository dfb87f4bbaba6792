"""`requite bench`: measure throughput and latency of a deployment."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import repeat
from typing import TYPE_CHECKING, Annotated, Any, Final

from cyclopts import Group, Parameter, validators

from requite.cli.candidates import services, urls_of_services
from requite.cli.exit_codes import ExitCode
from requite.cli.failures import advised
from requite.cli.latency import bar, histogram, in_ms, percentile
from requite.cli.options import PLAIN, QUIET, Connection, JsonFlag, Logging, Timeout
from requite.cli.output import say_json, stderr_console, stdout_console
from requite.cli.presence import can_be_asked, name_service, unless_refused, wait_for_worker
from requite.errors import CallError, RemoteFailure

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.progress import Progress
    from rich.table import Table

    from requite.client import AsyncClient

_LOAD: Final = Group("Load", sort_key=5)
_PERCENTILES: Final = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999, "max": 1.0}
_SHOW_EVERY_S: Final = 0.1
_POSITIVE: Final = validators.Number(gt=0)


def bench(
    url: Annotated[
        str,
        Parameter(
            completer=urls_of_services,
            help="Broker and service: `mdp://HOST:PORT/SERVICE`. SP service or device: "
            "`sp+tcp://HOST:PORT`. Freelance servers: `flp://A:PORT,B:PORT`.",
        ),
    ],
    /,
    *,
    service: Annotated[
        str | None,
        Parameter(
            metavar="NAME",
            completer=services,
            help="The service, if the URL does not name it.",
        ),
    ] = None,
    concurrency: Annotated[
        int,
        Parameter(
            metavar="N", group=_LOAD, validator=_POSITIVE, help="Calls in flight per connection."
        ),
    ] = 64,
    clients: Annotated[
        int,
        Parameter(metavar="N", group=_LOAD, validator=_POSITIVE, help="Connections."),
    ] = 1,
    duration: Annotated[
        float,
        Parameter(
            metavar="SECONDS", group=_LOAD, validator=_POSITIVE, help="Duration of the measurement."
        ),
    ] = 5.0,
    requests: Annotated[
        int | None,
        Parameter(
            metavar="N",
            group=_LOAD,
            validator=_POSITIVE,
            help="Make N calls, instead of calls for --duration.",
        ),
    ] = None,
    size: Annotated[
        int,
        Parameter(
            metavar="BYTES",
            group=_LOAD,
            validator=validators.Number(gte=0),
            help="Size of the body, unless --body gives one.",
        ),
    ] = 16,
    body: Annotated[
        str | None, Parameter(metavar="TEXT", group=_LOAD, help="Body of every request.")
    ] = None,
    timeout: Timeout = 10.0,
    as_json: JsonFlag = False,
    connection: Connection = PLAIN,
    logging: Logging = QUIET,
) -> int:
    """Measure a deployment: calls per second, and their latency.

    The first call is not counted; it fails if the broker or the service is
    missing. Then --concurrency calls are in flight per connection. The latency
    of a call is the time until its reply in this process, retries included.

    With --json the last line is an object: requests, answered, failures (by
    kind), sent_again, took_s, requests_per_s, p50_ms, p90_ms, p99_ms, p99.9_ms,
    max_ms. Exit code 1: some calls failed.

      $ requite bench mdp://127.0.0.1:5555/echo --duration 10 --size 1000
      $ requite bench sp+tcp://127.0.0.1:7000
    """
    from requite.shell.aio import run

    logging.start()
    payload = b"x" * size if body is None else body.encode()
    name = name_service(url, service)
    load = Load(name, payload, concurrency, clients, timeout, duration, requests)
    with advised(url):
        measured = run(_measure(connection.complete(url), connection.dialect, load))
    stdout_console().print(render(measured))
    if as_json:
        say_json(summary(measured))
    return ExitCode.FAILED if measured.failures else ExitCode.OK


@dataclass(frozen=True, slots=True)
class Load:
    """The load: `requests` calls or, if None, calls for `duration_s`."""

    service: str
    body: bytes
    concurrency: int
    clients: int
    timeout_s: float
    duration_s: float
    requests: int | None


@dataclass(slots=True)
class Measured:
    """Latencies and failures of the calls so far."""

    latencies_s: list[float] = field(default_factory=list)
    failures: Counter[str] = field(default_factory=Counter)
    sent_again: int = 0
    began: float = 0.0
    took_s: float = 0.0

    @property
    def ended(self) -> int:
        """Number of calls that have ended."""
        return len(self.latencies_s) + self.failures.total()


# --- asking ---------------------------------------------------------------------------------------
async def _measure(url: str, dialect: str | None, load: Load) -> Measured:
    from requite.client import AsyncClient

    measured = Measured()
    async with AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(
                AsyncClient(
                    url, service=load.service or None, dialect=dialect, slots=load.concurrency
                )
            )
            for _ in range(load.clients)
        ]
        for client in clients:
            await unless_refused(client, _warm_up(client, url, load))
        with _shown(measured, load) as showing:
            measured.began = time.monotonic()
            await _ask_all(clients, load, measured, showing)
            measured.took_s = time.monotonic() - measured.began
    return measured


async def _warm_up(client: AsyncClient, url: str, load: Load) -> None:
    """Make a call that is not counted. A failed handler proves that the service has a worker."""
    left_s = load.timeout_s
    if can_be_asked(url, load.service):
        left_s = await wait_for_worker(client, load.service, left_s)
    with suppress(RemoteFailure):
        await client.call(load.body, timeout=left_s)


async def _ask_all(
    clients: Sequence[AsyncClient], load: Load, measured: Measured, showing: Showing
) -> None:
    bodies = _bodies(load, measured)
    async with asyncio.TaskGroup() as group:
        asking = [group.create_task(_ask(client, bodies, load, measured)) for client in clients]
        ticking = group.create_task(_tick(showing))
        await asyncio.wait(asking)
        ticking.cancel()


def _bodies(load: Load, measured: Measured) -> Iterator[bytes]:
    """Yield the body of each request; all clients share the iterator."""
    if load.requests is not None:
        yield from repeat(load.body, load.requests)
        return
    while time.monotonic() - measured.began < load.duration_s:
        yield load.body


async def _ask(
    client: AsyncClient, bodies: Iterator[bytes], load: Load, measured: Measured
) -> None:
    outcomes = client.map(
        bodies,
        concurrency=load.concurrency,
        as_completed=True,
        return_errors=True,
        timeout=load.timeout_s,
    )
    async for outcome in outcomes:
        if isinstance(outcome, CallError):
            measured.failures[type(outcome).__name__] += 1
        else:
            measured.latencies_s.append(outcome.elapsed)
            measured.sent_again += outcome.attempts - 1


# --- progress -------------------------------------------------------------------------------------
class Showing:
    """A progress bar on stderr, if stderr is a terminal."""

    def __init__(self, progress: Progress, measured: Measured, load: Load) -> None:
        self._progress = progress
        self._measured = measured
        self._load = load
        self._task = progress.add_task("", total=load.requests or load.duration_s)

    def update(self) -> None:
        """Update the bar."""
        elapsed_s = time.monotonic() - self._measured.began
        done = self._measured.ended if self._load.requests else elapsed_s
        rate = self._measured.ended / elapsed_s if elapsed_s else 0.0
        text = f"{self._measured.ended:,} calls, {rate:,.0f}/s"
        self._progress.update(self._task, completed=done, description=text)


@contextmanager
def _shown(measured: Measured, load: Load) -> Iterator[Showing]:
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    console = stderr_console()
    columns = (BarColumn(), TextColumn("{task.description}"), TimeRemainingColumn())
    disable = not console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=disable) as progress:
        yield Showing(progress, measured, load)


async def _tick(showing: Showing) -> None:
    while True:
        showing.update()
        await asyncio.sleep(_SHOW_EVERY_S)


# --- the result -----------------------------------------------------------------------------------
def summary(measured: Measured) -> dict[str, Any]:
    """Return the result as a JSON object."""
    ordered = sorted(measured.latencies_s)
    answered = len(ordered)
    latencies = {
        f"{name}_ms": round(percentile(ordered, share) * 1000, 3) if ordered else None
        for name, share in _PERCENTILES.items()
    }
    return {
        "requests": measured.ended,
        "answered": answered,
        "failures": dict(measured.failures),
        "sent_again": measured.sent_again,
        "took_s": round(measured.took_s, 3),
        "requests_per_s": round(answered / measured.took_s, 1),
    } | latencies


def render(measured: Measured) -> RenderableType:
    """Draw the result: a table, and a histogram of latencies."""
    from rich.console import Group

    parts: list[RenderableType] = [_table(measured)]
    if measured.latencies_s:
        parts += ["", _histogram(measured.latencies_s)]
    return Group(*parts)


def _table(measured: Measured) -> Table:
    from rich.table import Table

    ordered = sorted(measured.latencies_s)
    table = Table.grid(padding=(0, 2))
    table.add_column()
    table.add_column(justify="right")
    table.add_row("calls", f"{measured.ended:,}")
    for kind, n in measured.failures.items():
        table.add_row(f"failed: {kind}", f"{n:,}", style="red")
    table.add_row("retries", f"{measured.sent_again:,}")
    table.add_row("seconds", f"{measured.took_s:.2f}")
    table.add_row("calls per second", f"{len(ordered) / measured.took_s:,.0f}", style="bold")
    for name, share in _PERCENTILES.items():
        table.add_row(name, f"{in_ms(percentile(ordered, share))} ms")
    return table


def _histogram(latencies_s: list[float]) -> Table:
    from rich.table import Table

    buckets = histogram(latencies_s)
    most = max(bucket.size for bucket in buckets)
    table = Table.grid(padding=(0, 1))
    table.add_column(justify="right")
    for bucket in buckets:
        share = f"{bucket.size / len(latencies_s):6.1%}"
        upto = f"≤ {in_ms(bucket.upto_s)} ms"
        table.add_row(upto, share, bar(bucket.size, most))
    return table
