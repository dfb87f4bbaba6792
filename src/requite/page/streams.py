"""Server-sent events that keep open pages current.

    data: {"state": "<dl>…", "services": "<table>…"}

Each event has the HTML of the parts of the page that have changed, by their ids. One reading per
second is for all streams, and each view is rendered once for all who have it open. A
stream holds the newest parts only, and drops older ones: a client that reads slowly misses some. Of
one that reads nothing, the connection is closed (`requite.web.connection.STALLED_S`).

Source: HTML, section "Server-sent events".
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable
from resource import RLIM_INFINITY
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from starlette.responses import Response, StreamingResponse

from requite.page.readings import COST, SharedReadings
from requite.page.views import Parts
from requite.shell import clock
from requite.transport import descriptors

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

STREAMS_MAX: Final = 1000
"""Open streams of a broker."""

EVERY_S: Final = 1.0
_PER_STREAM_S: Final = 0.01  # sending an event takes up to 0.1 ms: a hundredth of it
_HEADERS: Final = {
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Accel-Buffering": "no",
}
_log: Final = logging.getLogger("requite.page")

_S = TypeVar("_S")
_V = TypeVar("_V")


def streams_max() -> int:
    """Return how many streams there may be: `STREAMS_MAX`, or half of the limit of descriptors, of
    which the peers of the broker need the others."""
    allowed = descriptors.limit()
    return STREAMS_MAX if allowed == RLIM_INFINITY else min(STREAMS_MAX, allowed // 2)


class Stream(Generic[_V]):
    """One open page."""

    def __init__(self, view: _V, is_allowed: Callable[[], bool]) -> None:
        self.view: Final = view
        self._is_allowed: Final = is_allowed
        self._newest: Parts | None = {}
        self._changed = asyncio.Event()

    def offer(self, parts: Parts | None) -> None:
        """Send these parts next, in place of those that wait; None ends the stream, and the browser
        connects again."""
        self._newest = parts
        self._changed.set()

    async def events(self) -> AsyncIterator[str]:
        """Yield an event for each change of the page."""
        sent: Parts = {}
        while True:
            await self._changed.wait()
            self._changed.clear()
            parts = self._newest
            if parts is None:
                return
            if not self._is_allowed():
                yield "event: end\ndata: {}\n\n"
                return
            changed = {name: text for name, text in parts.items() if sent.get(name) != text}
            sent = parts
            yield f"data: {json.dumps(changed)}\n\n"


def head() -> Response:
    """Return the answer to HEAD: the fields of a stream, without one."""
    return Response(headers=_HEADERS, media_type="text/event-stream")


class _Answer(StreamingResponse, Generic[_S, _V]):
    """The answer that sends the events of a stream, until the client is gone."""

    def __init__(self, streams: Streams[_S, _V], stream: Stream[_V]) -> None:
        super().__init__(stream.events(), headers=_HEADERS, media_type="text/event-stream")
        self._streams: Final = streams
        self._stream: Final = stream

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer (ASGI)."""
        self._streams.add(self._stream)
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._streams.remove(self._stream)


class Streams(Generic[_S, _V]):
    """The open streams, each with the parts that `parts_of` makes of a reading and its view."""

    def __init__(self, readings: SharedReadings[_S], parts_of: Callable[[_S, _V], Parts]) -> None:
        self._readings: Final = readings
        self._parts_of: Final = parts_of
        self._open: dict[Stream[_V], None] = {}
        self._someone = asyncio.Event()
        self._is_closed = False

    @property
    def is_full(self) -> bool:
        """Whether there are as many as there may be."""
        return len(self._open) >= streams_max()

    def answer(self, view: _V, first: Parts, is_allowed: Callable[[], bool]) -> Response:
        """Return the answer to a visitor who has a page open, while `is_allowed`."""
        stream = Stream(view, is_allowed)
        stream.offer(None if self._is_closed else first)
        return _Answer(self, stream)

    def add(self, stream: Stream[_V]) -> None:
        """Keep a stream current."""
        self._open[stream] = None
        self._someone.set()

    def remove(self, stream: Stream[_V]) -> None:
        """Forget a stream that has ended."""
        del self._open[stream]
        if not self._open:
            self._someone.clear()

    async def publish_forever(self) -> None:
        """Read and render again and again while a stream is open. Takes a hundredth of the time of
        the loop at most, so that with many streams or services the pages change less often."""
        while True:
            await self._someone.wait()
            began, interval_s = clock.now(), EVERY_S
            try:
                interval_s = await self._publish()
            except Exception:  # a failed reading must not end later ones
                _log.exception("the page cannot be rendered")
            await asyncio.sleep(max(0.0, began + interval_s - clock.now()))

    async def _publish(self) -> float:
        """Offer every stream its parts; return the time from this to the next ones."""
        snapshot = await self._readings.latest()
        by_view: dict[_V, list[Stream[_V]]] = {}
        for each in self._open:
            by_view.setdefault(each.view, []).append(each)
        busy_s = self._readings.took_s
        for view, streams in by_view.items():
            began = clock.now()
            parts = self._parts_of(snapshot, view)
            busy_s += clock.now() - began
            for each in streams:
                each.offer(parts)
            await asyncio.sleep(0)
        return max(EVERY_S, COST * busy_s + _PER_STREAM_S * len(self._open))

    def close(self) -> None:
        """End all streams."""
        self._is_closed = True
        for each in self._open:
            each.offer(None)
