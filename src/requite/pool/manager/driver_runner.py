"""Runs driver operations for the engine: each has a result within `driver.timeout`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

from requite.pool.drivers.base import Driver, DriverError
from requite.pool.effects import ListGroups, StartGroup, StopGroup
from requite.pool.inputs import GroupDone, GroupFailed, GroupListFailed, GroupsListed


class DriverRunner:
    """Performs the engine's effects on groups, and feeds the results to the engine.

    `before_stop(key)` is awaited before the driver stops a group, and asks its workers to drain. It
    must not raise.
    """

    def __init__(
        self,
        driver: Driver,
        timeout_s: float,
        feed: Callable[[Any], None],
        before_stop: Callable[[str], Awaitable[object]],
    ) -> None:
        self._driver: Final = driver
        self._before_stop: Final = before_stop
        self._timeout_s: Final = timeout_s
        self._feed: Final = feed
        self._tasks: Final[set[asyncio.Task[None]]] = set()

    def perform(self, effect: ListGroups | StartGroup | StopGroup) -> None:
        """Start an operation; its result is fed to the engine."""
        task = asyncio.create_task(self._do(effect))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def check(self) -> None:
        """Test that the driver answers. Raises `DriverError`."""
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._driver.list()
        except TimeoutError:
            raise DriverError(self._late()) from None

    async def close(self) -> None:
        """Cancel pending operations, and close the driver."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._driver.close()

    async def _do(self, effect: ListGroups | StartGroup | StopGroup) -> None:
        try:
            async with asyncio.timeout(self._timeout_s):
                answer = await self._answer(effect)
        except DriverError as error:
            answer = _failure(effect, str(error))
        except TimeoutError:
            answer = _failure(effect, self._late())
        except Exception as error:  # a broken driver must not end the manager
            answer = _failure(effect, repr(error))
        self._feed(answer)

    async def _answer(self, effect: ListGroups | StartGroup | StopGroup) -> Any:
        match effect:
            case ListGroups(ticket):
                return GroupsListed(ticket, await self._driver.list())
            case StartGroup(key, version, workers):
                await self._driver.start(key, version, workers)
                return GroupDone(key)
            case StopGroup(key):
                await self._before_stop(key)
                await self._driver.stop(key)
                return GroupDone(key)

    def _late(self) -> str:
        return f"the driver did not answer within {self._timeout_s:g} s (driver.timeout)"


def _failure(effect: ListGroups | StartGroup | StopGroup, reason: str) -> Any:
    if isinstance(effect, ListGroups):
        return GroupListFailed(effect.ticket, reason)
    return GroupFailed(effect.key, reason)
