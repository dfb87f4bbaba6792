"""The Docker driver passes the driver suite with a stub of Docker's engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from tests.pool.drivers.conformance import CORE, LastingConformance, listed
from tests.pool.drivers.environment import environment_of
from tests.pool.drivers.local_docker import LocalDockerEngine

from requite.errors import ConfigurationError
from requite.pool.drivers.base import DriverError, Label
from requite.pool.drivers.docker import DockerDriver, DockerSettings
from requite.pool.inputs import RunningGroup


class Containers:
    """The stub of Docker's engine, and drivers that use it."""

    def __init__(self, folder: Path) -> None:
        self.engine = LocalDockerEngine(folder / "docker.sock")
        self.drivers: list[DockerDriver] = []

    @property
    def settings(self) -> DockerSettings:
        """The default settings of the workers."""
        return DockerSettings("worker:1", socket=str(self.engine.socket), env=("MORE=a=b",))

    def driver(self, label: Label = CORE) -> DockerDriver:
        """Return a driver with the default settings."""
        return self.make(self.settings, label)

    def make(self, settings: DockerSettings, label: Label = CORE) -> DockerDriver:
        """Return a driver with the given settings."""
        self.drivers.append(DockerDriver(settings, label, environment_of(label)))
        return self.drivers[-1]

    async def environments(self, label: Label = CORE) -> list[Mapping[str, str]]:
        """Return the environments of the running containers of the pool."""
        seen = [each.environment for each in self.engine.running()]
        return [each for each in seen if each["WORKER_POOL"] == label.pool]

    async def kill(self, key: str) -> None:
        """Make the containers of a key exit."""
        for each in self.engine.running():
            if each.environment["WORKER_KEY"] == key:
                each.state = "exited"


@pytest.fixture
async def backend(tmp_path: Path) -> AsyncIterator[Containers]:
    backend = Containers(tmp_path)
    await backend.engine.start()
    try:
        yield backend
    finally:
        for driver in backend.drivers:
            await driver.close()
        await backend.engine.close()


class TestDockerAtLocalServer(LastingConformance):
    """The driver suite for Docker."""


async def test_the_configuration_of_a_container(backend: Containers) -> None:
    settings = replace(
        backend.settings,
        command=("requite", "worker"),
        network="backend",
        memory_bytes=1 << 30,
        cpus=1.5,
        stop_timeout_s=12.0,
    )
    await backend.make(settings).start("a/b", "7")
    [made] = backend.engine.running()
    assert made.config["Cmd"] == ["requite", "worker"]
    assert made.config["StopTimeout"] == 12
    assert made.config["HostConfig"] == {
        "NetworkMode": "backend",
        "Memory": 1 << 30,
        "NanoCpus": 1_500_000_000,
    }
    assert made.config["Labels"] == {
        "requite.pool": "core",
        "requite.instance": "one",
        "requite.key": "a/b",
        "requite.version": "7",
    }
    assert made.environment["MORE"] == "a=b"


async def test_containers_get_their_stop_timeout_and_are_removed(backend: Containers) -> None:
    driver = backend.make(replace(backend.settings, stop_timeout_s=12.0))
    await driver.start("42")
    [made] = backend.engine.running()
    await driver.stop("42")
    assert made.calls == ["SIGTERM, SIGKILL after 12 s"]
    assert backend.engine.containers == {}


async def test_a_container_that_was_created_but_not_started_is_replaced(
    backend: Containers,
) -> None:
    driver = backend.driver()
    await driver.start("42", "1")
    [made] = backend.engine.running()
    made.state = "created"  # as if the manager was killed before it started the container
    await listed(driver, {})
    await driver.start("42", "2")
    await listed(driver, {"42": RunningGroup("2", 1)})
    assert len(backend.engine.containers) == 1


async def test_two_managers_that_start_a_group_at_once_make_one_container(
    backend: Containers,
) -> None:
    first, second = backend.driver(), backend.driver()
    await asyncio.gather(first.start("42", "1"), second.start("42", "1"))
    await listed(first, {"42": RunningGroup("1", 1)})


async def test_a_missing_image_is_named(backend: Containers) -> None:
    driver = backend.make(replace(backend.settings, image="no-such-image"))
    with pytest.raises(DriverError, match="404 No such image: no-such-image"):
        await driver.start("42")


async def test_an_unreachable_engine_is_named(backend: Containers, tmp_path: Path) -> None:
    driver = backend.make(replace(backend.settings, socket=str(tmp_path / "nobody")))
    with pytest.raises(DriverError, match=r"driver\.socket: no answer from Docker's engine"):
        await driver.list()


@pytest.mark.parametrize(("api", "version"), [("1.41", "v1.41"), ("1.52", "v1.44")])
async def test_requests_use_an_api_version_that_the_engine_supports(
    backend: Containers, api: str, version: str
) -> None:
    backend.engine.api = api
    await backend.driver().list()
    assert backend.engine.asked == ["GET /version", f"GET /{version}/containers/json"]


def test_an_image_is_required() -> None:
    with pytest.raises(ConfigurationError, match=r"driver\.image"):
        DockerSettings("")
