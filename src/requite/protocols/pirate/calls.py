"""The nouns of a Lazy Pirate: a call in progress, and what can be seen of its tables."""

from __future__ import annotations

from requite.core import calls
from requite.engine import Peer, Submit


class PendingCall(calls.PendingCall):
    """One call. `peer` is the connection that its present try is on; None: it waits for one."""

    __slots__ = ("peer",)

    def __init__(self, asked: Submit, now: float) -> None:
        self.take_from(asked, now)
        self.peer: Peer | None = None
