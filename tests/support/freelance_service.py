"""A service for the tests that kill servers: its replies say which process they come from."""

from __future__ import annotations

import asyncio
import os

import requite


@requite.service("tell")
async def tell(request: requite.Request) -> bytes:
    """Answer with the number of the process and the body; `wait` is answered never."""
    if request.body == b"wait":
        print("waiting", flush=True)
        await asyncio.Event().wait()
    if request.body == b"nap":
        print("napping", flush=True)
        await asyncio.sleep(0.5)
    return b"%d %s" % (os.getpid(), request.body)
