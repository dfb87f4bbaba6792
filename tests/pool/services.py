"""Service handlers that pool workers run in tests."""

from __future__ import annotations

import asyncio
import os

from tests.typed.shop import Shop

import requite

orders = Shop().service


@requite.service("pool")
async def identify(request: requite.Request) -> bytes:
    """Return the key and the id of the worker, and the body.

    The body `die` makes the worker exit, `hang` blocks the first attempt for ever, and `sleep N`
    delays the reply by N seconds.
    """
    word = request.body.decode()
    if word == "die":
        os._exit(3)
    if word == "hang" and request.attempt == 1:
        await asyncio.Event().wait()
    if word.startswith("sleep "):
        await asyncio.sleep(float(word.removeprefix("sleep ")))
    return f"{os.environ['WORKER_KEY']} {os.environ['WORKER_ID']} {word}".encode()
