"""The nouns of a client: a call in progress, and what can be seen of its tables."""

from __future__ import annotations

from typing import Any

from requite.core import calls
from requite.engine import Peer, Submit


class PendingCall(calls.PendingCall):
    """One call; `control` names it on the wire from its first try on.

    `peers` are the connections over which a try of it is out: one at most, except with the shotgun.
    `tried` are the places that had it (model one).
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
