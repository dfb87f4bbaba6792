"""A local server that answers as Docker's Engine API (1.44) does, and runs nothing.

Containers are entries of a table. What a request says is checked as the engine does: names, labels,
versions of the API, states from which a container can be started, stopped or removed.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web

_NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_.-]+")


@dataclass
class Container:
    """A container that only seems to run."""

    id: str
    name: str
    config: dict[str, Any]
    state: str = "created"
    calls: list[str] = field(default_factory=list)

    @property
    def environment(self) -> dict[str, str]:
        """The variables that it was given."""
        return dict(text.split("=", 1) for text in self.config["Env"])


class LocalDockerEngine:
    """The server, on a Unix socket."""

    def __init__(self, socket: Path, api: str = "1.47") -> None:
        self.socket = socket
        self.api = api
        self.containers: dict[str, Container] = {}
        self.images = {"worker:1"}
        self.asked: list[str] = []
        self._made = 0
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        """Listen."""
        app = web.Application(middlewares=[self._note])
        app.router.add_get("/version", self._version)
        app.router.add_get("/v{api}/containers/json", self._list)
        app.router.add_post("/v{api}/containers/create", self._create)
        app.router.add_post("/v{api}/containers/{name}/start", self._start)
        app.router.add_post("/v{api}/containers/{name}/stop", self._stop)
        app.router.add_delete("/v{api}/containers/{name}", self._remove)
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        await web.UnixSite(self._runner, str(self.socket)).start()

    async def close(self) -> None:
        """Stop listening."""
        assert self._runner is not None
        await self._runner.cleanup()

    def running(self) -> list[Container]:
        """Return the containers that run."""
        return [each for each in self.containers.values() if each.state == "running"]

    # --- the API ----------------------------------------------------------------------------------
    @web.middleware
    async def _note(self, request: web.Request, handler: Any) -> web.StreamResponse:
        self.asked.append(f"{request.method} {request.path}")
        api = request.match_info.get("api")
        if api is not None and _number(api) > _number(self.api):
            return _error(400, f"client version {api} is too new. Maximum is {self.api}")
        response: web.StreamResponse = await handler(request)
        return response

    async def _version(self, _request: web.Request) -> web.Response:
        return web.json_response({"ApiVersion": self.api, "MinAPIVersion": "1.24"})

    async def _list(self, request: web.Request) -> web.Response:
        wanted = json.loads(request.query.get("filters", "{}")).get("label", [])
        everything = request.query.get("all") in ("1", "true")
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
        return web.json_response(found)

    async def _create(self, request: web.Request) -> web.Response:
        name, config = request.query["name"], await request.json()
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
        return web.json_response({"Id": made.id, "Warnings": []}, status=201)

    async def _start(self, request: web.Request) -> web.Response:
        found = self._find(request.match_info["name"])
        if found is None:
            return _error(404, "No such container")
        if found.state == "running":
            return web.Response(status=304)
        found.state = "running"
        return web.Response(status=204)

    async def _stop(self, request: web.Request) -> web.Response:
        found = self._find(request.match_info["name"])
        if found is None:
            return _error(404, "No such container")
        if found.state != "running":
            return web.Response(status=304)
        found.calls.append(f"SIGTERM, SIGKILL after {int(request.query['t'])} s")
        found.state = "exited"
        return web.Response(status=204)

    async def _remove(self, request: web.Request) -> web.Response:
        found = self._find(request.match_info["name"])
        if found is None:
            return _error(404, "No such container")
        if found.state == "running" and request.query.get("force") not in ("1", "true"):
            return _error(409, "You cannot remove a running container")
        del self.containers[found.id]
        return web.Response(status=204)

    def _find(self, name: str) -> Container | None:
        matching = (each for each in self.containers.values() if name in (each.id, each.name))
        return next(matching, None)


def _has(container: Container, wanted: list[str]) -> bool:
    labels = container.config["Labels"]
    return all(labels.get(name) == value for name, _, value in (w.partition("=") for w in wanted))


def _number(api: str) -> tuple[int, ...]:
    return tuple(int(part) for part in api.split("."))


def _error(status: int, message: str) -> web.Response:
    return web.json_response({"message": message}, status=status)
