"""A fixture that runs a scenario on each event loop and checks for leaked file descriptors."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from requite.shell.aio import run

Run = Callable[[Coroutine[Any, Any, None]], None]


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"])
def on_loop(request: pytest.FixtureRequest) -> Run:
    def on_loop(scenario: Coroutine[Any, Any, None]) -> None:
        async def limited() -> None:
            async with asyncio.timeout(30):
                await scenario

        # uvloop keeps descriptors of its first loop open.
        run(asyncio.sleep(0), use_uvloop=request.param)
        before = _descriptors()
        run(limited(), use_uvloop=request.param)
        assert _descriptors() == before

    return on_loop


def _descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))
