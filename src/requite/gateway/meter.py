"""The metrics of a gateway."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from requite.core.durations import Durations
from requite.metrics import catalogue as metrics
from requite.metrics.families import Family, singles
from requite.shell import clock
from requite.web.connection import ANSWERED

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send


class Meter:
    """An ASGI application that passes requests on to `app`, and counts the answers."""

    def __init__(self, app: ASGIApp) -> None:
        self._app: Final = app
        self._answered: Final[Counter[int]] = Counter()  # by status
        self._took: Final = Durations()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request (ASGI)."""
        began = clock.now()
        code = 0

        async def count(message: Message) -> None:
            nonlocal code
            if message["type"] == "http.response.start":
                code = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, count)
        finally:
            if code := scope.get("state", {}).get(ANSWERED, code):
                self._answered[code] += 1
                self._took.add(clock.now() - began)

    def read(self, in_progress: int) -> list[Family]:
        """Return the metrics; `in_progress`: calls that are being answered."""
        answered, took = Family(metrics.GATEWAY_ANSWERED), Family(metrics.GATEWAY_TOOK)
        for code, count in sorted(self._answered.items()):
            answered.add(count, str(code))
        took.add_durations(self._took.counts, self._took.total_s)
        return [answered, took, *singles((metrics.GATEWAY_IN_PROGRESS, in_progress))]
