"""Handlers that workers of pools run in tests."""

from __future__ import annotations

import asyncio
import os

import requite


@requite.service("pool")
async def who(request: requite.Request) -> bytes:
    """Answer with the key and the id of the worker; obey a few words."""
    word = request.body.decode()
    if word == "die":
        os._exit(3)
    if word == "hang" and request.attempt == 1:
        await asyncio.Event().wait()
    if word.startswith("sleep "):
        await asyncio.sleep(float(word.removeprefix("sleep ")))
    return f"{os.environ['WORKER_KEY']} {os.environ['WORKER_ID']} {word}".encode()
