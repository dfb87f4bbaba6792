"""Hold asynchronous calls while the broker pushes back."""

from __future__ import annotations

import asyncio
from math import inf

from requite.errors import CallTimeout
from requite.shell import clock


class Gate:
    """Closed under back-pressure until the connection drains; every call checks `is_open` first."""

    __slots__ = ("_opened", "is_open")

    def __init__(self) -> None:
        self.is_open = True
        self._opened: asyncio.Event | None = None

    def set(self, is_open: bool) -> None:
        """Open or close the gate."""
        self.is_open = is_open
        if is_open and self._opened is not None:
            self._opened.set()
            self._opened = None
        elif not is_open and self._opened is None:
            self._opened = asyncio.Event()

    async def passed(self, deadline: float = inf) -> None:
        """Wait until the gate is open; raise `CallTimeout` at the call's deadline."""
        limit_s = deadline - clock.now()
        try:
            async with asyncio.timeout(None if limit_s == inf else limit_s):
                while self._opened is not None:
                    await self._opened.wait()
        except TimeoutError:
            raise CallTimeout(
                "the broker accepted no more data until the deadline; the request was"
                " never sent, and has not run",
                may_have_executed=False,
            ) from None
