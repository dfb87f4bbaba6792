"""The numbers of a demo's requests."""

from __future__ import annotations

import asyncio


class RequestSource:
    """Hands out the numbers of the requests up to a limit, which `release` raises.

    With the limit, requests are in flight during each fault, however fast the machine is.
    `handed_out` counts the numbers handed out.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self._limit = 0
        self._awaited = 0
        self.handed_out = 0
        self._changed = asyncio.Event()

    async def take(self) -> int | None:
        """Return the next number, or None after the last one."""
        while self._limit <= self.handed_out < self.count:
            await self._changed.wait()
        if self.handed_out >= self.count:
            return None
        number = self.handed_out
        self.handed_out += 1
        if self.handed_out == self._awaited:
            self._wake()
        return number

    async def reached(self, number: int) -> None:
        """Wait until all numbers below this one are handed out. One task at a time may wait."""
        self._awaited = number
        while self.handed_out < number:
            await self._changed.wait()

    def release(self, limit: int) -> None:
        """Hand out numbers below `limit`."""
        self._limit = limit
        self._wake()

    def _wake(self) -> None:
        """Wake all waiting tasks; each checks its condition again."""
        self._changed.set()
        self._changed = asyncio.Event()
