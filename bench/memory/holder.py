"""A worker that never answers, so that requests stay pending: `python -m bench.memory.holder URL`.

It listens at a URL of SP, and connects to any other one.
"""

from __future__ import annotations

import asyncio
import sys

import requite


@requite.service("echo")
async def hold(_request: requite.Request) -> bytes:
    """Wait until the request is cancelled."""
    await asyncio.Event().wait()
    return b""


def main() -> None:
    """Serve until a signal; print `ready`, or where it listens."""
    url = sys.argv[1]
    if not url.startswith("sp+"):
        connected = requite.Worker(url, hold, capacity=1)
        connected.run(on_started=lambda: print("ready", flush=True))
        return
    worker = requite.Worker(hold, bind=url, capacity=1)
    worker.run(on_started=lambda: print(f"listening on {worker.addresses[0]}", flush=True))


if __name__ == "__main__":
    main()
