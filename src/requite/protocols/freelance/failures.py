"""Errors of calls that end without a reply.

The engine adds how often the request was sent, and so whether it may have run.
"""

from __future__ import annotations

from requite.core.calls import times
from requite.errors import CallError, CallTimeout, TransportError
from requite.protocols.freelance.calls import PendingCall


def expired(call: PendingCall, now: float) -> CallError:
    """Return the error for a call whose deadline has passed."""
    text = f"no reply within {now - call.submitted_at:.3f} s; the request was "
    if call.tries:
        text += f"sent {times(call.tries)} and may have run"
    else:
        text += "never sent, because no server was available, and has not run"
    return CallTimeout(text + _loss(call))


def unanswered(call: PendingCall, why: str) -> CallError:
    """Return the error for a call that no server has answered."""
    return CallTimeout(f"no server replied: the request was sent {times(call.tries)}, {why}")


def lost(call: PendingCall, reason: str) -> CallError:
    """Return the error for a call that was lost with its server and must not be retried."""
    limit = f"was sent {times(call.tries)}, the limit"
    why = limit if call.idempotent else "is not idempotent"
    text = f"the server with the request was lost: {reason}; it may have run, and {why}"
    return TransportError(text)


def _loss(call: PendingCall) -> str:
    return f"; the last server was lost: {call.loss}" if call.loss else ""
