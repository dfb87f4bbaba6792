"""`requite demo --watch`: Majordomo without end, for those who look at the page of its broker."""

from __future__ import annotations

import asyncio
import random
import signal
import sys
import time
from collections.abc import Coroutine, Iterator
from contextlib import AsyncExitStack
from dataclasses import replace
from importlib import import_module
from itertools import count, cycle
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

from requite.cli.exit_codes import ExitCode
from requite.cli.output import complain, counted, say, say_json
from requite.cli.show.demos import DEMOS
from requite.cli.show.description import Demo
from requite.cli.show.options import Scale
from requite.cli.show.run import Run
from requite.errors import CallError, ConfigurationError
from requite.testing.processes import ProcessFailed

if TYPE_CHECKING:
    from requite.client import AsyncClient

PATTERN: Final = "majordomo"
"""The pattern that can be watched: its broker has a page."""

_RETAIN: Final = " --journal-retain=256m"
_PER_CLIENT: Final = 8  # calls in flight
_PAUSE_S: Final = 0.05  # on average, between calls that follow each other
_UNKNOWN_EVERY: Final = 200  # calls: one asks for an airport that does not exist
_UNKNOWN: Final = b'{"code": "none", "count": 5}'
_FAULT_EVERY_S: Final = 5.0
_AWAY_S: Final = 4.0  # long enough to be seen
_CHECK_EVERY_S: Final = 0.2
_TIMEOUT_S: Final = 60.0
_SEED: Final = 1


class WatchedRun(Run):
    """The processes of the demo, whose broker has a page, and the counts of their calls."""

    answered = 0
    refused = 0
    failed = 0

    def __init__(self, scale: Scale, journal: Path | None) -> None:
        super().__init__(_watched(DEMOS[PATTERN], has_journal=journal is not None), scale, journal)
        self._began_at = time.monotonic()

    async def start(self, stack: AsyncExitStack) -> None:
        """See `Run.start`."""
        await super().start(stack)
        self._began_at = time.monotonic()

    @property
    def page(self) -> str:
        """The URL of the broker's page."""
        return f"http://{self.addresses['page']}/"

    def note(self, text: str) -> None:
        """Print an event."""
        print(f"{time.monotonic() - self._began_at:6.1f} s  {text}", file=sys.stderr, flush=True)

    def record(self) -> dict[str, int]:
        """Return the counts, for JSON."""
        return {
            "answered": self.answered,
            "refused": self.refused,
            "failed": self.failed,
            "worker_kills": self.worker_kills,
            "broker_kills": self.broker_kills,
        }


def watch(scale: Scale, *, as_json: bool) -> int:
    """Run until Ctrl-C or SIGTERM; return the exit code: OK, unless a call failed that should not.

    Raises `ConfigurationError` if something is not installed.
    """
    _require()
    from requite.shell import aio

    with TemporaryDirectory(prefix="requite-watch-") as folder:
        journal = None if scale.no_audit else Path(scale.keep or folder) / "journal"
        try:
            run = aio.run(_run(scale, journal))
        except ProcessFailed as error:
            complain(str(error))
            return ExitCode.FAILED
    if as_json:
        say_json(run.record())
    else:
        kills = f"{counted(run.worker_kills, 'worker')} and {counted(run.broker_kills, 'broker')}"
        say(f"{counted(run.answered, 'call')} answered, {run.failed:,} failed; {kills} killed")
    return ExitCode.FAILED if run.failed else ExitCode.OK


def _require() -> None:
    Run.require()
    try:
        import_module("requite.page.page")
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"--watch requires the package {error.name}, which is not installed: pip install"
            " 'requite[web]'"
        ) from error


def _watched(demo: Demo, *, has_journal: bool) -> Demo:
    """Return the demo with a page, and with journals that do not grow without end."""
    assert demo.workers is not None
    retain = _RETAIN if has_journal else ""
    [broker] = demo.brokers
    return replace(
        demo,
        brokers=(replace(broker, command=f"{broker.command} --http={{page}}{retain}"),),
        workers=replace(demo.workers, command=demo.workers.command + retain),
    )


async def _run(scale: Scale, journal: Path | None) -> WatchedRun:
    """Run the demo until it is to end."""
    loop, over = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, over.set)
    with WatchedRun(scale, journal) as run:
        async with AsyncExitStack() as stack:
            await run.start(stack)
            clients = [
                await stack.enter_async_context(run.new_client()) for _ in range(scale.clients)
            ]
            say(f"page at {run.page}")
            say("workers die and come back until Ctrl-C")
            rng, numbers = random.Random(_SEED), count()
            works = [_call(run, each, rng, numbers) for each in clients for _ in range(_PER_CLIENT)]
            await _until(over, [*works, _inject(run), _check(run)])
    return run


async def _until(over: asyncio.Event, works: list[Coroutine[Any, Any, None]]) -> None:
    """Wait for the event; raise what one of the endless works raises before."""
    tasks: list[asyncio.Future[Any]] = [asyncio.ensure_future(over.wait())]
    tasks += map(asyncio.ensure_future, works)
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in tasks:
            each.cancel()
        await asyncio.wait(tasks)
    for each in done:
        each.result()


async def _check(run: WatchedRun) -> None:
    while True:
        run.check()
        await asyncio.sleep(_CHECK_EVERY_S)


# --- calls ----------------------------------------------------------------------------------------
async def _call(
    run: WatchedRun, client: AsyncClient, rng: random.Random, numbers: Iterator[int]
) -> None:
    """Make calls, one after the other."""
    while True:
        number = next(numbers)
        is_unknown = number % _UNKNOWN_EVERY == _UNKNOWN_EVERY - 1
        body = _UNKNOWN if is_unknown else run.body(number % len(run.replies.airports))
        try:
            await client.call(body, timeout=_TIMEOUT_S)
        except CallError as error:
            if is_unknown:
                run.refused += 1
            else:
                run.failed += 1
                run.note(str(error))
        else:
            run.answered += 1
        await asyncio.sleep(2 * _PAUSE_S * rng.random())


# --- faults ---------------------------------------------------------------------------------------
async def _inject(run: WatchedRun) -> None:
    """Kill and freeze workers in turn, and sometimes the broker."""
    for fault in cycle((_kill_worker, _kill_worker, _freeze_worker, _kill_worker, _kill_broker)):
        await asyncio.sleep(_FAULT_EVERY_S)
        await fault(run)


async def _kill_worker(run: WatchedRun) -> None:
    number = next(run.next_worker)
    name = run.children[number].name
    run.children[number].kill()
    run.worker_kills += 1
    run.note(f"{name} killed (SIGKILL)")
    await asyncio.sleep(_AWAY_S)
    await run.restart(number)
    run.note(f"{name} restarted")


async def _freeze_worker(run: WatchedRun) -> None:
    child = run.children[next(run.next_worker)]
    child.stop()
    run.note(f"{child.name} stopped (SIGSTOP)")
    await asyncio.sleep(_AWAY_S)
    child.resume()
    run.note(f"{child.name} resumed (SIGCONT)")


async def _kill_broker(run: WatchedRun) -> None:
    number = next(run.next_broker)
    run.children[number].kill()
    run.broker_kills += 1
    run.note("broker killed (SIGKILL)")
    await run.restart(number)
    run.note("broker restarted")
