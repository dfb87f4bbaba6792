"""Handle SIGTERM and SIGINT in servers: the first signal drains, the second stops at once."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any, Final

_STOPPING: Final = (signal.SIGTERM, signal.SIGINT)


class StopSignals:
    """Context manager that turns the signals into events. Main thread only."""

    def __init__(self) -> None:
        self._first = asyncio.Event()
        self._second = asyncio.Event()

    def __enter__(self) -> StopSignals:
        loop = asyncio.get_running_loop()
        for number in _STOPPING:
            loop.add_signal_handler(number, self._arrived)
        return self

    def __exit__(self, *_error: object) -> None:
        loop = asyncio.get_running_loop()
        for number in _STOPPING:
            loop.remove_signal_handler(number)

    def _arrived(self) -> None:
        (self._second if self._first.is_set() else self._first).set()

    async def first_or(self, other: Coroutine[Any, Any, None]) -> None:
        """Wait for the first signal or for `other` to finish."""
        waits = [asyncio.ensure_future(self._first.wait()), asyncio.ensure_future(other)]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waits:
                each.cancel()

    async def unless_second(self, work: Coroutine[Any, Any, None]) -> None:
        """Run `work`; cancel it at the second signal."""
        task = asyncio.ensure_future(work)
        second = asyncio.ensure_future(self._second.wait())
        await asyncio.wait((task, second), return_when=asyncio.FIRST_COMPLETED)
        second.cancel()
        if not task.done():
            task.cancel()
            await asyncio.wait((task,))
        else:
            task.result()
