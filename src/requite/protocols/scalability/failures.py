"""What a caller is told whose call ends without a reply.

The engine adds how often the request was sent, and with it whether it may have run.
"""

from __future__ import annotations

from requite.errors import CallError, CallTimeout, Cancelled, Overloaded, TransportError
from requite.protocols.scalability.calls import PendingCall


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


def pushback(channels: int) -> CallError:
    """None of so many channels takes anything, and the caller would not wait."""
    text = f"all {channels} peers push back" if channels else "there is no connection to anybody"
    return Overloaded(f"{text}; the request was not sent", may_have_executed=False)


# --- calls that were begun ------------------------------------------------------------------------
def expired(call: PendingCall, now: float) -> CallError:
    """The deadline has passed."""
    text = f"no reply within {now - call.submitted_at:.3f} s; the request was "
    if call.tries:
        text += f"sent {_count(call.tries)} and may have run"
    else:
        text += "never sent, for want of a peer that takes it, and has not run"
    return CallTimeout(text + _losses(call))


def silent(call: PendingCall) -> CallError:
    """The last try that is allowed has had its time."""
    tries = f"{_count(call.tries)} with {call.resend_s:g} s each"
    return CallTimeout(f"no reply to a request that was sent {tries}{_losses(call)}")


def lost(call: PendingCall, reason: str) -> CallError:
    """The channel that had the request is gone, and it must not be sent again."""
    why = f"was sent {_count(call.tries)}, the limit" if call.idempotent else "is not idempotent"
    return TransportError(
        f"the connection that had the request was lost: {reason}; it may have run, and {why}"
    )


def _losses(call: PendingCall) -> str:
    """Tell what became of the connections that had the request, since this may be why."""
    if not call.losses:
        return ""
    return f"; its connection was lost {_count(call.losses)}, last: {call.loss}"


def _count(n: int) -> str:
    return "once" if n == 1 else f"{n} times"
