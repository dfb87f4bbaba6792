"""Clients: `Client` for threads, `AsyncClient` for an event loop; both have the same methods.

Each is imported on first use, so the blocking client does not load asyncio.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from requite.client.aio import AsyncClient
    from requite.client.sync import Call, Client

__all__ = ["AsyncClient", "Call", "Client"]


def __getattr__(name: str) -> Any:
    if name == "AsyncClient":
        from requite.client import aio

        return aio.AsyncClient
    if name in ("Call", "Client"):
        from requite.client import sync

        return getattr(sync, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
