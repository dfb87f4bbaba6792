"""A client that makes as many calls as each line of its stdin says, and waits for them all:
`python -m bench.memory.caller URL`."""

from __future__ import annotations

import asyncio
import sys

import requite
from bench.loop import run

_TIMEOUT_S = 3600.0
_SLOTS = 1_000_000


async def call(url: str) -> None:
    """Make calls until the end of stdin, then cancel them."""
    loop = asyncio.get_running_loop()
    async with requite.AsyncClient(url, timeout=_TIMEOUT_S, slots=_SLOTS) as client:
        calls: list[asyncio.Future[requite.Reply]] = []
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            for each in calls:
                if each.done():
                    each.result()  # raises the error of a call that is not pending
            calls += [client.start(b"") for _ in range(int(line))]
            print(f"made {len(calls)}", flush=True)
        for each in calls:
            each.cancel()


if __name__ == "__main__":
    run(call(sys.argv[1]))
