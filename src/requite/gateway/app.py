"""`Gateway`: a Starlette application that makes typed services callable over HTTP.

POST /SERVICE.METHOD   a call: JSON in and out, or server-sent events (`calls.py`, `streams.py`)
GET /                  a page to try the methods
GET /openapi.json      what they take and return (OpenAPI 3.1)
GET /problems          the kinds of failures
GET /health, /ready    200; `/ready` 503 without a connection to the broker, and while draining
"""

from __future__ import annotations

import asyncio
from math import inf
from typing import TYPE_CHECKING, Final, Self

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from requite.errors import ConfigurationError
from requite.gateway.calls import Calls
from requite.gateway.catalog import Catalog
from requite.gateway.openapi import openapi_of
from requite.gateway.pages import page_routes
from requite.gateway.policy import GatewayPolicy
from requite.gateway.problems import Problem, of_status
from requite.gateway.users import Users
from requite.shell import clock

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from starlette.types import Receive, Scope, Send

    from requite.access.guard import AccessOption
    from requite.client import AsyncClient

CHECKED_S: Final = 1.0
"""For how long the result of a check of the connection answers further requests of `/ready`."""


class Gateway:
    """An ASGI application that calls typed services with a client. Mount it in your own:

        client = requite.AsyncClient("mdp://127.0.0.1:5555")
        gateway = Gateway(client)

        @asynccontextmanager
        async def lifespan(app: Starlette) -> AsyncIterator[None]:
            async with client, gateway:
                yield

        app = Starlette(routes=[Mount("/rpc", gateway)], lifespan=lifespan)

    - `client`: of a protocol with service names and negative replies: MDP 0.3, or RabbitMQ without
      a pool. Its URL names no service. It remains the caller's to close.
    - `services`: the names of the services that may be called (`orders`, `orders.v2`); without
      names, all typed services of the broker. RabbitMQ needs names.
    - `access`: the users and their rights, as of a broker (`requite.access`): a request needs the
      token or password of a user with the right to `call` the method, and is made for this user
      at a broker with an access file: the client needs the right to `act` for it there. Without
      `access` everybody may call everything.
    - `policy`: the limits.

    Use it as an asynchronous context manager: it follows the access file meanwhile. Raises
    `ConfigurationError` for a client that cannot be used, and for a bad access file.
    """

    def __init__(
        self,
        client: AsyncClient,
        *,
        services: Sequence[str] = (),
        access: AccessOption | None = None,
        policy: GatewayPolicy | None = None,
    ) -> None:
        policy = policy or GatewayPolicy()
        carries = client.carries
        if not (carries.names and carries.refusals):
            raise ConfigurationError(
                "a gateway needs a protocol with service names and negative replies: MDP 0.3, or"
                " RabbitMQ without a pool"
            )
        if not (services or client.protocol == "mdp"):
            raise ConfigurationError(
                "RabbitMQ does not know which of its queues are typed services: name them"
            )
        if client.service and not services:
            name = client.service
            raise ConfigurationError(
                "a gateway takes the names of its services apart from the URL of the broker:"
                f" Gateway(client, services=[{name!r}]), or after the URL: `URL {name}`"
            )
        self._users: Final = Users(access)
        self._catalog: Final = Catalog(client, services, asks_broker=client.protocol == "mdp")
        self._calls: Final = Calls(client, self._catalog, self._users, policy)
        self._policy: Final = policy
        self._checking: asyncio.Task[str] | None = None  # the latest check
        self._checked_at = -inf
        app = Starlette(
            routes=[
                *page_routes(),
                _get("/openapi.json", self._openapi),
                _get("/health", _health),
                _get("/ready", self._ready),
                Route("/{address}", self._calls),
            ],
            exception_handlers={
                HTTPException: _http_error,
                Problem: _problem,
                Exception: _failed,
            },
        )
        app.router.redirect_slashes = False
        self._app: Final = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request (ASGI)."""
        await self._app(scope, receive, send)

    # --- life -------------------------------------------------------------------------------------
    async def __aenter__(self) -> Self:
        self._users.start()
        return self

    async def __aexit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def read_access(self) -> None:
        """Read the access file now. Raises `ConfigurationError` for a bad one, and keeps the
        users."""
        if self._users.guard is not None:
            await self._users.guard.read_again()

    async def drain(self) -> None:
        """Answer new requests with 503, and wait until those in progress are answered."""
        self._calls.is_draining = True
        await self._calls.until_idle()

    @property
    def in_progress(self) -> int:
        """How many requests are being answered."""
        return self._calls.in_progress

    async def close(self) -> None:
        """Follow the access file no more, and end what the gateway itself has asked."""
        self._calls.is_draining = True
        await self._catalog.close()
        await self._users.close()
        if self._checking is not None:
            self._checking.cancel()
            await asyncio.wait((self._checking,))

    # --- requests ---------------------------------------------------------------------------------
    async def _openapi(self, request: Request) -> Response:
        principal = await self._users.principal_of(request)
        found = await self._catalog.all(lambda _service: principal.may_any("call"))
        document = openapi_of(
            found,
            lambda address: principal.may("call", address),
            root=request.scope.get("root_path", ""),
            has_users=self._users.guard is not None,
            is_open=self._users.is_open,
            policy=self._policy,
        )
        return JSONResponse(document, headers={"Cache-Control": "no-store"})

    async def flaw(self) -> str:
        """Return why calls cannot succeed now, as `/ready` says it; "" if they can."""
        return "the gateway is being stopped" if self._calls.is_draining else await self._checked()

    async def check_user(self, request: Request) -> None:
        """Raise `Problem` if a request is not of a user who may call any method."""
        principal = await self._users.principal_of(request)
        if not principal.may_any("call"):
            raise Problem("Denied", f"{principal} has no right to call any method")

    async def _ready(self, _request: Request) -> Response:
        flaw = await self.flaw()
        return _state(503 if flaw else 200, flaw)

    async def _checked(self) -> str:
        """Return the result of the check in progress, of one that has just ended, or of a new one.

        The requests share it, since anyone may send any number of them.
        """
        latest = self._checking
        if latest is None or (latest.done() and clock.now() >= self._checked_at + CHECKED_S):
            latest = self._checking = asyncio.create_task(self._check())
        return await asyncio.shield(latest)

    async def _check(self) -> str:
        flaw = await self._catalog.check()
        self._checked_at = clock.now()
        return flaw


async def _health(_request: Request) -> Response:
    return JSONResponse({"healthy": True})


def _state(status: int, flaw: str) -> Response:
    return JSONResponse({"ready": not flaw, "flaw": flaw}, status)


def _get(path: str, handler: object) -> Route:
    return Route(path, handler, methods=["GET"])  # type: ignore[arg-type]


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    detail = (
        f"{request.method} of this path is not possible: {error.detail}; methods are called with"
        " POST /SERVICE.METHOD"
    )
    problem = of_status(error.status_code, detail, error.headers)
    return problem.response(request.scope.get("root_path", ""))


async def _problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, Problem)
    return error.response(request.scope.get("root_path", ""))


async def _failed(request: Request, _error: Exception) -> Response:
    """Answer a request that the gateway failed to handle; its server logs the exception."""
    text = "the gateway failed, and its log has the reason; the method may have run"
    problem = Problem("Internal", text, may_have_executed=True)
    return problem.response(request.scope.get("root_path", ""))
