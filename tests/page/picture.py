"""Take the pictures of the page of a broker, for the documentation.

python -m tests.page.picture [SECONDS]      how long calls go on before (default: 200)
"""

from __future__ import annotations

import asyncio
import random
import signal
import sys
from contextlib import AsyncExitStack, suppress
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from tests.page.rig import serving, shown
from tests.support.browser import Page, browsing

from requite import AsyncClient
from requite.errors import CallError
from requite.journal.reader import events
from requite.story.vocabulary import REDELIVERED

_DOCS: Final = Path(__file__).parents[2] / "docs" / "how-to"
_CALLS_S: Final = 200.0
_SERVICES: Final = {"echo": ("hello", 0.05), "fail": ("no stock", 6.0), "slow": ("0.3", 0.1)}
_BODIES: Final = {name: body.encode() for name, (body, _) in _SERVICES.items()}
_PAUSES_S: Final = {name: pause_s for name, (_, pause_s) in _SERVICES.items()}
_AT_A_TIME: Final = {"echo": 10, "fail": 1, "slow": 10}


async def _call(client: AsyncClient, name: str, rng: random.Random) -> None:
    """Make calls of a service, one after the other."""
    for number in count():
        swell = 1.0 + 0.5 * (number // 200 % 2)
        with suppress(CallError):
            await client.call(_BODIES[name], service=name, timeout=20.0)
        await asyncio.sleep(swell * _PAUSES_S[name] * rng.expovariate(1.0))


async def take(page: Page, name: str, url: str, width: int, *, dark: bool = False) -> None:
    """Take a picture of all of a page, once it is live."""
    await page.open(url, width, dark=dark)
    await page.until("document.readyState == 'complete' && document.querySelector('h1')")
    live = "document.querySelector('#live')"
    await page.until(f"!{live} || {live}.textContent == 'live'")
    await page.resize(width, 200)
    height = await page.run("document.documentElement.scrollHeight")
    await page.resize(width, height)
    (_DOCS / name).write_bytes(await page.picture())


def _retried(journal: Path) -> str:
    """Return the ID of a request that a worker was lost with."""
    lost = (each for each in events(journal) if each.kind == REDELIVERED)
    return str(next(each.request_id for each in lost))


async def main(calls_s: float) -> None:
    """Serve three services, kill a worker while calls go on, and take the pictures."""
    rng = random.Random(1)
    with TemporaryDirectory() as folder:
        journal = Path(folder) / "journal"
        with (
            shown(journal=journal) as broker,
            serving(broker, "echo", "slow", journal=journal),
            serving(broker, "echo", "slow", journal=journal),
            serving(broker, "fail", journal=journal),
        ):
            async with AsyncExitStack() as stack:
                page = await stack.enter_async_context(browsing(Path(folder) / "browser"))
                settings = {"slots": 64, "journal": journal}
                client = await stack.enter_async_context(AsyncClient(broker.url, **settings))
                calls = [
                    asyncio.create_task(_call(client, name, rng))
                    for name in _SERVICES
                    for _ in range(_AT_A_TIME[name])
                ]
                await asyncio.sleep(calls_s)
                with serving(broker, "slow", journal=journal) as worker:
                    await asyncio.sleep(3.0)
                    await take(page, "page-home.png", broker.page, 1100)
                    await take(page, "page-phone.png", broker.page, 390, dark=True)
                    await take(page, "page-service.png", f"{broker.page}/services/slow", 1100)
                    await take(page, "page-act.png", f"{broker.page}/acts/pause?of=slow", 900)
                    worker.send(signal.SIGKILL)
                await asyncio.sleep(3.0)
                retried = _retried(journal)
                await take(page, "page-request.png", f"{broker.page}/requests/{retried}", 900)
                for each in calls:
                    each.cancel()


if __name__ == "__main__":
    asyncio.run(main(float(sys.argv[1]) if len(sys.argv) > 1 else _CALLS_S))
