"""What a caller is told whose call ends without a reply.

The engine adds how often the request was sent, and with it whether it may have run.
"""

from __future__ import annotations

from requite.errors import CallError, CallTimeout, Cancelled, Overloaded, TransportError
from requite.protocols.freelance.calls import PendingCall


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
    if call.tries:
        text += f"sent {count(call.tries)} and may have run"
    else:
        text += "never sent, for want of a server, and has not run"
    return CallTimeout(text + _loss(call))


def unanswered(call: PendingCall, why: str) -> CallError:
    """No server answers, and none is left to try."""
    return CallTimeout(f"no server answers: the request was sent {count(call.tries)}, {why}")


def lost(call: PendingCall, reason: str) -> CallError:
    """The server that had the request is gone, and it must not be sent again."""
    limit = f"was sent {count(call.tries)}, the limit"
    why = limit if call.asked.idempotent else "is not idempotent"
    text = f"the server that had the request is gone: {reason}; it may have run, and {why}"
    return TransportError(text)


def _loss(call: PendingCall) -> str:
    return f"; its server was lost, the last time: {call.loss}" if call.loss else ""


def count(n: int) -> str:
    """Return a number of times in words."""
    return "once" if n == 1 else f"{n} times"
