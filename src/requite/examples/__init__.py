"""Services to try requite with; each is one argument of `requite worker`.

    requite worker requite.examples:echo --connect mdp://127.0.0.1:5555
    requite call mdp://127.0.0.1:5555/echo "hello, world"

`echo` answers with what it gets, `slow` does so after as many seconds as the request says, `count`
streams the numbers up to the one in the request, `fail` always refuses, and `nearest` finds the
airports around one (it needs the extra `demo`; see `requite.examples.airports`). The same within
one country, for a pool, is in `requite.examples.countries`; a name service for several servers
without a broker is in `requite.examples.names`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Final

from requite.request import Request
from requite.worker import service

if TYPE_CHECKING:
    from requite.examples.airports import nearest as nearest

__all__ = ["count", "echo", "fail", "nearest", "slow"]

_COUNT_EVERY_S: Final = 0.2
_VOUCH_EVERY_S: Final = 0.5


@service("echo")
async def echo(request: Request) -> bytes:
    """Answer with the request's own body."""
    return request.body


@service("slow")
async def slow(request: Request) -> bytes:
    """Answer after as many seconds as the body says; vouch for the handler meanwhile."""
    left_s = float(request.body)
    while left_s > 0:
        await asyncio.sleep(min(left_s, _VOUCH_EVERY_S))
        left_s -= _VOUCH_EVERY_S
        request.progress()
    return request.body


@service("count")
async def count(request: Request) -> AsyncIterator[bytes]:
    """Stream the numbers from 1 to the one in the body, five a second."""
    for number in range(1, int(request.body) + 1):
        yield str(number).encode()
        await asyncio.sleep(_COUNT_EVERY_S)


@service("fail")
async def fail(request: Request) -> bytes:
    """Refuse, with the body as the reason."""
    raise ValueError(request.body.decode(errors="replace") or "this service always fails")


def __getattr__(name: str) -> Any:
    """Load the airports only for those who ask for `nearest`."""
    if name == "nearest":
        from requite.examples.airports import nearest

        return nearest
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
