"""One reading of metrics for all who ask for them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from math import inf
from typing import Final

from prometheus_client.registry import Collector
from starlette.responses import Response

from requite.metrics.families import CONTENT_TYPE, text_of
from requite.shell import clock

_REUSED: Final = 50  # times the duration of a reading
_REUSED_S_MAX: Final = 1.0


class SharedReading:
    """Answers requests for the metrics that `read` returns.

    One reading answers all requests that come meanwhile, and those of a time after it that grows
    with what the reading took: however many ask, readings take about a fiftieth of the time of the
    event loop.
    """

    def __init__(self, read: Callable[[], Awaitable[Iterable[Collector]]]) -> None:
        self._read: Final = read
        self._latest: asyncio.Task[bytes] | None = None
        self._reused_until = -inf

    async def response(self) -> Response:
        """Return the answer to a request."""
        latest = self._latest
        if latest is None or (latest.done() and clock.now() >= self._reused_until):
            latest = self._latest = asyncio.create_task(self._make())
        return answer_of(await asyncio.shield(latest))

    async def _make(self) -> bytes:
        began = clock.now()
        try:
            return await text_of(await self._read())
        finally:
            now = clock.now()
            self._reused_until = now + min(_REUSED_S_MAX, _REUSED * (now - began))

    async def close(self) -> None:
        """End the reading in progress, for which no request waits any more."""
        if self._latest is not None:
            self._latest.cancel()
            await asyncio.wait((self._latest,))


def answer_of(text: bytes) -> Response:
    """Return an answer with metrics."""
    return Response(text, headers={"Content-Type": CONTENT_TYPE, "Cache-Control": "no-store"})
