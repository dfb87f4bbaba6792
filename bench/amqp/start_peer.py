"""Processes of `bench.amqp.start` besides the user's manager.

python -m bench.amqp.start_peer waiting URL KEY...   workers that start before their queues exist
python -m bench.amqp.start_peer manager POOL.TOML    a manager that runs workers itself
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final
from urllib.parse import quote

import requite
from bench.amqp.pool_worker import echo
from bench.loop import run
from requite.pool.config import PoolConfig, read_config
from requite.pool.inputs import RunningGroup
from requite.pool.manager import PoolManager
from requite.pool.manager.carrier import State


class TaskDriver:
    """Runs a worker per group on the manager's own event loop, without a process."""

    workers_max: int = 1

    def __init__(self, url: str) -> None:
        self._url: Final = url
        self._workers: Final[dict[str, tuple[requite.Worker, str]]] = {}

    async def list(self) -> Mapping[str, RunningGroup]:
        """Return the running groups."""
        return {key: RunningGroup(version, 1) for key, (_, version) in self._workers.items()}

    async def start(self, key: str, version: str = "", workers: int | None = None) -> None:
        """Start a worker, unless it runs."""
        if key not in self._workers:
            worker = requite.Worker(f"{self._url}&key={quote(key, safe='')}", echo)
            self._workers[key] = worker, version
            await worker.start()

    async def stop(self, key: str) -> None:
        """Stop a worker."""
        worker, _ = self._workers.pop(key)
        await worker.drain()

    async def close(self) -> None:
        """Do nothing: there are no resources."""


async def manage(config: PoolConfig) -> None:
    """Manage the pool, with the output of `requite pool run`."""
    name = config.pool.name
    active = asyncio.Event()

    def turned(state: State) -> None:
        if state is State.ACTIVE:
            active.set()

    driver = TaskDriver(f"{config.rabbitmq.url}?pool={name}")
    async with PoolManager(config, driver=driver, on_state=turned) as manager:
        print(f"pool {name} at {manager.url}", flush=True)
        await active.wait()
        print(f"pool {name}: active", flush=True)
        await asyncio.Event().wait()


async def wait(url: str, keys: Sequence[str]) -> None:
    """Serve groups before their queues are declared."""
    async with AsyncExitStack() as stack:
        for key in keys:
            worker = requite.Worker(f"{url}&key={quote(key, safe='')}", echo)
            await stack.enter_async_context(worker)
        print("ready", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["waiting", url, *keys]:
            run(wait(url, keys))
        case ["manager", path]:
            run(manage(read_config(Path(path).read_text())))
        case _:
            sys.exit(__doc__)
