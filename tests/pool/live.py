"""Testbeds for pool managers, clients and worker processes."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import Request, urlopen

from tests.support.rabbit import Rabbit

from requite import AsyncClient
from requite.pool.config import (
    DriverSection,
    HttpSection,
    Lifetime,
    Loops,
    PoolConfig,
    PoolSection,
    RabbitSection,
)
from requite.pool.drivers.records import Record, Records
from requite.pool.manager import PoolManager
from requite.pool.manager.carrier import State

WAIT_S: Final = 30.0
COMMAND: Final = (
    sys.executable,
    "-m",
    "requite.cli",
    "worker",
    "tests.pool.services:identify",
    "--pool",
)
ROOT: Final = Path(__file__).parents[2]


class PoolTestbed:
    """The managers, clients and worker processes of a test, with a folder for their state.

    `url` is the URL for clients. `section` has the configuration section with which managers
    connect to the same server.
    """

    def __init__(
        self, url: str, section: Mapping[str, Any], folder: Path, stack: AsyncExitStack
    ) -> None:
        self.url = url
        self._section = section
        self.state = folder / "state"
        self.logs = folder / "log"
        self.stack = stack

    def config(self, **changes: Any) -> PoolConfig:
        """Return a configuration with short intervals; `changes` replace sections."""
        settings = {
            "command": COMMAND,
            "state_dir": str(self.state),
            "log_dir": str(self.logs),
            "directory": str(ROOT),
            "stop_timeout": 10.0,
        }
        config = PoolConfig(
            PoolSection("core"),
            lifetime=Lifetime(60.0, 60.0, 1.0),
            loops=Loops(0.2, 0.1, 1.0, settle_s=0.6),
            driver=DriverSection("subprocess", 20.0, settings),
            http=HttpSection(port=0),
        )
        return replace(config, **{**self._section, **changes})

    async def manager(self, config: PoolConfig | None = None, **more: Any) -> PoolManager:
        """Start a manager; return it without waiting until it is active."""
        manager = PoolManager(config or self.config(), **more)
        return await self.stack.enter_async_context(manager)

    async def active(self, config: PoolConfig | None = None) -> PoolManager:
        """Start a manager; return it once it is active."""
        manager = await self.manager(config)
        await until(lambda: manager.state is State.ACTIVE, "an active manager")
        return manager

    async def client(self, key: str = "42", **settings: Any) -> AsyncClient:
        """Return a client of the group of `key`; it is closed after the test."""
        url = f"{self.url}?pool=core&key={quote(key, safe='')}"
        client = AsyncClient(url, timeout=settings.pop("timeout", WAIT_S), **settings)
        return await self.stack.enter_async_context(client)

    def workers(self) -> list[Record]:
        """Return the records of the running workers."""
        return Records(self.state / "core.default").living()

    async def clear(self) -> None:
        """Kill all workers; return once none is running."""

        def killed() -> bool:
            living = self.workers()
            for pid in filter(None, (record.pid for record in living)):
                with suppress(ProcessLookupError):  # it has just exited
                    os.killpg(pid, signal.SIGKILL)
            return not living

        await until(killed, "the end of all workers")


class RabbitTestbed(PoolTestbed):
    """A testbed whose managers connect to RabbitMQ."""

    def __init__(self, rabbit: Rabbit, folder: Path, stack: AsyncExitStack) -> None:
        section = RabbitSection(rabbit.url, rabbit.management_url)
        super().__init__(rabbit.url, {"rabbitmq": section}, folder, stack)
        self.rabbit = rabbit


async def until(condition: Callable[[], object], what: str) -> None:
    """Wait until `condition` returns a true value; fail after `WAIT_S`."""
    try:
        async with asyncio.timeout(WAIT_S):
            while not condition():  # noqa: ASYNC110 - the condition has no event
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise AssertionError(f"{what}: not within {WAIT_S:g} s") from None


async def eventually(condition: Callable[[], Awaitable[object]], what: str) -> None:
    """Wait until `condition`, a coroutine function, returns a true value; fail after `WAIT_S`."""
    try:
        async with asyncio.timeout(WAIT_S):
            while not await condition():  # noqa: ASYNC110 - the condition has no event
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise AssertionError(f"{what}: not within {WAIT_S:g} s") from None


async def ask(url: str, body: object = None) -> tuple[int, Any]:
    """Send a GET request, or POST `body` as JSON; return the status and the parsed response."""
    return await asyncio.to_thread(_ask, url, body)


def _ask(url: str, body: object) -> tuple[int, Any]:
    data = None if body is None else json.dumps(body).encode()
    headers = {} if data is None else {"Content-Type": "application/json"}
    try:
        with urlopen(Request(url, data, headers), timeout=20) as answer:
            return answer.status, _content(answer)
    except HTTPError as error:
        with error:
            return error.code, _content(error)


def _content(answer: Any) -> Any:
    text = answer.read().decode()
    return json.loads(text) if answer.headers.get_content_type() == "application/json" else text
