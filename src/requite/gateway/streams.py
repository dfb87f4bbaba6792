"""Partial replies as server-sent events.

    id: 0                                  each partial reply
    data: {"price":"0.50"}

    event: end                             the end
    data: {}

    event: error                           or the problem (`problems.py`)
    data: {"error":"WorkerLost", …}

Source: HTML, section "Server-sent events".
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final

from requite.gateway.problems import Problem
from requite.request import Partial

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from starlette.types import Send

    from requite.request import Reply

EVENTS_TYPE: Final = "text/event-stream"
ANSWER_S: Final = 1.0
"""A stream without a partial reply or an error for so long is answered with status 200."""
KEEP_ALIVE_S: Final = 15.0
"""A comment is sent after so long without an event."""
STALLED_S: Final = 30.0
"""A client that takes no bytes for so long is left alone."""

_HEADERS: Final = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),  # nginx passes events on at once
)
_END: Final = b"event: end\ndata: {}\n\n"


class Outbox:
    """Events that wait for a client. `size_max` is the maximum of their bytes, unless there is one
    event only."""

    def __init__(self, size_max: int, root: str) -> None:
        self._size_max: Final = size_max
        self._root: Final = root
        self._events: deque[bytes] = deque()
        self._size = 0
        self._changed = asyncio.Event()
        self._problem: Problem | None = None
        self._is_over = False

    async def fill(
        self,
        parts: AsyncIterator[Partial | Reply],
        event_data: Callable[[bytes], bytes],
        problem_of: Callable[[Exception], Problem],
    ) -> None:
        """Take all partial replies of a call as they come; cancel it if the client falls behind."""
        index = 0
        try:
            async with aclosing(parts):  # type: ignore[type-var]
                async for part in parts:
                    if isinstance(part, Partial):
                        index = part.index + 1
                        self._put(part.index, event_data(part.body))
                    elif part.body:  # the method has one reply since its service was restarted
                        self._put(index, event_data(part.body))
        except Exception as error:
            self._problem = error if isinstance(error, Problem) else problem_of(error)
        self._is_over = True
        self._changed.set()

    def _put(self, index: int, data: bytes) -> None:
        if self._events and self._size + len(data) > self._size_max:
            raise Problem(
                "SlowReader",
                f"more than {self._size_max} bytes of partial replies waited for the client; the"
                " call was cancelled",
                may_have_executed=True,
                attempts=1,
            )
        event = b"id: %d\n%b\n" % (index, _data(data))
        self._events.append(event)
        self._size += len(event)
        self._changed.set()

    async def take(self, timeout_s: float) -> bytes | None:
        """Return the waiting events, joined; b"" if none has come in time, None at the end."""
        if not self._events and not self._is_over:
            self._changed.clear()
            try:
                async with asyncio.timeout(timeout_s):
                    await self._changed.wait()
            except TimeoutError:
                return b""
        if self._events:
            joined = b"".join(self._events)
            self._events.clear()
            self._size = 0
            return joined
        return None

    def last(self) -> bytes:
        """Return the event that ends the stream."""
        if self._problem is None:
            return _END
        return b"event: error\n" + _data(self._problem.encoded(self._root)) + b"\n"

    async def send(self, send: Send) -> None:
        """Answer a request with the events. Raises `Problem` if there is one before any event."""
        events = await self.take(ANSWER_S)
        if events is None and self._problem is not None:
            raise self._problem
        await send({"type": "http.response.start", "status": 200, "headers": [*_HEADERS]})
        while events is not None:
            if events and not await _sent(send, events):
                return
            events = await self.take(KEEP_ALIVE_S)
            if events == b"":
                events = b":\n\n"
        await _sent(send, self.last(), more=False)


def _data(data: bytes) -> bytes:
    """Return the lines of one event's data: JSON may have line ends between its parts."""
    lines = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
    return b"".join(b"data: %b\n" % line for line in lines)


async def _sent(send: Send, events: bytes, *, more: bool = True) -> bool:
    """Send events; return whether the client took them in time."""
    message: dict[str, Any] = {"type": "http.response.body", "body": events, "more_body": more}
    try:
        async with asyncio.timeout(STALLED_S):
            await send(message)
    except TimeoutError:
        return False
    return True
