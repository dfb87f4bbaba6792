"""Sends the requests of one task, so many at a time, and sees that each has an outcome.

Lives on the event loop. The task's own thread hands over windows of rows and waits for each; what
crosses between the two is one call and one future per window.
"""

from __future__ import annotations

import asyncio
from collections import deque
from concurrent.futures import Future
from functools import partial
from typing import Final, NamedTuple

from requite.client import AsyncClient
from requite.client.asking import CallBody
from requite.errors import CallError, CallTimeout, NoService, TransportError
from requite.request import Reply
from requite.shell import clock

# What may be on its way to the broker and back; far less than what a link holds before it is given
# up (`LinkLimits.output_size_max`). A larger body goes alone.
_BYTES_MAX: Final = 16 << 20
_UNHEARD: Final = (CallTimeout, NoService, TransportError)


class Outcome(NamedTuple):
    """How a row ended: the columns that are added to it, but for the key. `elapsed_s` seconds."""

    reply: bytes | None
    status: str
    attempts: int
    elapsed_s: float
    may_have_executed: bool
    error: str | None


def outcome_of_error(error: CallError, elapsed_s: float) -> Outcome:
    """Tell an error by columns."""
    name, may_have_executed = type(error).__name__, error.may_have_executed
    return Outcome(None, name, error.attempts, elapsed_s, may_have_executed, str(error))


class Window:
    """Some rows of a batch that are to be sent; `done` when each has its outcome.

    The four lists belong to the batch and are as long as that; `rows` are the numbers of those to
    send.
    """

    __slots__ = ("bodies", "done", "ids", "left", "outcomes", "rows", "sizes")

    def __init__(
        self,
        rows: list[int],
        bodies: list[CallBody],
        ids: list[bytes],
        sizes: list[int],
        outcomes: list[Outcome | None],
    ) -> None:
        self.rows = rows
        self.bodies = bodies
        self.ids = ids
        self.sizes = sizes
        self.outcomes = outcomes
        self.left = len(rows)
        self.done: Future[None] = Future()
        if not rows:
            self.done.set_result(None)


class Pump:
    """Keeps up to `limit` requests of a task out, over the end of windows and batches."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        client: AsyncClient,
        *,
        limit: int,
        timeout_s: float | None,
        idempotent: bool,
        give_up: bool,
    ) -> None:
        self._loop = loop
        self._start = client.start
        self._limit = limit
        self._timeout_s = timeout_s
        self._idempotent = idempotent
        self._give_up = give_up
        self._windows: deque[tuple[Window, deque[int]]] = deque()
        self._out: set[asyncio.Future[Reply]] = set()
        self._bytes_out = 0
        self._unheard = 0  # failures in a row of requests that never reached a handler
        self._lost_to: CallError | None = None  # the last of them, once there were too many

    # --- for the task's thread --------------------------------------------------------------------
    def offer(self, window: Window) -> None:
        """Send these rows as room permits."""
        if window.rows:
            self._loop.call_soon_threadsafe(self._take, window)

    def stop(self) -> None:
        """Send nothing more, and cancel what is out: the task has ended."""
        self._loop.call_soon_threadsafe(self._cancel)

    # --- on the loop ------------------------------------------------------------------------------
    def _take(self, window: Window) -> None:
        self._windows.append((window, deque(window.rows)))
        self._fill()

    def _cancel(self) -> None:
        self._windows.clear()
        for future in list(self._out):
            future.cancel()

    def _fill(self) -> None:
        windows = self._windows
        while windows:
            window, rows = windows[0]
            if self._lost_to is not None:
                self._refuse(window, rows, self._lost_to)
            while rows:
                size = window.sizes[rows[0]]
                if len(self._out) >= self._limit:
                    return
                if self._out and self._bytes_out + size > _BYTES_MAX:
                    return
                self._send(window, rows.popleft(), size)
            windows.popleft()

    def _send(self, window: Window, row: int, size: int) -> None:
        try:
            future = self._start(
                window.bodies[row],
                timeout=self._timeout_s,
                idempotent=self._idempotent,
                idempotency_key=window.ids[row],
            )
        except Exception as error:  # a defect, or a client that cannot do what was checked before
            if not window.done.done():
                window.done.set_exception(error)
            return
        self._bytes_out += size
        self._out.add(future)
        future.add_done_callback(partial(self._ended, window, row, size, clock.now()))

    def _ended(
        self, window: Window, row: int, size: int, sent_at: float, future: asyncio.Future[Reply]
    ) -> None:
        self._bytes_out -= size
        self._out.discard(future)
        if future.cancelled():
            return  # by `stop`: nobody waits for it
        error = future.exception()
        if error is None:
            self._unheard = 0
            reply = future.result()
            outcome = Outcome(reply.body, "OK", reply.attempts, reply.elapsed, True, None)
        elif isinstance(error, CallError):
            self._count(error)
            outcome = outcome_of_error(error, clock.now() - sent_at)
        else:
            window.done.set_exception(error)
            return
        self._settle(window, row, outcome)
        self._fill()

    def _settle(self, window: Window, row: int, outcome: Outcome) -> None:
        window.outcomes[row] = outcome
        window.left -= 1
        if not window.left and not window.done.done():
            window.done.set_result(None)

    # --- a service that is down -------------------------------------------------------------------
    def _count(self, error: CallError) -> None:
        """Count failures in a row after which it is safe to say that nobody is there."""
        if error.may_have_executed or not isinstance(error, _UNHEARD):
            self._unheard = 0
            return
        self._unheard += 1
        if self._give_up and self._unheard >= self._limit:
            self._lost_to = error

    def _refuse(self, window: Window, rows: deque[int], error: CallError) -> None:
        """End rows without sending them: each would only wait for its own deadline in turn."""
        why = f"not sent, since {self._unheard} requests in a row had failed like this: {error}"
        outcome = Outcome(None, type(error).__name__, 0, 0.0, False, why)
        while rows:
            self._settle(window, rows.popleft(), outcome)
