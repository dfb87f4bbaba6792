"""The driver for workers in containers of Docker, or Podman, over the Engine API.

Source: Docker Engine API, version 1.44 (Docker 25); older engines are called in their own version.
Containers are named PREFIX-DIGEST-NUMBER, so that two managers that start the same worker at the
same time create one container. Labels hold its pool, instance, key and version.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from requite.errors import ConfigurationError
from requite.pool.drivers.base import (
    Environment,
    KeyedTurns,
    Label,
    check_environment,
    check_workers,
    digest,
    variables_of,
)
from requite.pool.drivers.web import Web
from requite.pool.inputs import RunningGroup

_API: Final = (1, 44)
_POOL: Final = "requite.pool"
_INSTANCE: Final = "requite.instance"
_KEY: Final = "requite.key"
_VERSION: Final = "requite.version"
_ALIVE: Final = frozenset({"running", "restarting", "paused"})
_ANSWER_S: Final = 30.0  # in addition to the stop timeout
_NANO: Final = 1_000_000_000


@dataclass(frozen=True, slots=True)
class DockerSettings:
    """Settings of workers in containers.

    - `image`, `command` (empty: the image's own), `env` (NAME=VALUE).
    - `socket`: the Unix socket of the engine.
    - `network`: the network of the workers, which must reach RabbitMQ; empty: Docker's default.
    - `memory_bytes`, `cpus`: limits per worker; 0: no limit.
    - `stop_timeout`: how long a worker may take to finish its requests before it is killed.
    """

    image: str
    command: tuple[str, ...] = ()
    env: tuple[str, ...] = field(default=(), repr=False)
    socket: str = "/var/run/docker.sock"
    network: str = ""
    memory_bytes: int = 0
    cpus: float = 0.0
    stop_timeout_s: float = 30.0

    def __post_init__(self) -> None:
        if not self.image:
            raise ConfigurationError("driver.image is empty; set it to the image of the workers")
        variables_of(self.env)


class DockerDriver:
    """Runs workers as containers."""

    workers_max: int = 64

    def __init__(self, settings: DockerSettings, label: Label, environment: Environment) -> None:
        self._settings: Final = settings
        self._label: Final = label
        self._environment: Final = environment
        self._turns: Final = KeyedTurns()
        self._web: Final = Web(
            "Docker's engine", "driver.socket", "http://docker", socket=settings.socket
        )
        self._version_path = ""

    async def list(self) -> Mapping[str, RunningGroup]:
        """Return the groups with running containers."""
        groups: dict[str, RunningGroup] = {}
        for container in await self._containers():
            labels = container["Labels"]
            if container["State"] in _ALIVE:
                before = groups.get(labels[_KEY])
                count = 0 if before is None else before.workers or 0
                groups[labels[_KEY]] = RunningGroup(labels[_VERSION], count + 1)
        return groups

    async def start(self, key: str, version: str = "", workers: int | None = None) -> None:
        """Create and start missing containers, remove surplus ones."""
        check_workers(workers, self.workers_max)
        async with self._turns.of(key):
            alive = await self._clear(key)
            wanted = max(1, len(alive)) if workers is None else workers
            free = [name for name in self._names(key) if name not in alive]
            for name in free[: max(0, wanted - len(alive))]:
                await self._create(name, key, version)
            await asyncio.gather(*(self._remove(name) for name in alive[wanted:]))

    async def stop(self, key: str) -> None:
        """Stop the containers (SIGTERM, then SIGKILL after `stop_timeout`); remove them."""
        async with self._turns.of(key):
            alive = await self._clear(key)
            await asyncio.gather(*(self._remove(name) for name in alive))

    async def close(self) -> None:
        """Close the connections."""
        await self._web.close()

    # --- containers -------------------------------------------------------------------------------
    def _names(self, key: str) -> Sequence[str]:
        stem = f"{self._label.prefix}-{digest(key)}"
        return [f"{stem}-{number}" for number in range(1, self.workers_max + 1)]

    async def _containers(self) -> Sequence[Mapping[str, Any]]:
        mine = [f"{_POOL}={self._label.pool}", f"{_INSTANCE}={self._label.instance}"]
        params = {"all": "true", "filters": json.dumps({"label": mine})}
        found: Sequence[Mapping[str, Any]] = await self._ask(
            "GET", "/containers/json", expect=(200,), params=params
        )
        return found

    async def _clear(self, key: str) -> Sequence[str]:
        """Remove stopped containers of a key; return the names of the running ones."""
        alive = []
        for container in await self._containers():
            if container["Labels"][_KEY] == key:
                if container["State"] in _ALIVE:
                    alive.append(container["Names"][0].lstrip("/"))
                else:
                    await self._delete(container["Id"])
        return sorted(alive)

    async def _create(self, name: str, key: str, version: str) -> None:
        """Create and start a container; also start one that another manager has created."""
        await self._ask(
            "POST",
            "/containers/create",
            expect=(201, 409),
            params={"name": name},
            body=self._container(key, version),
        )
        await self._ask("POST", f"/containers/{name}/start", expect=(204, 304))

    def _container(self, key: str, version: str) -> dict[str, Any]:
        settings = self._settings
        ours = self._environment(key, f"{self._label.prefix}-{uuid.uuid4().hex[:12]}")
        variables = {**variables_of(settings.env), **check_environment(ours)}
        wanted: dict[str, Any] = {
            "Image": settings.image,
            "Env": [f"{name}={value}" for name, value in variables.items()],
            "Labels": self._labels(key, version),
            "StopTimeout": round(settings.stop_timeout_s),
            "HostConfig": {
                "NetworkMode": settings.network or "default",
                "Memory": settings.memory_bytes,
                "NanoCpus": round(settings.cpus * _NANO),
            },
        }
        return wanted | ({"Cmd": [*settings.command]} if settings.command else {})

    def _labels(self, key: str, version: str) -> dict[str, str]:
        return {
            _POOL: self._label.pool,
            _INSTANCE: self._label.instance,
            _KEY: key,
            _VERSION: version,
        }

    async def _remove(self, name: str) -> None:
        """Stop a container gracefully, and remove it."""
        stop_s = round(self._settings.stop_timeout_s)
        await self._ask(
            "POST",
            f"/containers/{name}/stop",
            expect=(204, 304, 404),
            params={"t": str(stop_s)},
            timeout_s=stop_s + _ANSWER_S,
        )
        await self._delete(name)

    async def _delete(self, name: str) -> None:
        # 409: another client is removing it.
        params = {"force": "true", "v": "true"}
        await self._ask("DELETE", f"/containers/{name}", expect=(204, 404, 409), params=params)

    async def _ask(self, method: str, path: str, **more: Any) -> Any:
        if not self._version_path:
            self._version_path = await self._choose_version()
        answer = await self._web.ask(method, f"{self._version_path}{path}", **more)
        return answer.content

    async def _choose_version(self) -> str:
        answer = await self._web.ask("GET", "/version", expect=(200,))
        major, minor = min(_API, _version(answer.content["ApiVersion"]))
        return f"/v{major}.{minor}"


def _version(text: str) -> tuple[int, int]:
    major, _, minor = text.partition(".")
    return int(major), int(minor)
