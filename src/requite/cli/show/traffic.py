"""The calls of one client, in three ways."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Final

from requite.cli.show.run import Run
from requite.errors import CallError

if TYPE_CHECKING:
    from requite.client import AsyncClient

# Longer than a broker's restart and a worker's replacement, so that only a defect loses a call.
_TIMEOUT_S: Final = 60.0


async def call(run: Run, client: AsyncClient) -> None:
    """Make calls with `AsyncClient.map`."""

    async def bodies() -> AsyncIterator[bytes]:
        while (number := await run.source.take()) is not None:
            yield run.body(number)

    outcomes = client.map(
        bodies(),
        concurrency=run.scale.concurrency,
        as_completed=True,
        return_errors=True,
        timeout=_TIMEOUT_S,
    )
    async for outcome in outcomes:
        run.replies.add(outcome)


async def submit(run: Run, client: AsyncClient) -> None:
    """Submit each request, fetch its result, and forget it at the broker."""

    async def submit_one(number: int) -> None:
        ticket = await client.submit(run.body(number), timeout=_TIMEOUT_S)
        run.replies.add(await client.result(ticket, timeout=_TIMEOUT_S))
        await client.forget(ticket)

    await each_request(run, submit_one)


async def each_request(run: Run, make: Callable[[int], Awaitable[None]]) -> None:
    """Make requests by their numbers, `--concurrency` at a time; count those that fail."""

    async def make_some() -> None:
        while (number := await run.source.take()) is not None:
            try:
                await make(number)
            except CallError as error:
                run.replies.add(error)

    await asyncio.gather(*(make_some() for _ in range(run.scale.concurrency)))
