"""What a manager answers over HTTP, on loopback unless configured otherwise; nobody is asked who
they are.

    GET /health    200 if RabbitMQ, its management API and the driver answer now, else 503
    GET /ready     200 if this manager decides, else 503
    GET /status    everything that is known;  GET /metrics  for Prometheus
    GET /poison    requests that killed their workers
    POST /scale {key, workers}   /require {key}   /release {key}   /version {version}
    POST /drain {key}, {worker} or {all: true}
    POST /poison/retry {ids} or {all: true}
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any, Final

from aiohttp import web

from requite.errors import ConfigurationError, TransportError
from requite.pool.inputs import ReleaseGroup, RequireGroup, ScaleGroup, SetVersion
from requite.pool.manager.choice import check_key
from requite.pool.manager.errors import FAILURES
from requite.pool.manager.managed import Managed
from requite.pool.manager.status import metrics_of, status_of

_BODY_SIZE_MAX: Final = 1 << 16


class Endpoints:
    """The HTTP server of a manager."""

    def __init__(self, manager: Managed) -> None:
        self._manager: Final = manager
        self._place: Final = manager.config.http
        self._runner: web.AppRunner | None = None
        self.url = ""

    async def open(self) -> None:
        """Listen. Raises `TransportError` where that cannot be."""
        app = web.Application(middlewares=[_explained], client_max_size=_BODY_SIZE_MAX)
        app.add_routes(
            [
                web.get("/health", self._health),
                web.get("/ready", self._ready),
                web.get("/status", self._status),
                web.get("/metrics", self._metrics),
                web.get("/poison", self._poison),
                web.post("/poison/retry", self._retry),
                web.post("/scale", self._scale),
                web.post("/require", self._require),
                web.post("/release", self._release),
                web.post("/drain", self._drain),
                web.post("/version", self._version),
            ]
        )
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, self._place.host, self._place.port)
        try:
            await site.start()
        except OSError as error:
            where = f"{self._place.host}:{self._place.port}"
            raise TransportError(
                f"http.port: cannot listen at {where}: {error.strerror}"
            ) from error
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    async def close(self) -> None:
        """Stop listening."""
        if self._runner is not None:
            await self._runner.cleanup()

    # --- questions --------------------------------------------------------------------------------
    async def _health(self, _request: web.Request) -> web.Response:
        flaws = await self._manager.check()
        body = {"healthy": not flaws, "state": str(self._manager.state), "flaws": flaws}
        return web.json_response(body, status=503 if flaws else 200)

    async def _ready(self, _request: web.Request) -> web.Response:
        ready = self._manager.state == "active"
        body = {"ready": ready, "state": str(self._manager.state)}
        return web.json_response(body, status=200 if ready else 503)

    async def _status(self, _request: web.Request) -> web.Response:
        return web.json_response(status_of(self._manager))

    async def _metrics(self, _request: web.Request) -> web.Response:
        text = metrics_of(self._manager)
        return web.Response(text=text, headers={"Content-Type": "text/plain; version=0.0.4"})

    async def _poison(self, _request: web.Request) -> web.Response:
        found, more = await self._manager.poison().look()
        return web.json_response({"poison": [each._asdict() for each in found], "more": more})

    # --- commands ---------------------------------------------------------------------------------
    async def _retry(self, request: web.Request) -> web.Response:
        said = await _read(request, {"ids": list, "all": bool}, set())
        ids = set(said.get("ids", ()))
        everything = said.get("all", False)
        poison = self._manager.poison()
        tried = await poison.retry(lambda each: everything or each.id in ids)
        return web.json_response({"retried": tried})

    async def _scale(self, request: web.Request) -> web.Response:
        said = await _read(request, {"key": str, "workers": int})
        workers_max = self._manager.workers_max
        if not workers_max:
            raise _Refused("workers: something else scales groups here (driver.scaling)")
        if not 1 <= said["workers"] <= workers_max:
            raise _Refused(f"workers: 1 to {workers_max} with this driver")
        check_key(self._manager.config, said["key"])
        return self._command(ScaleGroup(said["key"], said["workers"]))

    async def _require(self, request: web.Request) -> web.Response:
        key = (await _read(request, {"key": str}))["key"]
        check_key(self._manager.config, key)
        return self._command(RequireGroup(key))

    async def _release(self, request: web.Request) -> web.Response:
        return self._command(ReleaseGroup((await _read(request, {"key": str}))["key"]))

    async def _drain(self, request: web.Request) -> web.Response:
        """Have workers end; the groups that are expected get others."""
        said = await _read(request, {"key": str, "worker": str, "all": bool}, set())
        if len(said) != 1 or said.get("all") is False:
            raise _Refused("drain which workers? One of key, worker, or all: true")
        self._check_active()
        heard = await self._manager.drain_workers(said.get("key"), said.get("worker"))
        return web.json_response({"heard": heard}, status=202)

    async def _version(self, request: web.Request) -> web.Response:
        return self._command(SetVersion((await _read(request, {"version": str}))["version"]))

    def _command(self, command: Any) -> web.Response:
        self._check_active()
        self._manager.feed(command)
        return web.json_response({"accepted": True}, status=202)

    def _check_active(self) -> None:
        if self._manager.state != "active":
            raise _NotNow(f"this manager is {self._manager.state}: ask the one that is active")


class _Refused(Exception):
    """What was asked cannot be."""


class _NotNow(Exception):
    """What was asked cannot be now."""


Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@web.middleware
async def _explained(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer a refusal with its reason."""
    try:
        return await handler(request)
    except (_Refused, ConfigurationError) as refused:
        return web.json_response({"error": str(refused)}, status=400)
    except (_NotNow, *FAILURES) as error:
        return web.json_response({"error": str(error) or repr(error)}, status=503)


async def _read(
    request: web.Request, kinds: dict[str, type], needed: set[str] | None = None
) -> dict[str, Any]:
    """Read the members of a JSON object, which is what is said; raise `_Refused` for others."""
    try:
        said = json.loads(await request.text() or "{}")
    except ValueError as error:
        raise _Refused(f"no JSON: {error}") from None
    if not isinstance(said, dict):
        raise _Refused("no JSON object")
    unknown = said.keys() - kinds.keys()
    if unknown:
        raise _Refused(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(kinds)}")
    for name, kind in kinds.items():
        if name in said and type(said[name]) is not kind:
            raise _Refused(f"{name} is not {kind.__name__}")
        if name not in said and (needed is None or name in needed):
            raise _Refused(f"{name} is missing")
    return said
