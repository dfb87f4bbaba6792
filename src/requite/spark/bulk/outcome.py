"""How a row of a bulk call ended."""

from __future__ import annotations

from typing import Any, NamedTuple


class Outcome(NamedTuple):
    """How a row ended: the added columns except the key.

    `reply` is the body, or the value that it was decoded to.
    """

    reply: Any
    status: str
    attempts: int
    elapsed_s: float
    may_have_executed: bool
    error: str | None
    error_data: str | None = None
