"""The event loop of all asyncio programs of the benchmarks: uvloop if installed, else asyncio's."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

try:
    import uvloop
except ImportError:  # no uvloop on this platform
    uvloop = None


def run(main: Coroutine[Any, Any, Any]) -> None:
    """Run a coroutine to completion."""
    if uvloop is None:
        asyncio.run(main)
    else:
        uvloop.run(main)
