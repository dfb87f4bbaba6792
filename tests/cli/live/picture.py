"""Take the picture of `requite top` for the documentation.

python -m tests.cli.live.picture
"""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

from tests.cli.live.display import displayed

from requite import Broker, RemoteFailure, Request, Worker, service
from requite.client import AsyncClient
from requite.errors import CallError

PICTURE: Final = Path(__file__).parents[3] / "docs" / "how-to" / "top.svg"
_ADDRESS: Final = "mdp://127.0.0.1:5555"
_SIZE: Final = (120, 17)
_SECONDS: Final = 12.0
_RANDOM: Final = random.Random(7)


def _handler(name: str, took_s: float, failing: float = 0.0) -> Callable[..., object]:
    """Return a service that takes about `took_s` seconds; a share of its requests fails."""

    @service(name)
    async def handler(request: Request) -> bytes:
        await asyncio.sleep(_RANDOM.lognormvariate(0, 0.4) * took_s)
        if _RANDOM.random() < failing:
            raise RemoteFailure("the card is declined")
        return request.body * 2

    return handler


# Its workers; the clients that call it, one request after the other; the bytes of a request.
_SERVICES: Final = {
    "orders.price": (_handler("orders.price", 0.002), 4, 6, 200),
    "orders.place": (_handler("orders.place", 0.012), 3, 5, 900),
    "pay.charge": (_handler("pay.charge", 0.06, failing=0.1), 2, 8, 400),
    "stock.reserve": (_handler("stock.reserve", 0.008), 2, 2, 120),
    "images.resize": (_handler("images.resize", 0.35), 2, 5, 40_000),
    "reports.build": (_handler("reports.build", 1.5), 1, 1, 80),
    "mail.send": (None, 0, 3, 600),
}


async def _keep_calling(client: AsyncClient, name: str, size: int) -> None:
    while True:
        try:
            await client.call(b"x" * size, service=name, timeout=60)
        except CallError:
            await asyncio.sleep(0.01)


async def main() -> None:
    """Serve, call for some seconds, and take the picture."""
    async with AsyncExitStack() as stack:
        broker = Broker("tcp://127.0.0.1:0")
        [endpoint] = await broker.start()
        stack.push_async_callback(broker.close)
        url = endpoint.replace("tcp://", "mdp://")
        for handler, workers, _, _ in _SERVICES.values():
            for _ in range(workers):
                worker = Worker(url, handler, capacity=1)
                await worker.start()
                stack.push_async_callback(worker.close)
        client = await stack.enter_async_context(AsyncClient(url))
        calls = [
            asyncio.create_task(_keep_calling(client, name, size))
            for name, (_, _, clients, size) in _SERVICES.items()
            for _ in range(clients)
        ]
        async with displayed(url, _SIZE, interval_s=1.0) as display:
            display.app._place = _ADDRESS
            await asyncio.sleep(_SECONDS)
            await display.press("down", "down")
            svg = display.app.export_screenshot()
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
    # A page must not fetch fonts from elsewhere.
    PICTURE.write_text(re.sub(r"@font-face \{.*?\}\n", "", svg, flags=re.S))


if __name__ == "__main__":
    asyncio.run(main())
