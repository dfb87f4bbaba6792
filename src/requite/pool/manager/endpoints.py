"""HTTP(S) endpoints of a manager, on loopback by default; `guard.py` decides who may use them.

GET /health    200 if RabbitMQ, its management API and the driver answer now, else 503
GET /ready     200 if this manager is active, else 503
GET /status    the full status;  GET /metrics  for Prometheus
GET /poison    requests that reached the delivery limit
POST /scale {key, workers}   /require {key}   /release {key}   /version {version}
POST /drain {key}, {worker} or {all: true}
POST /poison/retry {ids} or {all: true}

GET / and the other addresses of the page of the manager, if there is one (`requite.page.pool`)
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from math import inf
from typing import TYPE_CHECKING, Any, Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from requite.errors import ConfigurationError
from requite.pool.config import UNIX, HttpSection
from requite.pool.inputs import ReleaseGroup, RequireGroup, ScaleGroup, SetVersion
from requite.pool.manager.choice import check_key
from requite.pool.manager.errors import FAILURES
from requite.pool.manager.guard import BODY_SIZE_MAX, Guard
from requite.pool.manager.managed import Managed
from requite.pool.manager.metrics import PoolMetrics
from requite.pool.manager.status import status_of
from requite.shell import clock
from requite.transport.tls import TlsSettings
from requite.web.server import CONNECTIONS_MAX, HttpServer

if TYPE_CHECKING:
    from requite.metrics.monitor import WebPage

CHECKED_S: Final = 1.0
"""For how long the result of a check answers further requests of `/health`."""

TEXT_SIZE_MAX: Final = 255
"""Bytes of a text in a request: no name in RabbitMQ is longer."""


class Endpoints:
    """The HTTP server of a manager, with its `page`. Raises `ConfigurationError` for settings that
    cannot work."""

    def __init__(self, manager: Managed, page: WebPage | None = None) -> None:
        self._manager: Final = manager
        self._page: Final = page
        self._metrics: Final = PoolMetrics(manager)
        self._checking: asyncio.Task[dict[str, str]] | None = None  # the latest check
        self._checked_at = -inf
        app = Starlette(
            routes=[
                _get("/health", self._health),
                _get("/ready", self._ready),
                _get("/status", self._status),
                _get("/metrics", self._metrics.answer),
                _get("/poison", self._poison),
                _post("/poison/retry", self._retry),
                _post("/scale", self._scale),
                _post("/require", self._require),
                _post("/release", self._release),
                _post("/drain", self._drain),
                _post("/version", self._version),
                *(() if page is None else page.routes),
            ],
            exception_handlers={
                HTTPException: self._http_error,
                ClientDisconnect: _disconnected,
                **dict.fromkeys((_BadRequest, ConfigurationError), _bad_request),
                **dict.fromkeys((_Unavailable, *FAILURES), _unavailable),
            },
        )
        app.router.redirect_slashes = False
        self._server: Final = HttpServer(
            Guard(app, manager.config.http),
            logger="requite.pool",
            connections_max=None if page is None else CONNECTIONS_MAX + page.connections_max,
        )

    @property
    def url(self) -> str:
        """The base URL, with the port that was bound, or `unix:/PATH`; empty before `open`."""
        return self._server.url

    async def open(self) -> None:
        """Listen. Raises `TransportError` if the address cannot be bound, and `ConfigurationError`
        for a certificate that cannot be used."""
        http = self._manager.config.http
        if http.bind:
            await self._server.listen_unix(http.bind.removeprefix(UNIX), http.bind, "http.bind")
        else:
            await self._server.listen(http.host, http.port, "http.port", _tls_of(http))
        self._metrics.start()
        if self._page is not None:
            await self._page.start()

    async def close(self) -> None:
        """Stop listening, and finish requests in progress."""
        if self._page is not None:
            await self._page.close()
        await self._server.close()
        await self._metrics.close()
        if self._checking is not None:  # no request waits for it any more
            self._checking.cancel()
            await asyncio.wait([self._checking])

    # --- queries ----------------------------------------------------------------------------------
    async def _health(self, _request: Request) -> Response:
        flaws = await self._checked()
        body = {"healthy": not flaws, "state": str(self._manager.state), "flaws": flaws}
        return _json(body, status=503 if flaws else 200)

    async def _checked(self) -> dict[str, str]:
        """Return the result of the check in progress, of one that has just ended, or of a new one.

        The requests share it, since anyone may send any number of them.
        """
        latest = self._checking
        if latest is None or (latest.done() and clock.now() >= self._checked_at + CHECKED_S):
            latest = self._checking = asyncio.create_task(self._check())
        return await asyncio.shield(latest)

    async def _check(self) -> dict[str, str]:
        flaws = await self._manager.check()
        self._checked_at = clock.now()
        return flaws

    async def _ready(self, _request: Request) -> Response:
        ready = self._manager.state == "active"
        body = {"ready": ready, "state": str(self._manager.state)}
        return _json(body, status=200 if ready else 503)

    async def _status(self, _request: Request) -> Response:
        return _json(status_of(self._manager))

    async def _poison(self, _request: Request) -> Response:
        found, more = await self._manager.poison().peek()
        return _json({"poison": [each._asdict() for each in found], "more": more})

    async def _http_error(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        is_browser = "text/html" in request.headers.get("accept", "")
        if self._page is not None and is_browser and error.status_code == 404:
            return self._page.not_found()
        text = f"{error.status_code}: {error.detail}"
        return PlainTextResponse(text, error.status_code, headers=error.headers)

    # --- commands ---------------------------------------------------------------------------------
    async def _retry(self, request: Request) -> Response:
        body = await _read(request, {"ids": list, "all": bool}, set())
        if not all(isinstance(each, str) for each in body.get("ids", ())):
            raise _BadRequest("ids must be a list of strings")
        ids = set(body.get("ids", ()))
        everything = body.get("all", False)
        poison = self._manager.poison()
        retried = await poison.retry(lambda each: everything or each.id in ids)
        return _json({"retried": retried})

    async def _scale(self, request: Request) -> Response:
        body = await _read(request, {"key": str, "workers": int})
        workers_max = self._manager.workers_max
        if not workers_max:
            raise _BadRequest(
                "cannot scale groups: with this `driver.scaling` an autoscaler does it"
            )
        if not 1 <= body["workers"] <= workers_max:
            raise _BadRequest(f"workers must be 1 to {workers_max}, the maximum of the driver")
        check_key(self._manager.config, body["key"])
        return self._command(ScaleGroup(body["key"], body["workers"]))

    async def _require(self, request: Request) -> Response:
        key = (await _read(request, {"key": str}))["key"]
        check_key(self._manager.config, key)
        return self._command(RequireGroup(key))

    async def _release(self, request: Request) -> Response:
        return self._command(ReleaseGroup((await _read(request, {"key": str}))["key"]))

    async def _drain(self, request: Request) -> Response:
        """Stop workers; target groups get replacements."""
        body = await _read(request, {"key": str, "worker": str, "all": bool}, set())
        if len(body) != 1 or body.get("all") is False:
            raise _BadRequest("nothing to drain: set one of key, worker, or all: true")
        self._check_active()
        reached = await self._manager.drain_workers(body.get("key"), body.get("worker"))
        return _json({"heard": reached}, status=202)

    async def _version(self, request: Request) -> Response:
        version = (await _read(request, {"version": str}))["version"]
        if not version.isprintable():
            raise _BadRequest("version must be printable")
        return self._command(SetVersion(version))

    def _command(self, command: Any) -> Response:
        self._check_active()
        if isinstance(command, RequireGroup | ScaleGroup):
            self._check_room(command.key)
        self._manager.feed(command)
        return _json({"accepted": True}, status=202)

    def _check_active(self) -> None:
        if self._manager.state != "active":
            raise _Unavailable(
                f"this manager is {self._manager.state}; send the request to the active one"
            )

    def _check_room(self, key: str) -> None:
        groups_max = self._manager.config.limits.groups
        groups = self._manager.snapshot().state.groups
        if key not in groups and len(groups) >= groups_max:
            raise _Unavailable(
                f"cannot start the group of {key!r}: the pool has {len(groups)} groups, the maximum"
                f" of limits.groups ({groups_max}); drain another group, or raise the limit"
            )


def _tls_of(http: HttpSection) -> TlsSettings | None:
    if not http.certificate:
        return None
    return TlsSettings(
        ca=http.ca or None,
        certificate=http.certificate,
        key=http.key or None,
        verify_client=bool(http.ca),
    )


class _BadRequest(Exception):
    """The request is invalid: status 400."""


class _Unavailable(Exception):
    """The request cannot be served now: status 503."""


Handler = Callable[[Request], Awaitable[Response]]


def _get(path: str, handler: Handler) -> Route:
    return Route(path, handler, methods=["GET"])


def _post(path: str, handler: Handler) -> Route:
    return Route(path, handler, methods=["POST"])


def _json(content: Any, status: int = 200) -> Response:
    return Response(json.dumps(content), status, media_type="application/json; charset=utf-8")


async def _bad_request(_request: Request, error: Exception) -> Response:
    return _json({"error": str(error)}, status=400)


async def _unavailable(_request: Request, error: Exception) -> Response:
    return _json({"error": str(error) or repr(error)}, status=503)


async def _disconnected(_request: Request, _error: Exception) -> Response:
    return Response(status_code=400)  # never read: the client has disconnected


async def _body_of(request: Request) -> bytes:
    """Read a body of at most 64 KiB; raise `HTTPException` (413) for a longer one."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > BODY_SIZE_MAX:
            raise HTTPException(413, f"the body has more than {BODY_SIZE_MAX} bytes, the maximum")
    return bytes(body)


