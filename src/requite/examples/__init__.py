"""Services to try requite with; each is one argument of `requite worker`.

    requite worker requite.examples:echo --connect mdp://127.0.0.1:5555
    requite call mdp://127.0.0.1:5555/echo "hello, world"

`echo` replies with the request's body; `slow` does so after the number of seconds in the body.
`count` streams the numbers up to the one in the body. `fail` always fails. `nearest` finds the
airports nearest to one (requires the extra `demo`; see `requite.examples.airports`);
`requite.examples.typed` has it as a typed service, which the demo calls.
`requite.examples.countries` has that one within one country, for a pool. `requite.examples.names`
is a name service for several servers without a broker.
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
_PROGRESS_EVERY_S: Final = 0.5


@service("echo")
async def echo(request: Request) -> bytes:
    """Reply with the request's body."""
    return request.body


@service("slow")
async def slow(request: Request) -> bytes:
    """Reply after the number of seconds in the body; report progress meanwhile."""
    left_s = float(request.body)
    while left_s > 0:
        await asyncio.sleep(min(left_s, _PROGRESS_EVERY_S))
        left_s -= _PROGRESS_EVERY_S
        request.progress()
    return request.body


@service("count")
async def count(request: Request) -> AsyncIterator[bytes]:
    """Stream the numbers from 1 to the one in the body, five per second."""
    for number in range(1, int(request.body) + 1):
        yield str(number).encode()
        await asyncio.sleep(_COUNT_EVERY_S)


@service("fail")
async def fail(request: Request) -> bytes:
    """Fail, with the body as the reason."""
    raise ValueError(request.body.decode(errors="replace") or "this service always fails")


def __getattr__(name: str) -> Any:
    """Import the airports on first use of `nearest`."""
    if name == "nearest":
        from requite.examples.airports import nearest

        return nearest
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
