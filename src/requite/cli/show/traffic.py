"""The demo's requests, and the clients that make them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Final

from requite.cli.show.tally import Tally
from requite.request import RetryPolicy

if TYPE_CHECKING:
    from requite.client import AsyncClient

# A call outlives a broker's restart and any worker's end; nothing here ends without its reply
# unless something is broken.
CALL_TIMEOUT_S: Final = 60.0
# Every outage makes all outstanding calls go again at once: a budget would only be in the way.
RETRY: Final = RetryPolicy(attempts=50, budget=1.0, budget_burst=1_000_000, backoff_max=0.5)


class RequestSource:
    """Hands out the numbers of the requests, but none from the limit on until that is raised.

    `handed_out` is how many it has given. Every fault happens with requests on their way, however
    fast the machine is.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._limit = 0
        self._awaited = 0
        self.handed_out = 0
        self._changed = asyncio.Event()

    async def take(self) -> int | None:
        """Return the next number, None after the last."""
        while self._limit <= self.handed_out < self._count:
            await self._wait()
        if self.handed_out >= self._count:
            return None
        number = self.handed_out
        self.handed_out += 1
        if self.handed_out == self._awaited:
            self._tell()
        return number

    async def reached(self, number: int) -> None:
        """Wait until all numbers below this one, at most the limit, have been handed out.

        For one at a time.
        """
        self._awaited = number
        while self.handed_out < number:
            await self._wait()

    def release(self, limit: int) -> None:
        """Hand out numbers below `limit`."""
        self._limit = limit
        self._tell()

    async def _wait(self) -> None:
        await self._changed.wait()

    def _tell(self) -> None:
        """Wake all that wait; those for whom it is too early wait again."""
        self._changed.set()
        self._changed = asyncio.Event()


async def drive(
    client: AsyncClient, source: RequestSource, tally: Tally, neighbours: int, concurrency: int
) -> None:
    """Keep `concurrency` calls of one client outstanding until the source is empty."""

    async def bodies() -> AsyncIterator[bytes]:
        while (number := await source.take()) is not None:
            yield f"{tally.asked[number]} {neighbours} {number}".encode()

    outcomes = client.map(
        bodies(),
        concurrency=concurrency,
        as_completed=True,
        return_errors=True,
        timeout=CALL_TIMEOUT_S,
    )
    async for outcome in outcomes:
        tally.take(outcome)