async def _read(
    request: Request, kinds: dict[str, type], needed: set[str] | None = None
) -> dict[str, Any]:
    """Read the members of a JSON object from the body; raise `_BadRequest` for anything else."""
    try:
        body = json.loads(await _body_of(request) or "{}")
    except ValueError as error:
        raise _BadRequest(f"the body is not JSON: {error}") from None
    except RecursionError:
        raise _BadRequest("the body is nested too deeply") from None
    if not isinstance(body, dict):
        raise _BadRequest("the body is not a JSON object")
    unknown = body.keys() - kinds.keys()
    if unknown:
        raise _BadRequest(
            f"unknown members: {', '.join(sorted(unknown))}; the members are {', '.join(kinds)}"
        )
    for name, kind in kinds.items():
        if name in body and type(body[name]) is not kind:
            raise _BadRequest(f"{name} must be of type {kind.__name__}")
        if name not in body and (needed is None or name in needed):
            raise _BadRequest(f"{name} is missing")
        if kind is str and name in body:
            _check_text(name, body[name])
    return body


def _check_text(name: str, text: str) -> None:
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise _BadRequest(f"{name} cannot be encoded in UTF-8") from None
    if size > TEXT_SIZE_MAX:
        raise _BadRequest(f"{name} has {size} bytes; the maximum is {TEXT_SIZE_MAX}")
