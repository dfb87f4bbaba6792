"""Middleware of both services: a line of log per call."""

from __future__ import annotations

import logging
from typing import Any

import requite

log = logging.getLogger("shop")
log.setLevel(logging.INFO)


async def logged(message: Any, context: requite.Context, proceed: requite.Proceed) -> Any:
    """Log how each call ended."""
    call = f"{context.service}.{context.method} {message}"
    try:
        reply = await proceed(message)
    except Exception as error:
        log.warning("%s: %r", call, error)
        raise
    log.info("%s: %s", call, reply)
    return reply
