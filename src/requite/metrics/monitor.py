"""`Monitor`: an HTTP server for the metrics of a process, and for checks whether it works.

GET /metrics                         metrics of Prometheus
GET /metrics/detailed?service=NAME   all numbers of one service of a broker
GET /health                          200: the process lives, and its event loop turns
GET /ready                           200 if it can do its work, else 503 and the reason

A broker's has a web page, too (`requite.page`). Anyone who can connect may ask for the others.
`reading.py` bounds what readings of /metrics cost; /health and /ready cost what the HTTP around
them does, however many services there are.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from prometheus_client.registry import Collector
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from requite.errors import ConfigurationError
from requite.framing.web_hosts import canonical
from requite.metrics.families import text_of
from requite.metrics.process import LoopLag, Process, of_process
from requite.metrics.reading import SharedReading, answer_of
from requite.web.answers import answer_early
from requite.web.hosts import Hosts
from requite.web.place import Place
from requite.web.server import CONNECTIONS_MAX, HttpServer

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

_CLOSE_S: Final = 1.0
_ENTRIES: Final = {"/", "/metrics", "/metrics/detailed", "/health", "/ready"}
_OWN: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # loopback, of wildcard addresses
_STARTING: Final = "it is starting"
_DRAINING: Final = "it is being drained"


class Watched(Protocol):
    """What a monitor shows of a server, once it has started."""

    @property
    def trouble(self) -> str:
        """Why the server cannot do its work, as text; "" if it can."""

    async def read(self) -> Sequence[Collector]:
        """Return its metrics."""

    async def read_service(self, name: str) -> Sequence[Collector] | None:
        """Return all metrics of a service; None if there is none of that name."""


class WebPage(Protocol):
    """A web page beside the metrics. `connections_max`: how many connections it needs, beside those
    of the others."""

    @property
    def connections_max(self) -> int: ...
    @property
    def routes(self) -> Sequence[Route]: ...
    def is_shown_at(self, host: str) -> bool: ...
    def not_found(self) -> Response: ...
    async def start(self) -> None: ...
    async def close(self) -> None: ...


class Monitor:
    """Serves the metrics of `watched`, the server of this `process`, at `place`, and a `page`.

    `hosts` are further names in the field `Host` of requests, beside the address and `place.host`.
    Raises `ConfigurationError` for names that are no hosts.
    """

    def __init__(
        self,
        place: Place,
        process: Process,
        watched: Watched,
        hosts: Sequence[str] = (),
        page: WebPage | None = None,
    ) -> None:
        for each in hosts:
            if canonical(each) is None:
                raise ConfigurationError(f"--http-host: {each!r} is not a host without a port")
        self._place: Final = place
        self._process: Final = process
        self._watched: Final = watched
        self._page: Final = page
        self._hosts: Final = Hosts((place.host, *hosts))
        self._lag: Final = LoopLag()
        self._reading: Final = SharedReading(self._read)
        self._is_started = False
        self._is_draining = False
        app = Starlette(
            routes=[
                _get("/metrics", self._metrics),
                _get("/metrics/detailed", self._detailed),
                _get("/health", _health),
                _get("/ready", self._ready),
                *(() if page is None else page.routes),
            ],
            exception_handlers={HTTPException: self._http_error, Exception: _failed},
        )
        app.router.redirect_slashes = False
        self._app: Final = app
        connections = CONNECTIONS_MAX + (0 if page is None else page.connections_max)
        self._server: Final = HttpServer(
            self._answer, logger="requite.metrics", connections_max=connections
        )

    @property
    def url(self) -> str:
        """The URL, with the port that was bound; empty before `start`."""
        return self._server.url

    @property
    def page_url(self) -> str:
        """The URL of the web page, of a loopback address if it is served at all of them; "" before
        `start`, and if no page is shown there."""
        host = _OWN.get(self._place.host, self._place.host)
        if self._page is None or not self.url or not self._page.is_shown_at(host):
            return ""
        shown = f"[{host}]" if ":" in host else host
        return f"http://{shown}:{self.url.rpartition(':')[2]}/"

    async def start(self) -> None:
        """Listen. Raises `TransportError` if the address cannot be bound."""
        await self._server.listen(self._place.host, self._place.port, "--http")
        self._lag.start()

    async def started(self) -> None:
        """The server has started: from now on its metrics are read."""
        self._is_started = True
        if self._page is not None:
            await self._page.start()

    def draining(self) -> None:
        """The server is being drained: it is not ready any more."""
        self._is_draining = True

    async def close(self) -> None:
        """Stop, within a second."""
        self._lag.stop()
        if self._page is not None:
            await self._page.close()
        await self._server.close(_CLOSE_S)
        await self._reading.close()

    @property
    def trouble(self) -> str:
        """Why the server is not ready, as text; "" if it is."""
        if not self._is_started:
            return _STARTING
        return _DRAINING if self._is_draining else self._watched.trouble

    # --- requests ---------------------------------------------------------------------------------
    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request (ASGI), unless it is one of a foreign web page."""
        refusal = self._refusal(scope) if scope["type"] == "http" else ""
        if refusal:
            await answer_early(_text(refusal, 403), receive, send)
        else:
            await self._app(scope, receive, send)

    def _refusal(self, scope: Scope) -> str:
        if (host := self._hosts.foreign_host(scope)) is not None:
            return f"{host} is not a host of this server: add it with --http-host"
        if (origin := self._hosts.foreign_origin(scope)) is not None:
            return f"web pages of {origin} may not read this"
        if self._hosts.is_foreign_fetch(scope, is_entry=scope["path"] in _ENTRIES):
            return "web pages of other sites may not read this: open it in a window of its own"
        return ""

    async def _metrics(self, _request: Request) -> Response:
        return await self._reading.response()

    async def _read(self) -> Sequence[Collector]:
        families = of_process(self._process, self._lag, is_ready=not self.trouble)
        if self._is_started:
            families += await self._watched.read()
        return families

    async def _detailed(self, request: Request) -> Response:
        name = request.query_params.get("service")
        if not name:
            return _text("name a service: /metrics/detailed?service=NAME", 400)
        families = await self._watched.read_service(name) if self._is_started else None
        if families is None:
            return _text(f"there is no service {name[:255]!a} here", 404)
        return answer_of(await text_of(families))

    async def _ready(self, _request: Request) -> Response:
        trouble = self.trouble
        return JSONResponse({"ready": not trouble, "flaw": trouble}, 503 if trouble else 200)

    async def _http_error(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        is_browser = "text/html" in request.headers.get("accept", "")
        if self._page is not None and is_browser and error.status_code == 404:
            return self._page.not_found()
        ways = "there are /metrics, /health and /ready"
        return PlainTextResponse(
            f"{error.detail}: {ways}\n", error.status_code, headers=error.headers
        )


async def _health(_request: Request) -> Response:
    return JSONResponse({"healthy": True})


def _get(path: str, handler: Callable[[Request], Awaitable[Response]]) -> Route:
    return Route(path, handler, methods=["GET"])


def _text(text: str, status: int) -> PlainTextResponse:
    return PlainTextResponse(f"{text}\n", status)


async def _failed(_request: Request, _error: Exception) -> Response:
    """Answer a request that failed; the log has the exception."""
    return _text("the reading failed, and the log of the process has the reason", 500)
