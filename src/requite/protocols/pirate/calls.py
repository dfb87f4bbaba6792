"""A call of a Lazy Pirate."""

from __future__ import annotations

from requite.core import calls
from requite.engine import Peer, Submit


class PendingCall(calls.PendingCall):
    """One call. `peer` is the connection of its current attempt; None: it waits for one."""

    __slots__ = ("peer",)

    def __init__(self, asked: Submit, now: float) -> None:
        self.take_from(asked, now)
        self.peer: Peer | None = None
