"""The demo from beginning to end."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections.abc import Awaitable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from requite.cli.show.direct import Answer
from requite.cli.show.faults import strike
from requite.cli.show.pattern import Flow, Pattern, Plot, load_pattern
from requite.cli.show.screen import REFRESH_EVERY_S, Screen, open_screen
from requite.cli.show.tally import Tally, Verdict
from requite.cli.show.traffic import RequestSource
from requite.shell.aio import run

if TYPE_CHECKING:
    from requite.client import AsyncClient

_NEIGHBOURS: Final = 5


def play(plot: Plot) -> Verdict:
    """Run the demo.

    Raises `ConfigurationError` where something is not installed, `ProcessFailed` when a
    process went its own way, and `CancelledError` after SIGTERM, when all processes have ended.
    """
    pattern = load_pattern(plot.pattern)
    pattern.require()
    return run(_play(pattern(plot)))


async def _play(pattern: Pattern) -> Verdict:
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    with pattern:
        tally = Tally(pattern.asked())
        truth = asyncio.ensure_future(_compute_truth(pattern, len(tally.asked)))
        try:
            return await _show(tally, pattern, truth)
        finally:
            truth.cancel()


async def _compute_truth(pattern: Pattern, airports: int) -> dict[str, Answer]:
    """Let a process of its own compute what the answers must be, beside the demo."""
    computation = pattern.start_reckoner(_NEIGHBOURS, airports)
    output = await asyncio.to_thread(computation.read_line, None)
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
        screen = stack.enter_context(open_screen(tally, pattern.members))
        took_s = await Show(tally, pattern, clients, screen).run()
    return tally.judge(
        await truth,
        took_s=took_s,
        retries=tally.sent_again + pattern.redelivered,
        kills=(pattern.worker_kills, pattern.broker_kills),
        manager_kills=pattern.manager_kills,
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
        began, limit_s = time.monotonic(), self.pattern.time_limit_s
        try:
            async with asyncio.timeout(limit_s), asyncio.TaskGroup() as group:
                showing = group.create_task(self._keep_showing())
                acts = [group.create_task(act) for act in self._acts()]
                await asyncio.wait(acts)
                await self.pattern.conclude()
                showing.cancel()
        except TimeoutError:
            self.screen.note(f"not everything was answered within {limit_s:.0f} s")
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
