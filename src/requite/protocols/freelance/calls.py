"""A call of a client."""

from __future__ import annotations

from typing import Any

from requite.core import calls
from requite.engine import Peer, Submit


class PendingCall(calls.PendingCall):
    """One call; `control` identifies it on the wire from its first attempt on.

    `peers` are the connections with an attempt in flight: at most one, except with the shotgun.
    `tried` are the servers that had it (model one), by place.
    """

    __slots__ = ("control", "peers", "tried")

    def __init__(self, asked: Submit, now: float) -> None:
        self.take_from(asked, now)
        self.control = b""
        self.peers: dict[Peer, None] = {}
        self.tried: dict[Any, None] = {}

    def facts(self) -> dict[str, Any]:
        """See `requite.core.calls.PendingCall.facts`."""
        return super().facts() | {"control": self.control}

    def __repr__(self) -> str:
        return f"<PendingCall {self.control!r}>"
