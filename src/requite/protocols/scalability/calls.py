"""The nouns of a client: a call in progress, one with settings of its own, and what can be seen."""

from __future__ import annotations

from math import inf
from typing import Any, Final, NamedTuple

from requite.core import calls
from requite.engine import Peer
from requite.protocols.scalability.policy import RESEND_S_DEFAULT

RESTING: Final = object()  # in place of the channel of a call


class Ask(NamedTuple):
    """A call with settings of its own; `Submit` is one with those of the client's policy.

    `deadline` is an instant. `resend_s` and `hold` are as in `ReqPolicy`.
    """

    token: Any
    body: bytes
    deadline: float = inf
    idempotent: bool = True
    resend_s: float | None = RESEND_S_DEFAULT
    hold: bool = True
    service: str = ""


class PendingCall(calls.PendingCall):
    """One call. `tag` is what its request begins with, from its first try on; empty before.

    `resend_s` is infinite where no timer may send it again. `peer` is the channel that its present
    try took; None: it waits for one; `RESTING`: it rests. `losses` counts the tries whose channel
    was lost.
    """

    __slots__ = ("losses", "peer", "resend_s", "tag")

    tag: bytes
    resend_s: float
    peer: Peer | None
    losses: int

    def facts(self) -> dict[str, Any]:
        """See `requite.core.calls.PendingCall.facts`."""
        return super().facts() | {"service": self.service}


class ReqSnapshot(NamedTuple):
    """A client's tables, as counts.

    `channels`, and how many of them are `blocked`: push back. Calls: `held` wait for a channel,
    `sent` for their reply. Since the beginning: `resent`, and replies ignored because they were
    `malformed`, or `stray`: late, repeated, or asked for by nobody.
    """

    channels: int
    blocked: int
    held: int
    sent: int
    resent: int
    malformed: int
    stray: int
    stopped: bool
