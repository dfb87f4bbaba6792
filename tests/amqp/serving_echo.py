"""A worker process for tests that kill it: `python serving_echo.py URL`.

Services: `echo` returns the body; `die` kills the worker process with SIGKILL; `slow` takes 0.5 s.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys

from requite import Request, Worker, service


@service("echo")
async def echo(request: Request) -> bytes:
    return request.body


@service("die")
async def die(_request: Request) -> bytes:
    os.kill(os.getpid(), signal.SIGKILL)
    return b""


@service("slow")
async def slow(request: Request) -> bytes:
    print("began", request.body.decode(), flush=True)
    await asyncio.sleep(0.5)
    return request.body


if __name__ == "__main__":
    Worker(sys.argv[1], echo, die, slow, capacity=4).run(lambda: print("started", flush=True))
