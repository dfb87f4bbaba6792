"""The nouns of a client: a call in progress, and what can be seen of its tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from requite.engine import Peer, Submit


class PendingCall:
    """One call. `asked` is its submission; `control` names it on the wire from its first try on.

    `tries` counts how often it was sent, and `due_at` is when to look at it next. `peers` are the
    connections over which a try of it is out: one at most, except with the shotgun. `tried` are the
    places that had it (model one), and `loss` tells what became of the last try that was lost.
    `call_id`, `sent_at` and `is_told` (the journal has what happened so far) are for the journal.
    """

    __slots__ = (
        "asked",
        "call_id",
        "control",
        "due_at",
        "is_told",
        "loss",
        "peers",
        "sent_at",
        "submitted_at",
        "tried",
        "tries",
    )

    def __init__(self, asked: Submit, now: float) -> None:
        self.asked = asked
        self.submitted_at = self.sent_at = now
        self.due_at = asked.deadline
        self.control = b""
        self.tries = 0
        self.peers: dict[Peer, None] = {}
        self.tried: dict[Any, None] = {}
        self.loss = ""
        self.call_id = b""
        self.is_told = False

    @property
    def frames(self) -> Sequence[bytes]:
        """The body, of at least one frame."""
        return self.asked.frames or (b"",)

    def __repr__(self) -> str:
        return f"<PendingCall {self.control!r}>"


class ClientSnapshot(NamedTuple):
    """A client's tables, as counts.

    `connections`, of which `live` lead to servers that are thought to live, and `blocked` push
    back. Calls: `held` wait for a server, `sent` for their reply. Since the beginning: `resent`,
    and replies ignored because they were `malformed`, or `stray`: late, repeated, or asked for by
    nobody.
    """

    connections: int
    live: int
    blocked: int
    held: int
    sent: int
    resent: int
    malformed: int
    stray: int
    stopped: bool
