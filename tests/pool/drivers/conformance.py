"""The suite that every driver of pools passes, whoever runs its workers.

A test module derives a class from `DriverConformance` whose fixture `house` makes drivers, and can
look behind them and kill workers.
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


class House(Protocol):
    """Where the workers of a driver run."""

    remembers: bool
    """Whether what was started is still there for another driver object."""

    def driver(self, label: Label = CORE) -> Driver:
        """Make a driver; the fixture closes it."""

    async def environments(self, label: Label = CORE) -> list[Mapping[str, str]]:
        """Return the variables of each worker that runs, as it sees them."""

    async def kill(self, key: str) -> None:
        """Have the workers of a key die by themselves."""


async def until(look: Callable[[], Awaitable[object]], what: str) -> None:
    """Wait until something is so."""
    try:
        async with asyncio.timeout(WAIT_S):
            while not await look():  # noqa: ASYNC110 - others' workers have no event
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise AssertionError(f"{what}: not within {WAIT_S:g} s") from None


async def listed(driver: Driver, expected: Mapping[str, RunningGroup]) -> None:
    """Wait until a driver lists this."""
    seen: list[Mapping[str, RunningGroup]] = []

    async def look() -> bool:
        seen.append(await driver.list())
        return dict(seen[-1]) == expected

    try:
        await until(look, "")
    except AssertionError:
        raise AssertionError(f"expected {expected}, but the last look gave {seen[-1]}") from None


class DriverConformance:
    """What every driver does."""

    async def test_nothing_runs_at_first(self, house: House) -> None:
        assert dict(await house.driver().list()) == {}

    async def test_what_is_started_runs_and_what_is_stopped_does_not(self, house: House) -> None:
        driver = house.driver()
        await driver.start("42", "1")
        await driver.start("43", "1")
        await listed(driver, {"42": RunningGroup("1", 1), "43": RunningGroup("1", 1)})
        await driver.stop("42")
        await listed(driver, {"43": RunningGroup("1", 1)})

    async def test_all_of_it_may_be_repeated(self, house: House) -> None:
        driver = house.driver()
        await driver.stop("42")
        for _ in range(3):
            await driver.start("42", "1")
        await listed(driver, {"42": RunningGroup("1", 1)})
        for _ in range(3):
            await driver.stop("42")
        await listed(driver, {})

    async def test_what_was_stopped_can_be_started_again(self, house: House) -> None:
        driver = house.driver()
        for _ in range(2):
            await driver.start("42", "1")
            await listed(driver, {"42": RunningGroup("1", 1)})
            await driver.stop("42")
            await listed(driver, {})

    @pytest.mark.parametrize("key", KEYS, ids=repr)
    async def test_keys_are_any_text(self, house: House, key: str) -> None:
        driver = house.driver()
        await driver.start(key, "1")
        await driver.start("other", "1")
        await listed(driver, {key: RunningGroup("1", 1), "other": RunningGroup("1", 1)})
        await driver.stop(key)
        await listed(driver, {"other": RunningGroup("1", 1)})

    async def test_instances_and_pools_leave_each_other_alone(self, house: House) -> None:
        texts = ["core one", "core two", "other one", "core-one x", "core one-x"]
        labels = [Label(*text.split()) for text in texts]
        drivers = [house.driver(label) for label in labels]
        for i, driver in enumerate(drivers):
            await driver.start("42", str(i))
        for i, driver in enumerate(drivers):
            await listed(driver, {"42": RunningGroup(str(i), 1)})
        await drivers[0].stop("42")
        await listed(drivers[0], {})
        for i, driver in enumerate(drivers[1:], 1):
            await listed(driver, {"42": RunningGroup(str(i), 1)})

    async def test_many_start_and_stop_at_once(self, house: House) -> None:
        driver = house.driver()
        await asyncio.gather(*(driver.start(str(n % 4), "1") for n in range(12)))
        await listed(driver, {str(n): RunningGroup("1", 1) for n in range(4)})
        await asyncio.gather(*(driver.stop(str(n % 4)) for n in range(12)))
        await listed(driver, {})

    async def test_a_group_can_have_several_workers(self, house: House) -> None:
        driver = house.driver()
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

    async def test_no_group_has_fewer_workers_than_one(self, house: House) -> None:
        driver = house.driver()
        with pytest.raises(DriverError, match="to 0 workers"):
            await driver.start("42", "1", 0)
        assert dict(await driver.list()) == {}


class LastingConformance(DriverConformance):
    """What every driver does that starts something."""

    async def test_another_manager_finds_what_runs(self, house: House) -> None:
        await house.driver().start("42", "1")
        heir = house.driver()
        await listed(heir, {"42": RunningGroup("1", 1)})
        await heir.start("42", "2")
        await listed(heir, {"42": RunningGroup("1", 1)})
        await heir.stop("42")
        await listed(heir, {})
        await heir.start("42", "2")
        await listed(heir, {"42": RunningGroup("2", 1)})

    @pytest.mark.parametrize("key", KEYS, ids=repr)
    async def test_workers_are_told_who_they_are(self, house: House, key: str) -> None:
        driver = house.driver()
        await driver.start(key, "1", min(2, driver.workers_max))

        async def all_there() -> bool:
            return len(await house.environments()) == min(2, driver.workers_max)

        await until(all_there, "the environments of all workers")
        seen = await house.environments()
        assert {each["WORKER_KEY"] for each in seen} == {key}
        assert {each["WORKER_POOL"] for each in seen} == {"core"}
        assert len({each["WORKER_ID"] for each in seen}) == len(seen)

    async def test_workers_that_died_can_be_started_again(self, house: House) -> None:
        driver = house.driver()
        await driver.start("42", "1")
        await listed(driver, {"42": RunningGroup("1", 1)})
        await house.kill("42")
        await listed(driver, {})
        await driver.start("42", "1")
        await listed(driver, {"42": RunningGroup("1", 1)})

    async def test_a_key_that_no_environment_holds_is_refused(self, house: House) -> None:
        driver = house.driver()
        with pytest.raises(DriverError, match="WORKER_KEY contains a NUL"):
            await driver.start("a\0b", "1")
        assert dict(await driver.list()) == {}
