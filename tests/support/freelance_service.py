"""A service for the tests that kill servers; each reply has the id of the process."""

from __future__ import annotations

import asyncio
import os

import requite


@requite.service("tell")
async def tell(request: requite.Request) -> bytes:
    """Return the process id and the body; `nap` takes 0.5 s, `wait` gets no reply."""
    if request.body == b"wait":
        print("waiting", flush=True)
        await asyncio.Event().wait()
    if request.body == b"nap":
        print("napping", flush=True)
        await asyncio.sleep(0.5)
    return b"%d %s" % (os.getpid(), request.body)
