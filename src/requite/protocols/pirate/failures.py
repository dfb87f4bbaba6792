"""Errors of calls that end without a reply.

The engine adds how often the request was sent, and so whether it may have run.
"""

from __future__ import annotations

from requite.core.calls import times
from requite.errors import CallError, CallTimeout, TransportError
from requite.protocols.pirate.calls import PendingCall


def expired(call: PendingCall, now: float) -> CallError:
    """Return the error for a call whose deadline has passed."""
    text = f"no reply within {now - call.submitted_at:.3f} s; the request was "
    if not call.tries:
        return CallTimeout(f"{text}never sent, because there was no connection, and has not run")
    last = f" (last: {call.loss})" if call.loss else ""
    return CallTimeout(f"{text}sent {times(call.tries)}{last} and may have run")


def silent(call: PendingCall, timeout_s: float | None, why: str) -> CallError:
    """Return the error for a call whose last attempt has timed out: the Guide's "abandoning"."""
    each = f", with {timeout_s:g} s each time" if timeout_s else ""
    return CallTimeout(
        f"no reply to a request that was sent {times(call.tries)}{each}; {why}. The server seems"
        " to be offline, or slower than that"
    )


def lost(call: PendingCall, reason: str, why: str) -> CallError:
    """Return the error for a call that was lost with its connection and must not be retried."""
    return TransportError(f"the connection of the request was lost: {reason}; {why}")
