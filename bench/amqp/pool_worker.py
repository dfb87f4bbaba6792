"""A minimal pool worker, without further imports."""

from __future__ import annotations

import requite


@requite.service("pool")
async def echo(request: requite.Request) -> bytes:
    """Answer with the request's body."""
    return request.body
