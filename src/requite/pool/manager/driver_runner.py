"""The driver, asked by the engine: every question is answered, within `driver.timeout`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

from requite.pool.drivers.base import Driver, DriverError
from requite.pool.effects import ListGroups, StartGroup, StopGroup
from requite.pool.inputs import GroupDone, GroupFailed, GroupListFailed, GroupsListed


class DriverRunner:
    """Performs what the engine asks for about groups, and feeds it what comes of it.

    `before_stop(key)` is awaited before the driver stops a group: it tells the workers to drain. It
    raises nothing.
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
        """Begin to do it."""
        task = asyncio.create_task(self._do(effect))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def check(self) -> None:
        """See that the driver answers. Raises `DriverError`."""
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._driver.list()
        except TimeoutError:
            raise DriverError(self._late()) from None

    async def close(self) -> None:
        """Give up what is under way, and let go of the driver."""
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
        except Exception as error:  # a driver that is broken must not end the manager
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
        return f"no answer of the driver within {self._timeout_s:g} s (driver.timeout)"


def _failure(effect: ListGroups | StartGroup | StopGroup, reason: str) -> Any:
    if isinstance(effect, ListGroups):
        return GroupListFailed(effect.ticket, reason)
    return GroupFailed(effect.key, reason)
