"""The demo from beginning to end."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections.abc import Awaitable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from itertools import cycle, islice
from typing import TYPE_CHECKING, Any, Final

from requite.cli.show.direct import Answer
from requite.cli.show.faults import strike
from requite.cli.show.pattern import Flow, Pattern, Plot, stage
from requite.cli.show.screen import REFRESH_EVERY_S, Screen, open_screen
from requite.cli.show.tally import Tally, Verdict
from requite.cli.show.traffic import RequestSource
from requite.errors import ConfigurationError
from requite.shell.aio import run

if TYPE_CHECKING:
    from requite.client import AsyncClient

_NEIGHBOURS: Final = 5
# What has not been answered by then counts as lost.
_TIME_LIMIT_S: Final = 100.0


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
    with stage(plot) as pattern:
        truth = asyncio.ensure_future(_compute_truth(pattern, len(asked)))
        try:
            return await _show(tally, pattern, truth)
        finally:
            truth.cancel()


async def _compute_truth(pattern: Pattern, airports: int) -> dict[str, Answer]:
    """Let a process of its own compute what the answers must be, beside the demo."""
    output = await pattern.start_reckoner(_NEIGHBOURS, airports).read_all()
    return {
        code: tuple((metres, neighbour) for metres, neighbour in row)
        for code, row in json.loads(output).items()
    }


async def _show(tally: Tally, pattern: Pattern, truth: Awaitable[Mapping[str, Answer]]) -> Verdict:
    async with AsyncExitStack() as stack:
        await pattern.enter(stack)
        clients = [
            await stack.enter_async_context(pattern.new_client())
            for _ in range(pattern.plot.clients)
        ]
        screen = stack.enter_context(open_screen(tally, pattern.children))
        took_s = await Show(tally, pattern, clients, screen).run()
    return tally.judge(
        await truth,
        took_s=took_s,
        retries=tally.sent_again + pattern.redelivered,
        kills=(pattern.worker_kills, pattern.broker_kills),
    )


@dataclass(frozen=True, slots=True)
class Show:
    """Everything that takes part."""

    tally: Tally
    pattern: Pattern
    clients: Sequence[AsyncClient]
    screen: Screen

    async def run(self) -> float:
        """Let requests and faults run against each other; return how many seconds it took."""
        began = time.monotonic()
        try:
            async with asyncio.timeout(_TIME_LIMIT_S), asyncio.TaskGroup() as group:
                showing = group.create_task(self._keep_showing())
                acts = [group.create_task(act) for act in self._acts()]
                await asyncio.wait(acts)
                await self.pattern.conclude()
                showing.cancel()
        except TimeoutError:
            self.screen.note(f"not everything was answered within {_TIME_LIMIT_S:.0f} s")
        except ExceptionGroup as group:
            raise group.exceptions[0] from None  # what the others are cancelled for
        return time.monotonic() - began

    def _acts(self) -> list[Coroutine[Any, Any, None]]:
        source = RequestSource(len(self.tally.asked))
        faults = self.pattern.faults(self.screen, Flow(source, self.tally))
        return [
            strike(faults, source, len(self.tally.asked)),
            *(
                self.pattern.drive(client, source, self.tally, _NEIGHBOURS)
                for client in self.clients
            ),
        ]

    async def _keep_showing(self) -> None:
        while True:
            self.pattern.check()
            self.screen.refresh()
            await asyncio.sleep(REFRESH_EVERY_S)
