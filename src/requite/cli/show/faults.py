"""Faults of a demo whose brokers report no figures: the answers show how it recovers."""

from __future__ import annotations

import asyncio
import time
from typing import Final

from requite.cli.show.run import Run

_ENOUGH: Final = 50  # answers that show that the other processes serve
_STOPPED_S: Final = 1.0  # longer than the liveness of each demo


async def kill_worker(run: Run) -> None:
    """Kill a worker; start its successor after answers from the others, if there are others."""
    run.worker_kills += 1
    await _kill(run, next(run.next_worker), is_redundant=len(run.workers) > 1)


async def kill_broker(run: Run) -> None:
    """Kill a broker; start its successor after answers from the other one, or at once."""
    if run.brokers:
        run.broker_kills += 1
        await _kill(run, next(run.next_broker), is_redundant=len(run.brokers) > 1)


async def stop_worker(run: Run) -> None:
    """Freeze a worker (SIGSTOP) for a second; its connections stay open."""
    child = run.children[next(run.next_worker)]
    child.stop()
    began = time.monotonic()
    await asyncio.sleep(_STOPPED_S)
    await run.answers(_ENOUGH if len(run.workers) > 1 else 0)
    child.resume()
    run.screen.note(f"{child.name} stopped (SIGSTOP) for {since(began)}, resumed (SIGCONT)")
    await run.answers(1)


async def _kill(run: Run, number: int, *, is_redundant: bool) -> None:
    child = run.children[number]
    child.kill()
    run.screen.note(f"{child.name} killed (SIGKILL), {count(run.outstanding)} in flight")
    began = time.monotonic()
    if is_redundant:
        await run.answers(_ENOUGH)
        run.screen.note(f"{_ENOUGH} replies from the others within {since(began)}")
    await run.restart(number)
    run.screen.note(f"{child.name} restarted {since(began)} later")
    await run.answers(1)
    if not is_redundant:
        run.screen.note(f"first reply {since(began)} after the kill")


def since(began: float) -> str:
    """Return the time since a moment, as text."""
    return f"{time.monotonic() - began:.1f} s"


def count(requests: int) -> str:
    """Return a number of requests, as text."""
    return "1 request" if requests == 1 else f"{requests} requests"
