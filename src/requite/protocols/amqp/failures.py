"""Errors of calls that end without a reply.

The engine adds how often the request was published; if that is not 0, the request may have run,
unless the error says otherwise.
"""

from __future__ import annotations

from requite.core.calls import times
from requite.errors import (
    CallError,
    CallTimeout,
    NoService,
    Overloaded,
    RemoteFailure,
    TransportError,
    WorkerLost,
)
from requite.protocols.amqp.calls import PendingCall


def unroutable(where: str, text: str) -> CallError:
    """Return the error for a request that no queue takes."""
    return NoService(
        f"RabbitMQ could not route the request: {where} ({text})", may_have_executed=False
    )


def no_exchange(name: str, text: str) -> CallError:
    """Return the error for a pool whose exchange does not exist."""
    return NoService(
        f"there is no exchange {name!r}: no manager has set the pool up (RabbitMQ: {text})",
        may_have_executed=False,
    )


def not_taken() -> CallError:
    """Return the error for a request that RabbitMQ refused with `basic.nack`."""
    return Overloaded(
        "RabbitMQ rejected the request (basic.nack): the queue is full, or has failed",
        may_have_executed=False,
    )


def expired(call: PendingCall, now: float) -> CallError:
    """Return the error for a call whose deadline has passed."""
    text = f"no reply within {now - call.submitted_at:.3f} s; the request was "
    if call.tries:
        text += f"published {times(call.tries)} and may have run"
    else:
        text += "never published, and has not run"
    return CallTimeout(f"{text}; {call.loss}" if call.loss else text)


def silent(call: PendingCall, attempt_s: float) -> CallError:
    """Return the error for a call whose last attempt has timed out."""
    tried = f"{times(call.tries)}, for {attempt_s:g} s each"
    return CallTimeout(f"no reply to a request that was published {tried}")


def lost(call: PendingCall, reason: str) -> CallError:
    """Return the error for a call whose reply is lost and that must not be retried."""
    if call.index:
        why = "part of its reply had arrived"
    elif call.idempotent:
        why = f"was published {times(call.tries)}, the limit"
    else:
        why = "is not idempotent"
    return TransportError(f"the reply was lost: {reason}; the request may have run, and {why}")


def changed_worker() -> CallError:
    """Return the error for a call whose partial replies begin again from another worker."""
    return WorkerLost("the worker was lost after it had sent part of the reply")


def malformed(reason: str) -> CallError:
    """Return the error for a reply that cannot be decoded."""
    return RemoteFailure(f"the reply is malformed: {reason}")


def too_large() -> CallError:
    """Return the error for a reply that is larger than the caller allows."""
    return RemoteFailure("the reply is larger than the message_size_max of this client")
