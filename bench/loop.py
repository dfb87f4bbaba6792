"""The event loop of every asyncio program in the bench: uvloop where installed, else asyncio's."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

try:
    import uvloop
except ImportError:  # no uvloop on this platform
    uvloop = None


def run(main: Coroutine[Any, Any, Any]) -> None:
    """Run `main` to its end."""
    if uvloop is None:
        asyncio.run(main)
    else:
        uvloop.run(main)
