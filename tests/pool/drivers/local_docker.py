"""A stub of Docker's Engine API (1.44) that runs nothing.

Containers are entries of a table. The stub checks requests as the engine does: names, labels, API
versions, and the states in which a container can be started, stopped or removed.
"""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from requite.transport.address import IpcAddress
from requite.web.server import HttpServer

Handler = Callable[[Request], Awaitable[Response]]

_NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_.-]+")


@dataclass
class Container:
    """An entry of the table; no container runs."""

    id: str
    name: str
    config: dict[str, Any]
    state: str = "created"
    calls: list[str] = field(default_factory=list)

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables of the container."""
        return dict(text.split("=", 1) for text in self.config["Env"])


class LocalDockerEngine:
    """The stub server, on a Unix socket."""

    def __init__(self, socket: Path, api: str = "1.47") -> None:
        self.socket = socket
        self.api = api
        self.containers: dict[str, Container] = {}
        self.images = {"worker:1"}
        self.asked: list[str] = []
        self._made = 0
        self._server: HttpServer | None = None

    async def start(self) -> None:
        """Listen on the socket."""
        app = Starlette(
            routes=[
                self._route("GET", "/version", self._version),
                self._route("GET", "/v{api}/containers/json", self._list),
                self._route("POST", "/v{api}/containers/create", self._create),
                self._route("POST", "/v{api}/containers/{name}/start", self._start),
                self._route("POST", "/v{api}/containers/{name}/stop", self._stop),
                self._route("DELETE", "/v{api}/containers/{name}", self._remove),
            ]
        )
        listening = socket.socket(socket.AF_UNIX)
        listening.setblocking(False)
        listening.bind(str(self.socket))
        listening.listen()
        self._server = HttpServer(app)
        await self._server.serve([listening], IpcAddress(str(self.socket)))

    async def close(self) -> None:
        """Stop listening."""
        assert self._server is not None
        await self._server.close()
        self.socket.unlink(missing_ok=True)

    def running(self) -> list[Container]:
        """Return the running containers."""
        return [each for each in self.containers.values() if each.state == "running"]

    # --- the API ----------------------------------------------------------------------------------
    def _route(self, method: str, path: str, handler: Handler) -> Route:
        """Return a route that records each request and refuses newer API versions."""

        async def checked(request: Request) -> Response:
            self.asked.append(f"{method} {request.url.path}")
            api = request.path_params.get("api")
            if api is not None and _number(api) > _number(self.api):
                return _error(400, f"client version {api} is too new. Maximum is {self.api}")
            return await handler(request)

        return Route(path, checked, methods=[method])

    async def _version(self, _request: Request) -> Response:
        return JSONResponse({"ApiVersion": self.api, "MinAPIVersion": "1.24"})

    async def _list(self, request: Request) -> Response:
        wanted = json.loads(request.query_params.get("filters", "{}")).get("label", [])
        everything = request.query_params.get("all") in ("1", "true")
        found = [
            {
                "Id": each.id,
                "Names": [f"/{each.name}"],
                "Labels": each.config["Labels"],
                "State": each.state,
            }
            for each in self.containers.values()
            if (everything or each.state == "running") and _has(each, wanted)
        ]
        return JSONResponse(found)

    async def _create(self, request: Request) -> Response:
        name, config = request.query_params["name"], await request.json()
        if _NAME.fullmatch(name) is None:
            return _error(400, f"Invalid container name ({name})")
        if self._find(name) is not None:
            return _error(409, f'Conflict. The container name "/{name}" is already in use')
        if config["Image"] not in self.images:
            return _error(404, f"No such image: {config['Image']}")
        assert all(isinstance(value, str) for value in config["Labels"].values())
        self._made += 1
        made = Container(f"{self._made:064x}", name, config)
        self.containers[made.id] = made
        return JSONResponse({"Id": made.id, "Warnings": []}, 201)

    async def _start(self, request: Request) -> Response:
        found = self._find(request.path_params["name"])
        if found is None:
            return _error(404, "No such container")
        if found.state == "running":
            return Response(status_code=304)
        found.state = "running"
        return Response(status_code=204)

    async def _stop(self, request: Request) -> Response:
        found = self._find(request.path_params["name"])
        if found is None:
            return _error(404, "No such container")
        if found.state != "running":
            return Response(status_code=304)
        found.calls.append(f"SIGTERM, SIGKILL after {int(request.query_params['t'])} s")
        found.state = "exited"
        return Response(status_code=204)

    async def _remove(self, request: Request) -> Response:
        found = self._find(request.path_params["name"])
        if found is None:
            return _error(404, "No such container")
        if found.state == "running" and request.query_params.get("force") not in ("1", "true"):
            return _error(409, "You cannot remove a running container")
        del self.containers[found.id]
        return Response(status_code=204)

    def _find(self, name: str) -> Container | None:
        matching = (each for each in self.containers.values() if name in (each.id, each.name))
        return next(matching, None)


def _has(container: Container, wanted: list[str]) -> bool:
    labels = container.config["Labels"]
    return all(labels.get(name) == value for name, _, value in (w.partition("=") for w in wanted))


def _number(api: str) -> tuple[int, ...]:
    return tuple(int(part) for part in api.split("."))


def _error(status: int, message: str) -> Response:
    return JSONResponse({"message": message}, status)
