"""Errors of calls that end without a reply.

The engine adds how often the request was sent, and so whether it may have run.
"""

from __future__ import annotations

from requite.core.calls import times
from requite.errors import CallError, CallTimeout, Overloaded, TransportError
from requite.protocols.scalability.calls import PendingCall


# --- refused calls --------------------------------------------------------------------------------
def pushback(channels: int) -> CallError:
    """Return the error for a call that may not wait, if none of the channels accepts requests."""
    text = (
        f"all {channels} peers exert back-pressure"
        if channels
        else "there is no connection to any peer"
    )
    return Overloaded(f"{text}; the request was not sent", may_have_executed=False)


# --- accepted calls -------------------------------------------------------------------------------
def expired(call: PendingCall, now: float) -> CallError:
    """Return the error for a call whose deadline has passed."""
    text = f"no reply within {now - call.submitted_at:.3f} s; the request was "
    if call.tries:
        text += f"sent {times(call.tries)} and may have run"
    else:
        text += "never sent, because no peer accepted it, and has not run"
    return CallTimeout(text + _losses(call))


def silent(call: PendingCall) -> CallError:
    """Return the error for a call whose last attempt has timed out."""
    tries = f"{times(call.tries)} with {call.resend_s:g} s each"
    return CallTimeout(f"no reply to a request that was sent {tries}{_losses(call)}")


def lost(call: PendingCall, reason: str) -> CallError:
    """Return the error for a call that was lost with its channel and must not be retried."""
    why = f"was sent {times(call.tries)}, the limit" if call.idempotent else "is not idempotent"
    return TransportError(
        f"the connection that had the request was lost: {reason}; it may have run, and {why}"
    )


def _losses(call: PendingCall) -> str:
    """Return a clause about lost connections, a possible cause of a timeout."""
    if not call.losses:
        return ""
    return f"; its connection was lost {times(call.losses)}, last: {call.loss}"
