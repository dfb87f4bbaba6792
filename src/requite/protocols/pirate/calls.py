"""The nouns of a Lazy Pirate: a call in progress, what can be seen, and what callers are told."""

from __future__ import annotations

from typing import NamedTuple

from requite.engine import Peer, Submit
from requite.errors import CallError, CallTimeout, Cancelled, Overloaded, TransportError


class PendingCall:
    """One call. `asked` is its submission, `size` the bytes of its body, `tries` how often it was
    sent, `due_at` when to look at it next.

    `peer` is the connection that its present try is on; None: it waits for one. `loss` tells why
    the last try came to nothing, if one did. `call_id`, `sent_at` (of the first try) and `is_told`
    are for the journal.
    """

    __slots__ = (
        "asked",
        "call_id",
        "due_at",
        "is_told",
        "loss",
        "peer",
        "sent_at",
        "size",
        "submitted_at",
        "tries",
    )

    def __init__(self, asked: Submit, now: float) -> None:
        self.asked = asked
        self.size = sum(map(len, asked.frames))
        self.submitted_at = now
        self.due_at = asked.deadline
        self.peer: Peer | None = None
        self.tries = 0
        self.loss = ""
        self.call_id = b""
        self.sent_at = now
        self.is_told = False


class ClientSnapshot(NamedTuple):
    """A client's tables, as counts. Connections are up, or `dialling`: asked for."""

    connections: int
    dialling: int
    held: int
    sent: int
    resent: int
    stray: int
    stopped: bool


# --- calls that are not begun ---------------------------------------------------------------------
def closed() -> CallError:
    """The client is closed."""
    return Cancelled("the client is closed", may_have_executed=False)


def too_late() -> CallError:
    """The deadline lies in the past."""
    text = "the deadline of the call passed before it was made"
    return CallTimeout(text, may_have_executed=False)


def no_slot(slots: int) -> CallError:
    """All slots are taken."""
    text = f"all {slots} slots of this client are taken by outstanding calls"
    return Overloaded(text, may_have_executed=False)


# --- calls that were begun ------------------------------------------------------------------------
def expired(call: PendingCall, now: float) -> CallError:
    """The deadline has passed."""
    text = f"no reply within {now - call.submitted_at:.3f} s; the request was "
    if not call.tries:
        return CallTimeout(f"{text}never sent, for want of a connection, and has not run")
    last = f" (last: {call.loss})" if call.loss else ""
    return CallTimeout(f"{text}sent {count(call.tries)}{last} and may have run")


def silent(call: PendingCall, timeout_s: float | None, why: str) -> CallError:
    """The last try that is allowed has had its time: the Guide's "abandoning"."""
    each = f", with {timeout_s:g} s each time" if timeout_s else ""
    return CallTimeout(
        f"no reply to a request that was sent {count(call.tries)}{each}; {why}. The server seems"
        " to be offline, or slower than that"
    )


def lost(call: PendingCall, reason: str, why: str) -> CallError:
    """The connection that had the request is gone, and it must not be sent again."""
    return TransportError(f"the connection that had the request was lost: {reason}; {why}")


def count(n: int) -> str:
    """Say how often."""
    return "once" if n == 1 else f"{n} times"
