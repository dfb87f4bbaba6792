"""A client's calls, the input `Ask`, and its snapshot."""

from __future__ import annotations

from math import inf
from typing import Any, Final, NamedTuple

from requite.core import calls
from requite.engine import Peer
from requite.protocols.scalability.policy import RESEND_S_DEFAULT

RESTING: Final = object()  # in place of the channel of a call


class Ask(NamedTuple):
    """A call with its own settings; `Submit` is a call with those of the client's policy.

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
    """One call. `tag` begins its request from the first attempt on; empty before.

    `resend_s` is infinite if the call must not be resent by timer. `peer` is the channel of its
    current attempt; None: it waits for one; `RESTING`: it backs off. `losses` counts attempts whose
    channel was lost.
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
    """Table sizes of a client.

    `channels`: all; `blocked`: those with back-pressure. `held` calls wait for a channel, `sent`
    calls for their reply. Since the start: `resent` requests, and replies ignored as `malformed` or
    `stray` (late, duplicate or unexpected).
    """

    channels: int
    blocked: int
    held: int
    sent: int
    resent: int
    malformed: int
    stray: int
    stopped: bool
