"""What a caller is told whose call ends without a reply.

The engine adds how often the request was sent, and with it whether it may have run.
"""

from __future__ import annotations

from requite.core.calls import times
from requite.errors import CallError, CallTimeout, TransportError
from requite.protocols.pirate.calls import PendingCall


def expired(call: PendingCall, now: float) -> CallError:
    """The deadline has passed."""
    text = f"no reply within {now - call.submitted_at:.3f} s; the request was "
    if not call.tries:
        return CallTimeout(f"{text}never sent, for want of a connection, and has not run")
    last = f" (last: {call.loss})" if call.loss else ""
    return CallTimeout(f"{text}sent {times(call.tries)}{last} and may have run")


def silent(call: PendingCall, timeout_s: float | None, why: str) -> CallError:
    """The last try that is allowed has had its time: the Guide's "abandoning"."""
    each = f", with {timeout_s:g} s each time" if timeout_s else ""
    return CallTimeout(
        f"no reply to a request that was sent {times(call.tries)}{each}; {why}. The server seems"
        " to be offline, or slower than that"
    )


def lost(call: PendingCall, reason: str, why: str) -> CallError:
    """The connection that had the request is gone, and it must not be sent again."""
    return TransportError(f"the connection that had the request was lost: {reason}; {why}")
