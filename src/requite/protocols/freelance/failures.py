"""What a caller is told whose call ends without a reply.

The engine adds how often the request was sent, and with it whether it may have run.
"""

from __future__ import annotations

from requite.core.calls import times
from requite.errors import CallError, CallTimeout, TransportError
from requite.protocols.freelance.calls import PendingCall


def expired(call: PendingCall, now: float) -> CallError:
    """The deadline has passed."""
    text = f"no reply within {now - call.submitted_at:.3f} s; the request was "
    if call.tries:
        text += f"sent {times(call.tries)} and may have run"
    else:
        text += "never sent, for want of a server, and has not run"
    return CallTimeout(text + _loss(call))


def unanswered(call: PendingCall, why: str) -> CallError:
    """No server answers, and none is left to try."""
    return CallTimeout(f"no server answers: the request was sent {times(call.tries)}, {why}")


def lost(call: PendingCall, reason: str) -> CallError:
    """The server that had the request is gone, and it must not be sent again."""
    limit = f"was sent {times(call.tries)}, the limit"
    why = limit if call.idempotent else "is not idempotent"
    text = f"the server that had the request is gone: {reason}; it may have run, and {why}"
    return TransportError(text)


def _loss(call: PendingCall) -> str:
    return f"; its server was lost, the last time: {call.loss}" if call.loss else ""
