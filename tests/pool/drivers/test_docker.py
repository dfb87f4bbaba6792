"""The driver of containers passes the suite, against a local server that answers as Docker does."""

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
    """The local engine."""

    def __init__(self, folder: Path) -> None:
        self.engine = LocalDockerEngine(folder / "docker.sock")
        self.drivers: list[DockerDriver] = []

    @property
    def settings(self) -> DockerSettings:
        """The settings of workers."""
        return DockerSettings("worker:1", socket=str(self.engine.socket), env=("MORE=a=b",))

    def driver(self, label: Label = CORE) -> DockerDriver:
        """Make a driver."""
        return self.make(self.settings, label)

    def make(self, settings: DockerSettings, label: Label = CORE) -> DockerDriver:
        """Make a driver with settings of one's own."""
        self.drivers.append(DockerDriver(settings, label, environment_of(label)))
        return self.drivers[-1]

    async def environments(self, label: Label = CORE) -> list[Mapping[str, str]]:
        """Return what the containers were given."""
        seen = [each.environment for each in self.engine.running()]
        return [each for each in seen if each["WORKER_POOL"] == label.pool]

    async def kill(self, key: str) -> None:
        """Have the containers of a key exit."""
        for each in self.engine.running():
            if each.environment["WORKER_KEY"] == key:
                each.state = "exited"


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[Containers]:
    house = Containers(tmp_path)
    await house.engine.start()
    try:
        yield house
    finally:
        for driver in house.drivers:
            await driver.close()
        await house.engine.close()


class TestDockerAtLocalServer(LastingConformance):
    """The whole suite."""


async def test_what_a_container_is_made_of(house: Containers) -> None:
    settings = replace(
        house.settings,
        command=("requite", "worker"),
        network="backend",
        memory_bytes=1 << 30,
        cpus=1.5,
        stop_timeout_s=12.0,
    )
    await house.make(settings).start("a/b", "7")
    [made] = house.engine.running()
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


async def test_containers_stop_in_their_own_time_and_are_removed(house: Containers) -> None:
    driver = house.make(replace(house.settings, stop_timeout_s=12.0))
    await driver.start("42")
    [made] = house.engine.running()
    await driver.stop("42")
    assert made.calls == ["SIGTERM, SIGKILL after 12 s"]
    assert house.engine.containers == {}


async def test_what_a_killed_manager_has_created_is_replaced(house: Containers) -> None:
    driver = house.driver()
    await driver.start("42", "1")
    [made] = house.engine.running()
    made.state = "created"  # it was killed before it could start the container
    await listed(driver, {})
    await driver.start("42", "2")
    await listed(driver, {"42": RunningGroup("2", 1)})
    assert len(house.engine.containers) == 1


async def test_two_managers_that_start_a_group_at_once_make_one_container(
    house: Containers,
) -> None:
    first, second = house.driver(), house.driver()
    await asyncio.gather(first.start("42", "1"), second.start("42", "1"))
    await listed(first, {"42": RunningGroup("1", 1)})


async def test_an_image_that_is_not_there_is_named(house: Containers) -> None:
    driver = house.make(replace(house.settings, image="no-such-image"))
    with pytest.raises(DriverError, match="404 No such image: no-such-image"):
        await driver.start("42")


async def test_an_engine_that_is_not_there_is_named(house: Containers, tmp_path: Path) -> None:
    driver = house.make(replace(house.settings, socket=str(tmp_path / "nobody")))
    with pytest.raises(DriverError, match=r"driver\.socket: no answer from Docker's engine"):
        await driver.list()


@pytest.mark.parametrize(("api", "version"), [("1.41", "v1.41"), ("1.52", "v1.44")])
async def test_engines_are_asked_in_a_version_that_they_speak(
    house: Containers, api: str, version: str
) -> None:
    house.engine.api = api
    await house.driver().list()
    assert house.engine.asked == ["GET /version", f"GET /{version}/containers/json"]


def test_an_image_is_needed() -> None:
    with pytest.raises(ConfigurationError, match=r"driver\.image"):
        DockerSettings("")
