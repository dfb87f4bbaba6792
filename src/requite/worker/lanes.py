"""Run handlers in a few long-lived tasks, each of which works through queued requests.

A task per request would cost more than the protocol. Instead, requests wait in a queue and the
first of a batch wakes a *lane*, which runs handlers one after another in one step of its task until
one suspends. If requests are left then, the next lane is woken. A handler that never suspends costs
no task and no wake-up; one that suspends runs in a real task, so `asyncio.timeout`, task groups and
`current_task` work.

Each request begins with the context variables that were set when the worker started. A task cannot
restore its context, so a lane ends after a handler that has changed a variable, and another one
takes the rest.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from contextvars import Context, copy_context
from typing import Final, Generic, TypeVar

from requite.core.durations import Durations
from requite.shell import clock

# Seconds for interrupted handlers to clean up when the worker closes.
CLOSE_S: Final = 5.0

_log = logging.getLogger("requite.worker")

Token = TypeVar("Token")
Work = TypeVar("Work")


class Lanes(Generic[Token, Work]):
    """Up to `n` tasks that call `run(token, work)` in order of arrival; tokens are unique.

    `run` may raise only `CancelledError`, when `cancel` interrupts it. `dropped(token)` is called
    for interrupted work and for work cancelled before it began. Work that is not `interruptible`
    runs to its end.
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
        self._context = copy_context()  # that of each request
        self.took: Final = Durations()  # of work that was begun
        self.withdrawn = 0  # work that was cancelled before it began
        self.interrupted = 0  # work that `close` interrupted; `dropped` is not called
        self._looking = False  # `_wake_one` is scheduled in this iteration
        self._closed = False

    def put(self, token: Token, work: Work) -> None:
        """Queue work; it begins in the loop's next iteration."""
        self._waiting[token] = work
        if not self._looking:
            self._wake_one()

    def put_all(self, pairs: Iterable[tuple[Token, Work]]) -> None:
        """Queue several pieces of work, in order."""
        self._waiting.update(pairs)
        if not self._looking:
            self._wake_one()

    def cancel(self, token: Token) -> None:
        """Cancel work: remove it from the queue, or interrupt it; ignore unknown tokens."""
        if token in self._waiting:
            del self._waiting[token]
            self.withdrawn += 1
            self._dropped(token)
        elif self._interruptible and token in self._running:
            self._running[token].cancel()

    @property
    def waiting(self) -> int:
        """How much work waits."""
        return len(self._waiting)

    @property
    def running(self) -> int:
        """How much work runs."""
        return len(self._running)

    async def close(self) -> None:
        """Interrupt all work and end the tasks; tasks that do not end in time are abandoned."""
        if self._closed:  # a second call does not wait
            return
        self._closed = True
        self._waiting.clear()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            _, stuck = await asyncio.wait(self._tasks, timeout=CLOSE_S)
            if stuck:
                _log.warning(
                    "%d handlers did not end after they were interrupted; their threads still run",
                    len(stuck),
                )

    def _wake_one(self) -> None:
        """Wake a lane and check again after its step: it may have suspended in a handler."""
        self._looking = False
        if not self._waiting or self._closed:
            return
        if self._idle:
            idle = self._idle.pop()
            idle.set_result(None)
            loop = idle.get_loop()  # asking which loop runs is a system call
        elif len(self._tasks) < self._n:
            loop = asyncio.get_running_loop()
            task = loop.create_task(self._lane(), context=self._context.copy())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        else:
            return  # the next free lane takes the queued work
        self._looking = True
        loop.call_soon(self._wake_one)  # after the lane's step, in the same loop iteration

    def _end_lane(self, task: asyncio.Task[None]) -> None:
        """Leave the queue to another lane."""
        self._tasks.discard(task)
        if not self._looking:
            self._wake_one()

    async def _lane(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        loop = asyncio.get_running_loop()
        while True:
            while self._waiting:
                # Inline: a separate coroutine would cost every request 0.2 us.
                token, work = self._waiting.popitem(False)  # the first one
                self._running[token] = task
                began = clock.now()
                try:
                    await self._run(token, work)
                except asyncio.CancelledError:
                    if self._closed:
                        self.interrupted += 1
                        raise
                    self._dropped(token)
                finally:
                    del self._running[token]
                    self.took.add(clock.now() - began)
                if self._closed:  # the handler suppressed the cancellation
                    return
                if not _are_equal(copy_context(), self._context):  # 0.1 us
                    self._end_lane(task)
                    return
                while task.cancelling():  # the request was cancelled, not the lane
                    task.uncancel()
            idle: asyncio.Future[None] = loop.create_future()
            self._idle.append(idle)
            await idle


def _are_equal(context: Context, other: Context) -> bool:
    """Compare contexts: at once if no variable was set, else by their values."""
    try:
        return context == other
    except Exception:  # raised by the comparison of a user's values
        return False
