"""Handle SIGTERM and SIGINT in servers: the first signal drains, the second stops at once.

SIGHUP has two meanings. A process that was started from a terminal gets it when the terminal is
closed, and drains; all others are told to read their settings again.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Coroutine
from typing import Any, Final

_STOPPING: Final = (signal.SIGTERM, signal.SIGINT)
_log = logging.getLogger("requite.shell")


def has_terminal() -> bool:
    """Whether standard input is a terminal, so that SIGHUP says that it was closed."""
    return os.isatty(0)


def say_nothing_to_reload() -> None:
    """Log that SIGHUP has no effect."""
    _log.warning("SIGHUP: nothing to reload; this process goes on with its settings")


class StopSignals:
    """Context manager that turns the signals into events. Main thread only.

    A program's own handler of SIGHUP stays, and an ignored SIGHUP (nohup) stays ignored.
    """

    def __init__(self) -> None:
        self._first = asyncio.Event()
        self._second = asyncio.Event()
        self._handled: list[signal.Signals] = []

    def __enter__(self) -> StopSignals:
        loop = asyncio.get_running_loop()
        self._handled = [*_STOPPING]
        for number in _STOPPING:
            loop.add_signal_handler(number, self._arrived)
        if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:
            self._handled.append(signal.SIGHUP)
            # Only the first: shell and kernel both send SIGHUP.
            on_hangup = self._first.set if has_terminal() else say_nothing_to_reload
            loop.add_signal_handler(signal.SIGHUP, on_hangup)
        return self

    def __exit__(self, *_error: object) -> None:
        loop = asyncio.get_running_loop()
        for number in self._handled:
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
