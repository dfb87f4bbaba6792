"""What a caller is told whose call ends without a reply.

The engine adds how often the request was published; it may have run if that is not 0, unless it is
known that it has not.
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
    """RabbitMQ returned the request."""
    return NoService(f"no queue takes the request: {where} ({text})", may_have_executed=False)


def no_exchange(name: str, text: str) -> CallError:
    """The exchange of the pool is not there."""
    return NoService(
        f"there is no exchange {name!r}: no manager has set the pool up (RabbitMQ: {text})",
        may_have_executed=False,
    )


def not_taken() -> CallError:
    """RabbitMQ did not confirm the request, but said that it has not taken it."""
    return Overloaded(
        "RabbitMQ has not taken the request (basic.nack): the queue is full, or has failed",
        may_have_executed=False,
    )


def expired(call: PendingCall, now: float) -> CallError:
    """The deadline has passed."""
    text = f"no reply within {now - call.submitted_at:.3f} s; the request was "
    if call.tries:
        text += f"published {times(call.tries)} and may have run"
    else:
        text += "never published, and has not run"
    return CallTimeout(f"{text}; {call.loss}" if call.loss else text)


def silent(call: PendingCall, attempt_s: float) -> CallError:
    """The last try that is allowed has had its time."""
    tried = f"{times(call.tries)}, for {attempt_s:g} s each"
    return CallTimeout(f"no reply to a request that was published {tried}")


def lost(call: PendingCall, reason: str) -> CallError:
    """The way of the reply is gone, and the request must not be published again."""
    if call.index:
        why = "part of its reply had come"
    elif call.idempotent:
        why = f"was published {times(call.tries)}, the limit"
    else:
        why = "is not idempotent"
    return TransportError(f"its reply is lost: {reason}; the request may have run, and {why}")


def changed_worker() -> CallError:
    """Another worker begins the reply anew, of which the caller has had a part."""
    return WorkerLost("the worker was lost when part of its reply had come")


def malformed(reason: str) -> CallError:
    """What came as a reply cannot be read."""
    return RemoteFailure(f"the reply is malformed: {reason}")


def too_large() -> CallError:
    """The reply is larger than the caller allows."""
    return RemoteFailure("the reply is larger than the message_size_max of this client")
