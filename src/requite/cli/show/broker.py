"""A demo whose broker reports figures (`mmi.stats`), and its faults: the figures show recovery."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Final

from requite.cli.show.faults import count, since
from requite.cli.show.run import METHOD, POLL_S, Run
from requite.testing.processes import ProcessFailed

if TYPE_CHECKING:
    from requite.client import AsyncClient

_BROKER: Final = 0
_WITHIN_S: Final = 30.0


class BrokerRun(Run):
    """Asks its only broker for its figures, as `requite services` does.

    `redelivered` is as of the last question.
    """

    _observer: AsyncClient
    _redelivered_before = 0  # by brokers that were killed

    async def start(self, stack: AsyncExitStack) -> None:
        """Start all processes; return when all workers are registered."""
        await super().start(stack)
        client = self.new_client(service="mmi.stats", journal=None)
        self._observer = await stack.enter_async_context(client)
        await self.all_registered()

    async def settle(self) -> None:
        """See `Run.settle`."""
        await self.count_redelivered()

    async def stats(self) -> dict[str, Any]:
        """Return the broker's figures of the service."""
        reply = await self._observer.call(METHOD.encode(), timeout=_WITHIN_S)
        services = json.loads(reply.body)["services"]
        return services[0] if services else {"workers": 0, "redelivered": 0}

    async def count_redelivered(self) -> int:
        """Return how many requests were redelivered so far."""
        self.redelivered = self._redelivered_before + int((await self.stats())["redelivered"])
        return self.redelivered

    async def redelivered_since(self, before: int) -> str:
        """Return how many requests were redelivered once the number is stable, as text."""
        last, now = -1, await self.count_redelivered()
        while last != now:
            await asyncio.sleep(POLL_S)
            last, now = now, await self.count_redelivered()
        return count(now - before)

    async def kill_broker(self) -> None:
        """Read its figures for the last time, and kill it."""
        self._redelivered_before = await self.count_redelivered()
        self.children[_BROKER].kill()
        self.broker_kills += 1

    async def one_unregistered(self) -> None:
        """Wait until the broker has fewer workers than the demo."""
        await self._registered(lambda workers: workers < len(self.workers))

    async def all_registered(self) -> None:
        """Wait until all workers are registered."""
        await self._registered(lambda workers: workers == len(self.workers))

    async def _registered(self, is_right: Callable[[int], bool]) -> None:
        give_up_at = time.monotonic() + _WITHIN_S
        while not is_right(workers := (await self.stats())["workers"]):
            if time.monotonic() > give_up_at:
                raise ProcessFailed(
                    f"{workers} of {len(self.workers)} workers registered after {_WITHIN_S:.0f} s"
                )
            await asyncio.sleep(POLL_S)


async def kill_worker(run: BrokerRun) -> None:
    """Kill a worker that has requests, and start its successor."""
    number = next(run.next_worker)
    worker = run.children[number]
    before = await run.count_redelivered()
    worker.kill()
    run.worker_kills += 1
    await run.one_unregistered()
    moved = await run.redelivered_since(before)
    run.screen.note(f"{worker.name} killed (SIGKILL): {moved} redelivered")
    began = time.monotonic()
    await run.restart(number)
    await run.all_registered()
    run.screen.note(f"{worker.name} restarted {since(began)} later")


async def stop_worker(run: BrokerRun) -> None:
    """Freeze a worker (SIGSTOP) until the broker drops it; its connection stays open."""
    worker = run.children[next(run.next_worker)]
    before = await run.count_redelivered()
    worker.stop()
    began = time.monotonic()
    await run.one_unregistered()
    moved = await run.redelivered_since(before)
    run.screen.note(
        f"{worker.name} stopped (SIGSTOP): lost after {since(began)} of silence; {moved}"
        " redelivered"
    )
    worker.resume()
    await run.all_registered()
    run.screen.note(f"{worker.name} resumed (SIGCONT) and registered again")


async def kill_broker(run: BrokerRun) -> None:
    """Kill the broker with its queues, and start its successor; clients send again."""
    await run.kill_broker()
    lost = count(run.outstanding)
    run.screen.note(f"broker killed (SIGKILL): {lost} to be retried")
    began = time.monotonic()
    await run.restart(_BROKER)
    run.screen.note(f"broker restarted at {run.url}, {since(began)} later")
    await run.all_registered()
    run.screen.note(f"all workers registered again after {since(began)}")
