"""Managers and workers at a broker of MDP."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tests.pool.live import COMMAND, ROOT, WAIT_S, until
from tests.support.live import ANY_PORT, BrokerProcess

from requite import AsyncClient, Broker
from requite.pool.config import (
    BrokerSection,
    DriverSection,
    HttpSection,
    Lifetime,
    Loops,
    PoolConfig,
    PoolSection,
)
from requite.pool.drivers.records import Record, Records
from requite.pool.manager import PoolManager
from requite.pool.manager.keeping import State
from requite.protocols.majordomo.policy import BrokerPolicy


class Yard:
    """A broker, a folder for workers, and managers that are closed at the end."""

    def __init__(self, url: str, folder: Path, stack: AsyncExitStack) -> None:
        self.url = url
        self.state = folder / "state"
        self.logs = folder / "log"
        self.stack = stack

    def config(self, **changes: Any) -> PoolConfig:
        """Return brisk settings; `changes` replace sections."""
        settings = {
            "command": COMMAND,
            "state_dir": str(self.state),
            "log_dir": str(self.logs),
            "directory": str(ROOT),
            "stop_timeout": 10.0,
        }
        config = PoolConfig(
            PoolSection("core"),
            broker=BrokerSection(self.url, interval_s=0.05, settle_s=0.5),
            lifetime=Lifetime(60.0, 60.0, 1.0),
            loops=Loops(0.2, 0.1, 1.0),
            driver=DriverSection("subprocess", 20.0, settings),
            http=HttpSection(port=0),
        )
        return replace(config, **changes)

    async def manager(self, config: PoolConfig | None = None, **more: Any) -> PoolManager:
        """Start a manager; return it at once."""
        manager = PoolManager(config or self.config(), **more)
        return await self.stack.enter_async_context(manager)

    async def active(self, config: PoolConfig | None = None) -> PoolManager:
        """Start a manager; return when it decides."""
        manager = await self.manager(config)
        await until(lambda: manager.state is State.ACTIVE, "an active manager")
        return manager

    async def client(self, key: str = "42") -> AsyncClient:
        """Make a client of a group."""
        url = f"{self.url}?pool=core&key={quote(key, safe='')}"
        return await self.stack.enter_async_context(AsyncClient(url, timeout=WAIT_S))

    def workers(self) -> list[Record]:
        """Return the workers that run."""
        return Records(self.state / "core.default").living()

    async def clear(self) -> None:
        """Kill all workers."""

        def killed() -> bool:
            living = self.workers()
            for pid in filter(None, (record.pid for record in living)):
                with suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGKILL)
            return not living

        await until(killed, "the end of all workers")


async def broker_in(stack: AsyncExitStack) -> str:
    """Start a broker in this loop, whose requests wait as long as a busy machine takes to start a
    worker; return its URL."""
    broker = Broker(ANY_PORT, policy=BrokerPolicy(service_grace_s=WAIT_S, attempts_max=2))
    await stack.enter_async_context(broker)
    return broker.endpoints[0].replace("tcp://", "mdp://")


def broker_process(bind: str = ANY_PORT, options: Sequence[str] = ()) -> BrokerProcess:
    """Start a broker that can be killed."""
    return BrokerProcess("--service-grace", str(WAIT_S), *options, bind=bind)


async def who(client: AsyncClient, word: bytes = b"hi") -> str:
    """Return the id of the worker that answers."""
    reply = await client.call(word)
    return reply.body.removesuffix(b" " + word).decode().rsplit(" ", 1)[1]
