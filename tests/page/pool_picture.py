"""Take the picture of the page of a pool, for the documentation.

python -m tests.page.pool_picture
"""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from tests.page.picture import take
from tests.pool.brokered import BrokerTestbed, start_broker
from tests.pool.live import COMMAND, ask, until
from tests.support.browser import browsing

from requite import AsyncClient
from requite.errors import CallError
from requite.page.pool import PoolPage
from requite.pool.config import Lifetime, Loops
from requite.pool.manager import PoolManager
from requite.pool.manager.carrier import State

_KEYS: Final = ("Ljubljana", "Reykjavík", "São Paulo", "Zürich")
_BAD: Final = "Atlantis"
_WORKERS: Final = 3


def _step_of(manager: PoolManager, key: str) -> str:
    """Return the latest event of a group."""
    return next((each.step for each in reversed(manager.history) if each.key == key), "")


def _settings(testbed: BrokerTestbed) -> Any:
    """Return settings whose workers exit at once for one key."""
    command = f'[ "$WORKER_KEY" = {_BAD} ] && exit 1; exec {shlex.join(COMMAND)}'
    config = testbed.config(lifetime=Lifetime(60.0, 60.0, 1.0), loops=Loops(0.2, 4.0, 60.0))
    settings = {**config.driver.settings, "command": ("/bin/sh", "-c", command)}
    version = replace(config.pool, version="2026-05")
    return replace(config, pool=version, driver=replace(config.driver, settings=settings))


async def _call(client: AsyncClient) -> None:
    with suppress(CallError):
        await client.call(b"hi")


async def main() -> None:
    """Run a pool, kill a worker, scale a group, and take the picture."""
    with TemporaryDirectory() as folder:
        async with AsyncExitStack() as stack:
            page = await stack.enter_async_context(browsing(Path(folder) / "browser"))
            testbed = BrokerTestbed(await start_broker(stack), Path(folder), stack)
            stack.push_async_callback(testbed.clear)
            manager = await testbed.manager(_settings(testbed), page=PoolPage)
            await until(lambda: manager.state is State.ACTIVE, "an active manager")
            for key in _KEYS:
                await (await testbed.client(key)).call(b"hi")
            [victim] = [each for each in testbed.workers() if each.key == _KEYS[1]]
            os.killpg(victim.pid, signal.SIGKILL)
            await until(lambda: _step_of(manager, _KEYS[1]) == "lost", "a lost group")
            await ask(f"{manager.url}/scale", {"key": _KEYS[3], "workers": _WORKERS})
            failing = asyncio.create_task(_call(await testbed.client(_BAD)))
            await until(lambda: manager.snapshot().groups.failures.get(_BAD), "a failure")
            await until(lambda: _step_of(manager, _KEYS[1]) == "running", "its return")
            await asyncio.sleep(3.0)
            await take(page, "page-pool.png", manager.url, 1100)
            failing.cancel()


if __name__ == "__main__":
    asyncio.run(main())
