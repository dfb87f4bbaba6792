"""`Page`: the addresses of a broker's page, and who may see them.

GET /                      the broker and its services
GET /services/NAME         one service
GET /requests              search for a request, or ?failed=1&since=10m
GET /requests/ID           the story of a request
GET /events                changes of the first two, as server-sent events
GET, POST /acts/VERB       ask whether to do something, and do it (`acting.py`)
GET /stored                stored requests that are poisoned
GET /page.css, /page.js    open to everybody, as they say nothing about the broker
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from requite.errors import StorageError
from requite.framing.web_hosts import canonical, is_loopback
from requite.page.acting import Acting, BrokerToOperate
from requite.page.acts import KICK, OF_BROKER, OF_PAIR, OF_SERVICE, links
from requite.page.assets import file_routes
from requite.page.curves import Curves
from requite.page.history import EVERY_S, History
from requite.page.home import Home, view_of
from requite.page.readings import BrokerSnapshot, BrokerToShow, Readings
from requite.page.rendering import TEXT_SIZE, answer, compile_templates, text
from requite.page.requests import Requests
from requite.page.services import GONE, Services, ServiceView
from requite.page.streams import Streams, head, streams_max
from requite.page.views import Parts, View, Views
from requite.principal import ANYONE, Principal
from requite.shell import clock
from requite.story.searcher import Searcher
from requite.web.authorization import Authorization, TooManyChecks, Unauthorized

if TYPE_CHECKING:
    from requite.access.guard import Guard

NAMED_MAX: Final = 200
"""Services that the page shows by their names: a table of so many is rendered in some 10 ms."""

_RIGHT: Final = "stats"
_Handler: TypeAlias = Callable[[Request, Principal], Awaitable[Response]]
_log: Final = logging.getLogger("requite.page")


class BrokerWithPage(BrokerToShow, BrokerToOperate, Protocol):
    """A broker that has a page."""


class Page:
    """The page of `broker`, for everybody, or with a guard for its users with the right `admin` of
    `stats`.

    `searcher` finds requests in the journal of the broker; None: it has none. `named_max` is how
    many services the page shows by their names. The page is not encrypted: it is shown over the
    loopback interface only, unless it is `insecure`.
    """

    def __init__(
        self,
        broker: BrokerWithPage,
        *,
        named_max: int = NAMED_MAX,
        guard: Guard | None = None,
        searcher: Searcher | None = None,
        insecure: bool = False,
    ) -> None:
        self._is_insecure: Final = insecure
        self._authorization: Final = None if guard is None else Authorization(guard)
        self._readings: Final = Readings(broker, named_max)
        self._history: Final = History()
        curves = Curves(self._history)
        self._views: Final = Views(Home(curves), Services(broker, curves))
        self._broker: Final = broker
        self._acting: Final = Acting(broker)
        self._searcher: Final = searcher
        self._requests: Final = Requests(searcher)
        self._streams: Final[Streams[BrokerSnapshot, View]] = Streams(
            self._readings, self._parts_now
        )
        self._is_started = False
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def connections_max(self) -> int:
        """Connections that the server needs beside those that it has for other requests."""
        return streams_max()

    @property
    def routes(self) -> Sequence[Route]:
        """What to answer, by address."""
        requests = self._requests
        return [
            self._get("/", self._show_home),
            self._get("/events", self._stream),
            self._get("/services", self._show_service),
            self._get("/services/{name:path}", self._show_service),
            self._get("/requests", lambda request, _: requests.search(request)),
            self._get("/requests/{id:path}", lambda request, _: requests.story(request)),
            self._get("/stored", self._acting.stored),
            self._get("/acts/{verb}", self._acting.ask),
            self._checked("POST", "/acts/{verb}", self._acting.perform),
            *file_routes(),
        ]

    def is_shown_at(self, host: str) -> bool:
        """Whether visitors who connect to this address of the server see the page."""
        return self._is_insecure or is_loopback(canonical(host) or "")

    def not_found(self) -> Response:
        """Return the answer to a request for something else."""
        return _trouble(
            404,
            "There is no such page",
            "The broker has no page at this address.",
            "Begin with the services of the broker, or search for a request.",
        )

    async def start(self) -> None:
        """Answer requests from now on: the broker has started. Compile the templates, record the
        last hour, serve streams, and index the journal."""
        await compile_templates()
        if self._searcher is not None:
            try:
                await self._searcher.start()
            except StorageError as error:  # the broker serves without it; each search tries again
                _log.warning("%s", error)
        works = (self._keep_samples(), self._streams.publish_forever())
        self._tasks = [asyncio.create_task(work) for work in works]
        self._is_started = True

    async def close(self) -> None:
        """End all streams and readings."""
        self._streams.close()
        await self._acting.close()
        for each in self._tasks:
            each.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self._readings.close()
        if self._searcher is not None:
            await self._searcher.close()

    async def _keep_samples(self) -> None:
        while True:
            began = clock.now()
            try:
                self._history.add(await self._readings.next())
            except Exception:  # a failed reading must not end later ones
                _log.exception("the broker cannot be read")
            await asyncio.sleep(max(0.0, began + EVERY_S - clock.now()))

    # --- who may see it ---------------------------------------------------------------------------
    def _get(self, path: str, handler: _Handler) -> Route:
        return self._checked("GET", path, handler)

    def _checked(self, method: str, path: str, handler: _Handler) -> Route:
        async def checked(request: Request) -> Response:
            server = request.scope["server"]
            if server is None or not self.is_shown_at(server[0]):
                return _elsewhere()
            if not self._is_started:
                return _starting()
            try:
                principal = await self._visitor(request)
            except Unauthorized as refusal:
                return _unauthorized(refusal)
            except TooManyChecks:
                return _trouble(
                    503,
                    "Too many logins at once",
                    "The broker checks as many passwords as it may at a time.",
                    "Load this page again in a moment.",
                    {"Retry-After": "1"},
                )
            if not principal.may("admin", _RIGHT):
                return _denied(principal)
            return await handler(request, principal)

        return Route(path, checked, methods=[method])

    async def _visitor(self, request: Request) -> Principal:
        if self._authorization is None:
            return ANYONE
        return await self._authorization.principal_of(request)

    # --- pages ------------------------------------------------------------------------------------
    def _parts_now(self, snapshot: BrokerSnapshot, view: View) -> Parts:
        """Return the parts of an open page, whose service may be gone for a while."""
        return self._views.parts(snapshot, view) or GONE

    async def _show_home(self, request: Request, principal: Principal) -> Response:
        view = view_of(request.query_params)
        parts = self._views.parts(await self._readings.latest(), view)
        verbs = OF_BROKER if self._broker.pair is None else (*OF_BROKER, *OF_PAIR)
        return answer("home.html", {"view": view, "parts": parts, "acts": links(principal, verbs)})

    async def _show_service(self, request: Request, principal: Principal) -> Response:
        name = request.path_params.get("name") or request.query_params.get("name", "")
        parts = self._views.parts(await self._readings.latest(), ServiceView(name))
        if parts is None:
            return _no_service(name)
        values = {
            "name": name,
            "parts": parts,
            "acts": links(principal, OF_SERVICE, name),
            "may_kick": bool(links(principal, KICK)),
        }
        return answer("service.html", values)

    async def _stream(self, request: Request, principal: Principal) -> Response:
        query = request.query_params
        view: View = ServiceView(query["service"]) if "service" in query else view_of(query)
        first = self._views.parts(await self._readings.latest(), view)
        if first is None:
            assert isinstance(view, ServiceView)
            return _no_service(view.name)
        if request.method == "HEAD":
            return head()
        if self._streams.is_full:
            return _trouble(
                503,
                "Too many open pages",
                f"{streams_max():,} pages of this broker are open, which is the limit.",
                "This page is current as of when it was loaded. Close others, and load it again.",
            )
        return self._streams.answer(
            view, first, lambda: not principal.is_revoked and principal.may("admin", _RIGHT)
        )


def _trouble(
    status: int,
    title: str,
    what: str,
    remedy: str,
    headers: Mapping[str, str] | None = None,
) -> Response:
    values = {"title": title, "what": what, "remedy": remedy}
    return answer("error.html", values, status, headers)


def _starting() -> Response:
    return _trouble(
        503,
        "The broker is starting",
        "Its figures can be read once it listens.",
        "Load this page again in a moment; /ready says when the broker is ready.",
        {"Retry-After": "1"},
    )


def _elsewhere() -> Response:
    return _trouble(
        403,
        "Only on this machine",
        "This page is not encrypted, so it is shown over the loopback interface only.",
        "Start the broker with an --http that includes loopback, such as :PORT or 0.0.0.0:PORT, and"
        " use an SSH tunnel: ssh -L PORT:127.0.0.1:PORT HOST. In a network where everybody may read"
        " the page, start the broker with --insecure.",
    )


def _no_service(name: str) -> Response:
    return _trouble(
        404,
        "There is no such service",
        f"The broker has no service {text(name, TEXT_SIZE)!r}.",
        "A service exists while it has workers or requests, and for some time after that.",
    )


def _unauthorized(refusal: Unauthorized) -> Response:
    values = {
        "title": "Login required",
        "what": f"The page of this broker is for users of its access file: {refusal}.",
        "remedy": 'Log in as a user with admin = ["stats"].',
    }
    response = answer("error.html", values, 401)
    for challenge in refusal.challenges:
        response.headers.append("WWW-Authenticate", challenge)
    return response


def _denied(principal: Principal) -> Response:
    return _trouble(
        403,
        "You may not see this page",
        f"The user {text(principal.name)} lacks the right to the statistics of the broker.",
        'It is admin = ["stats"] of the user in the access file.',
    )
