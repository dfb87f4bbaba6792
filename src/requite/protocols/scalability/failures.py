"""What a caller is told whose call ends without a reply.

The engine adds how often the request was sent, and with it whether it may have run.
"""

from __future__ import annotations

from requite.core.calls import times
from requite.errors import CallError, CallTimeout, Overloaded, TransportError
from requite.protocols.scalability.calls import PendingCall


# --- calls that are not begun ---------------------------------------------------------------------
def pushback(channels: int) -> CallError:
    """None of so many channels takes anything, and the caller would not wait."""
    text = f"all {channels} peers push back" if channels else "there is no connection to anybody"
    return Overloaded(f"{text}; the request was not sent", may_have_executed=False)


# --- calls that were begun ------------------------------------------------------------------------
def expired(call: PendingCall, now: float) -> CallError:
    """The deadline has passed."""
    text = f"no reply within {now - call.submitted_at:.3f} s; the request was "
    if call.tries:
        text += f"sent {times(call.tries)} and may have run"
    else:
        text += "never sent, for want of a peer that takes it, and has not run"
    return CallTimeout(text + _losses(call))


def silent(call: PendingCall) -> CallError:
    """The last try that is allowed has had its time."""
    tries = f"{times(call.tries)} with {call.resend_s:g} s each"
    return CallTimeout(f"no reply to a request that was sent {tries}{_losses(call)}")


def lost(call: PendingCall, reason: str) -> CallError:
    """The channel that had the request is gone, and it must not be sent again."""
    why = f"was sent {times(call.tries)}, the limit" if call.idempotent else "is not idempotent"
    return TransportError(
        f"the connection that had the request was lost: {reason}; it may have run, and {why}"
    )


def _losses(call: PendingCall) -> str:
    """Tell what became of the connections that had the request, since this may be why."""
    if not call.losses:
        return ""
    return f"; its connection was lost {times(call.losses)}, last: {call.loss}"
