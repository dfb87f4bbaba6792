"""Where asynchronous calls wait while the broker takes no more data."""

from __future__ import annotations

import asyncio
from math import inf

from requite.errors import CallTimeout
from requite.shell import clock


class Gate:
    """Open, or closed until the link drains; `is_open` is looked at before every call."""

    __slots__ = ("_opened", "is_open")

    def __init__(self) -> None:
        self.is_open = True
        self._opened: asyncio.Event | None = None

    def set(self, is_open: bool) -> None:
        """Open or close it."""
        self.is_open = is_open
        if is_open and self._opened is not None:
            self._opened.set()
            self._opened = None
        elif not is_open and self._opened is None:
            self._opened = asyncio.Event()

    async def passed(self, deadline: float = inf) -> None:
        """Wait until it is open; raise `CallTimeout` at the deadline of the call that waits."""
        limit_s = deadline - clock.now()
        try:
            async with asyncio.timeout(None if limit_s == inf else limit_s):
                while self._opened is not None:
                    await self._opened.wait()
        except TimeoutError:
            raise CallTimeout(
                "the broker took no more data until the deadline; the request was never sent",
                may_have_executed=False,
            ) from None
