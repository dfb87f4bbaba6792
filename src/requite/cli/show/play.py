"""The demo from beginning to end."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections.abc import Awaitable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from typing import Any, Final

from requite.cli.show.cast import Cast
from requite.cli.show.direct import Answer
from requite.cli.show.faults import Faults, Observer, plan, strike
from requite.cli.show.screen import REFRESH_EVERY_S, Screen, open_screen
from requite.cli.show.tally import Tally, Verdict
from requite.cli.show.traffic import RETRY, RequestSource, drive
from requite.client import AsyncClient
from requite.errors import ConfigurationError
from requite.heartbeat import HeartbeatPolicy
from requite.shell.aio import run

_SERVICE: Final = "nearest"
_NEIGHBOURS: Final = 5
_CAPACITY: Final = 8  # requests per worker, so that a kill hits several at once
# Short, so that a silence is noticed while one watches.
_HEARTBEAT: Final = HeartbeatPolicy(interval_s=0.2, liveness=4)
# What has not been answered by then counts as lost.
_TIME_LIMIT_S: Final = 100.0


@dataclass(frozen=True, slots=True)
class Plot:
    """How much happens. `requests` None: one per airport; `journal` None: nobody keeps one."""

    requests: int | None
    workers: int
    clients: int
    concurrency: int
    worker_kills: int
    broker_kills: int
    stops: int
    journal: Path | None = None


def play(plot: Plot) -> Verdict:
    """Run the demo.

    Raises `ConfigurationError` where there are no airports to ask about, `ShowFailed` when a
    process went its own way, and `CancelledError` after SIGTERM, when all processes have ended.
    """
    codes = _airport_codes()
    asked = list(islice(cycle(codes), len(codes) if plot.requests is None else plot.requests))
    return run(_play(plot, asked))


def _airport_codes() -> Sequence[str]:
    try:
        import airportsdata
    except ImportError as error:
        raise ConfigurationError(
            "the demo needs the package airportsdata: pip install 'requite[demo]'"
        ) from error
    return list(airportsdata.load())


async def _play(plot: Plot, asked: Sequence[str]) -> Verdict:
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    tally = Tally(asked)
    journal = plot.journal
    with Cast(plot.workers, heartbeat=_HEARTBEAT, capacity=_CAPACITY, journal=journal) as cast:
        truth = asyncio.ensure_future(_compute_truth(cast))
        try:
            return await _show(plot, tally, cast, truth)
        finally:
            truth.cancel()


async def _show(
    plot: Plot, tally: Tally, cast: Cast, truth: Awaitable[Mapping[str, Answer]]
) -> Verdict:
    await cast.enter()
    async with AsyncExitStack() as stack:
        stage = await _set_stage(plot, tally, cast, stack)
        took_s = await stage.play(plot)
    return tally.judge(
        await truth,
        took_s=took_s,
        retries=tally.sent_again + stage.observer.known_redelivered,
        kills=(cast.worker_kills, cast.broker_kills),
    )


async def _compute_truth(cast: Cast) -> dict[str, Answer]:
    """Let a process of its own compute what the answers must be, beside the demo."""
    output = await cast.start_reckoner(_NEIGHBOURS).read_all()
    return {
        code: tuple((metres, neighbour) for metres, neighbour in row)
        for code, row in json.loads(output).items()
    }


@dataclass(frozen=True, slots=True)
class Stage:
    """Everything that takes part."""

    tally: Tally
    cast: Cast
    clients: Sequence[AsyncClient]
    observer: Observer
    screen: Screen

    async def play(self, plot: Plot) -> float:
        """Let requests and faults run against each other; return how many seconds it took."""
        began = time.monotonic()
        try:
            async with asyncio.timeout(_TIME_LIMIT_S), asyncio.TaskGroup() as group:
                showing = group.create_task(self._keep_showing())
                acts = [group.create_task(act) for act in self._acts(plot)]
                await asyncio.wait(acts)
                await self.observer.redelivered()
                showing.cancel()
        except TimeoutError:
            self.screen.note(f"not everything was answered within {_TIME_LIMIT_S:.0f} s")
        except ExceptionGroup as group:
            raise group.exceptions[0] from None  # what the others are cancelled for
        return time.monotonic() - began

    def _acts(self, plot: Plot) -> list[Coroutine[Any, Any, None]]:
        source = RequestSource(len(self.tally.asked))
        outstanding = partial(_outstanding, source, self.tally)
        faults = plan(Faults(self.cast, self.observer, self.screen, outstanding), plot)
        return [
            strike(faults, source, len(self.tally.asked)),
            *(
                drive(client, source, self.tally, _NEIGHBOURS, plot.concurrency)
                for client in self.clients
            ),
        ]

    async def _keep_showing(self) -> None:
        while True:
            self.cast.check()
            self.screen.refresh()
            await asyncio.sleep(REFRESH_EVERY_S)


def _outstanding(source: RequestSource, tally: Tally) -> int:
    return source.handed_out - tally.done


async def _set_stage(plot: Plot, tally: Tally, cast: Cast, stack: AsyncExitStack) -> Stage:
    def new_client(service: str, journal: Path | None = None) -> AsyncClient:
        return AsyncClient(
            cast.url,
            service=service,
            retry=RETRY,
            heartbeat=_HEARTBEAT,
            slots=plot.concurrency,
            journal=journal,
        )

    clients = [
        await stack.enter_async_context(new_client(_SERVICE, plot.journal))
        for _ in range(plot.clients)
    ]
    observer = Observer(await stack.enter_async_context(new_client("mmi.stats")))
    await observer.wait_for_workers(lambda registered: registered == plot.workers)
    screen = stack.enter_context(open_screen(tally, cast.children))
    return Stage(tally, cast, clients, observer, screen)
