"""The test suite that every pool driver passes.

A test module derives a class from `DriverConformance`, and provides a fixture `backend` that makes
drivers, inspects their workers and kills them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Protocol

import pytest

from requite.pool.drivers.base import Driver, DriverError, Label
from requite.pool.inputs import RunningGroup

WAIT_S: Final = 20.0
CORE: Final = Label("core", "one")
KEYS: Final = [
    "42",
    "infra=42,timetable=24",
    "",
    "a/b",
    "100%",
    "sha256/0",
    "-",
    "Zürich 東京 🚆",
    "line\nbreak\ttab\x1b[31m\x7f",
    "quote \" ' ` $HOME $(id) \\ ;",
    " blank ",
    "k" * 255,
    "é" * 127,
]


class Backend(Protocol):
    """What runs the workers of a driver: processes, containers, pods or units."""

    remembers: bool
    """Whether another driver object finds workers that were started before."""

    def driver(self, label: Label = CORE) -> Driver:
        """Return a new driver; the fixture closes it."""

    async def environments(self, label: Label = CORE) -> list[Mapping[str, str]]:
        """Return the environment variables of each running worker."""

    async def kill(self, key: str) -> None:
        """Make the workers of a key exit without the driver."""


async def until(condition: Callable[[], Awaitable[object]], what: str) -> None:
    """Wait until `condition` returns a true value; fail after `WAIT_S`."""
    try:
        async with asyncio.timeout(WAIT_S):
            while not await condition():  # noqa: ASYNC110 - workers of a backend have no event
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise AssertionError(f"{what}: not within {WAIT_S:g} s") from None


async def listed(driver: Driver, expected: Mapping[str, RunningGroup]) -> None:
    """Wait until the driver lists `expected`; fail with the last list after `WAIT_S`."""
    seen: list[Mapping[str, RunningGroup]] = []

    async def is_listed() -> bool:
        seen.append(await driver.list())
        return dict(seen[-1]) == expected

    try:
        await until(is_listed, "")
    except AssertionError:
        raise AssertionError(f"expected {expected}, but the last look gave {seen[-1]}") from None


class DriverConformance:
    """Tests that every driver passes."""

    async def test_nothing_runs_at_first(self, backend: Backend) -> None:
        assert dict(await backend.driver().list()) == {}

    async def test_started_groups_run_and_stopped_groups_do_not(self, backend: Backend) -> None:
        driver = backend.driver()
        await driver.start("42", "1")
        await driver.start("43", "1")
        await listed(driver, {"42": RunningGroup("1", 1), "43": RunningGroup("1", 1)})
        await driver.stop("42")
        await listed(driver, {"43": RunningGroup("1", 1)})

    async def test_start_and_stop_are_idempotent(self, backend: Backend) -> None:
        driver = backend.driver()
        await driver.stop("42")
        for _ in range(3):
            await driver.start("42", "1")
        await listed(driver, {"42": RunningGroup("1", 1)})
        for _ in range(3):
            await driver.stop("42")
        await listed(driver, {})

    async def test_a_stopped_group_can_be_started_again(self, backend: Backend) -> None:
        driver = backend.driver()
        for _ in range(2):
            await driver.start("42", "1")
            await listed(driver, {"42": RunningGroup("1", 1)})
            await driver.stop("42")
            await listed(driver, {})

    @pytest.mark.parametrize("key", KEYS, ids=repr)
    async def test_keys_are_any_text(self, backend: Backend, key: str) -> None:
        driver = backend.driver()
        await driver.start(key, "1")
        await driver.start("other", "1")
        await listed(driver, {key: RunningGroup("1", 1), "other": RunningGroup("1", 1)})
        await driver.stop(key)
        await listed(driver, {"other": RunningGroup("1", 1)})

    async def test_instances_and_pools_are_isolated(self, backend: Backend) -> None:
        texts = ["core one", "core two", "other one", "core-one x", "core one-x"]
        labels = [Label(*text.split()) for text in texts]
        drivers = [backend.driver(label) for label in labels]
        for i, driver in enumerate(drivers):
            await driver.start("42", str(i))
        for i, driver in enumerate(drivers):
            await listed(driver, {"42": RunningGroup(str(i), 1)})
        await drivers[0].stop("42")
        await listed(drivers[0], {})
        for i, driver in enumerate(drivers[1:], 1):
            await listed(driver, {"42": RunningGroup(str(i), 1)})

    async def test_many_start_and_stop_at_once(self, backend: Backend) -> None:
        driver = backend.driver()
        await asyncio.gather(*(driver.start(str(n % 4), "1") for n in range(12)))
        await listed(driver, {str(n): RunningGroup("1", 1) for n in range(4)})
        await asyncio.gather(*(driver.stop(str(n % 4)) for n in range(12)))
        await listed(driver, {})

    async def test_a_group_can_have_several_workers(self, backend: Backend) -> None:
        driver = backend.driver()
        if driver.workers_max == 1:
            with pytest.raises(DriverError, match="allows 1 to 1"):
                await driver.start("42", "1", 2)
            return
        await driver.start("42", "1", 3)
        await listed(driver, {"42": RunningGroup("1", 3)})
        await driver.start("42", "1")
        await listed(driver, {"42": RunningGroup("1", 3)})
        await driver.start("42", "1", 2)
        await listed(driver, {"42": RunningGroup("1", 2)})
        await driver.stop("42")
        await listed(driver, {})

    async def test_a_group_needs_at_least_one_worker(self, backend: Backend) -> None:
        driver = backend.driver()
        with pytest.raises(DriverError, match="to 0 workers"):
            await driver.start("42", "1", 0)
        assert dict(await driver.list()) == {}


class LastingConformance(DriverConformance):
    """Tests that every driver passes that starts workers."""

    async def test_another_manager_finds_running_workers(self, backend: Backend) -> None:
        await backend.driver().start("42", "1")
        successor = backend.driver()
        await listed(successor, {"42": RunningGroup("1", 1)})
        await successor.start("42", "2")
        await listed(successor, {"42": RunningGroup("1", 1)})
        await successor.stop("42")
        await listed(successor, {})
        await successor.start("42", "2")
        await listed(successor, {"42": RunningGroup("2", 1)})

    @pytest.mark.parametrize("key", KEYS, ids=repr)
    async def test_workers_get_their_key_pool_and_id(self, backend: Backend, key: str) -> None:
        driver = backend.driver()
        await driver.start(key, "1", min(2, driver.workers_max))

        async def all_there() -> bool:
            return len(await backend.environments()) == min(2, driver.workers_max)

        await until(all_there, "the environments of all workers")
        seen = await backend.environments()
        assert {each["WORKER_KEY"] for each in seen} == {key}
        assert {each["WORKER_POOL"] for each in seen} == {"core"}
        assert len({each["WORKER_ID"] for each in seen}) == len(seen)

    async def test_workers_that_died_can_be_started_again(self, backend: Backend) -> None:
        driver = backend.driver()
        await driver.start("42", "1")
        await listed(driver, {"42": RunningGroup("1", 1)})
        await backend.kill("42")
        await listed(driver, {})
        await driver.start("42", "1")
        await listed(driver, {"42": RunningGroup("1", 1)})

    async def test_a_key_with_a_nul_is_refused(self, backend: Backend) -> None:
        driver = backend.driver()
        with pytest.raises(DriverError, match="WORKER_KEY contains a NUL"):
            await driver.start("a\0b", "1")
        assert dict(await driver.list()) == {}
