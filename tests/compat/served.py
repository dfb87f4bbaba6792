"""Services of a worker of either version; their names and replies say which version runs.

`old` or `new` replies with the version and the body. `pay-old` or `pay-new`, if `STORE` names a
folder, are one idempotent service `pay`, whose replies are stored there. `fail` always fails.
"""

from __future__ import annotations

import os
from importlib.util import find_spec

from requite import Dedup, Request, service

VERSION = "old" if find_spec("requite.principal") is None else "new"


@service(VERSION)
async def which(request: Request) -> bytes:
    """Reply with the version of the worker, and the body."""
    return f"{VERSION}: {request.body.decode()}".encode()


@service("fail")
async def fail(_request: Request) -> bytes:
    """Fail."""
    raise ValueError("out of stock")


if "STORE" in os.environ:

    @service("pay", idempotent=Dedup(os.environ["STORE"]))
    async def pay(request: Request) -> bytes:
        """Reply with the version that has run the request, and the body."""
        return f"{VERSION} paid {request.body.decode()}".encode()
