"""Where handlers run: a few long-lived tasks, each working off one request after the other.

A task per request would cost more than the protocol does. Instead requests wait in a queue, and a
*lane* is woken for the first of a batch; it runs handlers one after the other inside one step of
its task for as long as they do not suspend. When it suspends and requests are left, the next lane
is woken. So a handler that never suspends costs no task and no wake-up, and one that does still has
a real task around it: `asyncio.timeout`, task groups and `current_task` work.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, Generic, TypeVar

# Time for handlers to tidy up in when they are interrupted for good.
CLOSE_S: Final = 5.0

_log = logging.getLogger("requite.worker")

Token = TypeVar("Token")
Work = TypeVar("Work")


class Lanes(Generic[Token, Work]):
    """Up to `n` tasks that call `run(token, work)`, in order of arrival; tokens are unique.

    `run` raises nothing but `CancelledError`, when `cancel` interrupts it; then, and when the work
    had not begun, `dropped(token)` is called. Work that is not `interruptible` runs to its end.
    """

    def __init__(
        self,
        n: int,
        run: Callable[[Token, Work], Awaitable[None]],
        dropped: Callable[[Token], None],
        *,
        interruptible: bool,
    ) -> None:
        self._n = n
        self._run = run
        self._dropped = dropped
        self._interruptible = interruptible
        self._waiting: OrderedDict[Token, Work] = OrderedDict()
        self._running: dict[Token, asyncio.Task[None]] = {}
        self._idle: list[asyncio.Future[None]] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._looking = False  # `_wake_one` will be called in this turn
        self._closed = False

    def put(self, token: Token, work: Work) -> None:
        """Take work; it begins in the loop's next turn."""
        self._waiting[token] = work
        if not self._looking:
            self._wake_one()

    def put_all(self, pairs: Iterable[tuple[Token, Work]]) -> None:
        """Take several pieces of work, in order."""
        self._waiting.update(pairs)
        if not self._looking:
            self._wake_one()

    def cancel(self, token: Token) -> None:
        """Give work up: it never starts, or is interrupted where it awaits. Unknown: ignored."""
        if token in self._waiting:
            del self._waiting[token]
            self._dropped(token)
        elif self._interruptible and token in self._running:
            self._running[token].cancel()

    async def close(self) -> None:
        """Interrupt everything and end the tasks; those that will not end are left behind."""
        if self._closed:  # who closes twice is in a hurry
            return
        self._closed = True
        self._waiting.clear()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            _, stuck = await asyncio.wait(self._tasks, timeout=CLOSE_S)
            if stuck:
                _log.warning("%d handlers did not end when they were interrupted", len(stuck))

    def _wake_one(self) -> None:
        """Wake a lane, and look again after its step: it may have suspended in a handler."""
        self._looking = False
        if not self._waiting or self._closed:
            return
        loop = asyncio.get_running_loop()
        if self._idle:
            self._idle.pop().set_result(None)
        elif len(self._tasks) < self._n:
            task = loop.create_task(self._lane())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        else:
            return  # a lane that comes free takes what waits
        self._looking = True
        loop.call_soon(self._wake_one)  # behind the lane's step in the queue of this very turn

    async def _lane(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        loop = asyncio.get_running_loop()
        while True:
            while self._waiting:
                # Not in a coroutine of its own, which would cost every request 0.2 us.
                token, work = self._waiting.popitem(False)  # the first one
                self._running[token] = task
                try:
                    await self._run(token, work)
                except asyncio.CancelledError:
                    if self._closed:
                        raise
                    self._dropped(token)
                finally:
                    del self._running[token]
                if self._closed:  # the handler did not let itself be interrupted
                    return
                while task.cancelling():  # the request was cancelled, not the lane
                    task.uncancel()
            idle: asyncio.Future[None] = loop.create_future()
            self._idle.append(idle)
            await idle
