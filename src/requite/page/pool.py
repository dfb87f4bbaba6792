"""`PoolPage`: the web page of the manager of a pool.

GET /                      the pool: its manager, its groups, and what started or stopped them
GET /events                changes of it, as server-sent events
GET /page.css, /page.js    its style sheet and script

It shows what `/status` of the manager gives as JSON, to those who may read that: the HTTP server of
the manager (`requite.pool.manager.endpoints`) decides it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from requite.page.assets import file_routes
from requite.page.groups import Groups, GroupsView, PoolSnapshot, snapshot_of, view_of
from requite.page.readings import SharedReadings
from requite.page.rendering import answer, compile_templates
from requite.page.streams import Streams, head, streams_max
from requite.page.views import Parts, Rendered
from requite.pool.manager.managed import Managed


class PoolPage:
    """The page of `manager`; see `requite.metrics.monitor.WebPage`."""

    def __init__(self, manager: Managed) -> None:
        self._manager: Final = manager
        self._readings: Final = SharedReadings(self._read)
        self._rendered: Final[Rendered[PoolSnapshot, GroupsView]] = Rendered(Groups().parts)
        self._streams: Final[Streams[PoolSnapshot, GroupsView]] = Streams(
            self._readings, self._parts
        )
        self._publishing: asyncio.Task[None] | None = None

    @property
    def connections_max(self) -> int:
        """Connections that the server needs beside those that it has for other requests."""
        return streams_max()

    @property
    def routes(self) -> Sequence[Route]:
        """What to answer, by address."""
        return [
            Route("/", self._show, methods=["GET"]),
            Route("/events", self._stream, methods=["GET"]),
            *file_routes(),
        ]

    def is_shown_at(self, _host: str) -> bool:
        """Return True: the server of the manager decides who may see the page."""
        return True

    def not_found(self) -> Response:
        """Return the answer to a request for something else."""
        return _trouble(
            404,
            "There is no such page",
            "The manager has no page at this address.",
            "Begin with the groups of the pool.",
        )

    async def start(self) -> None:
        """Compile the templates, and serve streams."""
        await compile_templates()
        self._publishing = asyncio.create_task(self._streams.publish_forever())

    async def close(self) -> None:
        """End all streams and readings."""
        self._streams.close()
        if self._publishing is not None:
            self._publishing.cancel()
            await asyncio.wait((self._publishing,))
        await self._readings.close()

    async def _read(self) -> PoolSnapshot:
        return snapshot_of(self._manager)

    def _parts(self, snapshot: PoolSnapshot, view: GroupsView) -> Parts:
        return self._rendered.parts(snapshot, view) or {}

    async def _show(self, request: Request) -> Response:
        view, snapshot = view_of(request.query_params), await self._readings.latest()
        values = {"view": view, "status": snapshot.status, "parts": self._parts(snapshot, view)}
        return answer("pool.html", values)

    async def _stream(self, request: Request) -> Response:
        view = view_of(request.query_params)
        first = self._parts(await self._readings.latest(), view)
        if request.method == "HEAD":
            return head()
        if self._streams.is_full:
            return _trouble(
                503,
                "Too many open pages",
                f"{streams_max():,} pages of this manager are open, which is the limit.",
                "This page is current as of when it was loaded. Close others, and load it again.",
            )
        return self._streams.answer(view, first, lambda: True)


def _trouble(status: int, title: str, what: str, remedy: str) -> Response:
    values = {"title": title, "what": what, "remedy": remedy}
    return answer("pool_error.html", values, status)
