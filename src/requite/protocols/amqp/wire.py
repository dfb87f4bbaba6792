"""Properties and headers of RPC messages over AMQP.

    request    correlation-id  slot and sequence number of the call, 16 hex digits
               reply-to        the queue for the reply; without it, no reply is sent
               message-id      the call id, the same for all attempts (32 hex digits)
               expiration      time until the deadline, whole milliseconds
               x-idempotency-key, traceparent
    reply      correlation-id  copied from the request
               x-status        `ok`, `error`, or why the request was dead-lettered
               x-partial       number of a partial reply; absent in the final reply
               x-partials      in the final reply: the number of partial replies, if any
               x-run           number of the worker's run that partial and final replies belong to
               x-worker-id     the answering worker; x-attempt: number of this delivery
               traceparent     copied from the request
    activity   x-event, x-worker-id, and traceparent of a received request; the routing key is the
               worker's key
    control    x-control       `cancel` (correlation-id and message-id name the request), or
               `drain` (x-key and x-worker-id select workers; an absent header selects all)

Sources: "RPC over AMQP", sections "The slotted client" and "Negative responses"; "Scalable async
RPC", sections "Client protocol", "Worker protocol" and "Worker activity reports"; W3C Trace Context
for `traceparent`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final

from requite.errors import (
    CallError,
    CallTimeout,
    Overloaded,
    Poisoned,
    RemoteFailure,
    RemoteViolation,
)
from requite.protocols.amqp.properties import Properties

STATUS: Final = "x-status"
EVENT: Final = "x-event"
WORKER_ID: Final = "x-worker-id"
ATTEMPT: Final = "x-attempt"
PARTIAL: Final = "x-partial"
PARTIALS: Final = "x-partials"
RUN: Final = "x-run"
CONTROL: Final = "x-control"
KEY: Final = "x-key"
TRACEPARENT: Final = "traceparent"
IDEMPOTENCY_KEY: Final = "x-idempotency-key"

ACQUIRED_COUNT: Final = "x-acquired-count"
"""Set by quorum queues of RabbitMQ 4.3 and later: number of earlier deliveries."""

DELIVERY_COUNT: Final = "x-delivery-count"
"""Set by quorum queues: how often a consumer returned the message."""
FIRST_DEATH_REASON: Final = "x-first-death-reason"
"""Set by RabbitMQ on dead letters: `expired`, `rejected`, `maxlen` or `delivery_limit`."""


class ReplyStatus(StrEnum):
    """Values of `x-status`: `ok`, `error`, or the reason for dead-lettering."""

    OK = "ok"
    ERROR = "error"
    EXPIRED = "expired"
    REJECTED = "rejected"
    MAXLEN = "maxlen"
    DELIVERY_LIMIT = "delivery_limit"


class Event(StrEnum):
    """Values of `x-event` in activity reports."""

    STARTED = "started"
    READY = "ready"
    REQUEST_RECEIVED = "request-received"
    STOPPING = "stopping"


class Control(StrEnum):
    """Values of `x-control` in control messages."""

    CANCEL = "cancel"
    DRAIN = "drain"


# The error per status, and whether a handler may have started.
_ERRORS: Final[dict[ReplyStatus, tuple[type[CallError], bool, str]]] = {
    ReplyStatus.ERROR: (RemoteFailure, True, "the worker refused or failed"),
    ReplyStatus.EXPIRED: (CallTimeout, True, "the request expired in its queue"),
    ReplyStatus.REJECTED: (RemoteFailure, True, "a worker rejected the request"),
    ReplyStatus.MAXLEN: (Overloaded, True, "the request queue is full"),
    ReplyStatus.DELIVERY_LIMIT: (Poisoned, True, "every worker that had the request was lost"),
}


def correlation_id(request_id: int) -> str:
    """Return slot and sequence number (`requite.core.slots`) as 16 hex digits."""
    return f"{request_id:016x}"


def request_id_of(text: str) -> int:
    """Decode the result of `correlation_id`; return -1 for anything else."""
    if len(text) != 16:
        return -1
    try:
        request_id = int(text, 16)
    except ValueError:
        return -1
    return request_id if correlation_id(request_id) == text else -1


def status_error(status: Any, body: bytes, attempts: int) -> CallError | None:
    """Return the error for the `x-status` of a final reply; None for `ok`.

    A reply without a status comes from a servant without statuses ("RPC over AMQP") and counts as
    `ok`. An unknown status becomes a `RemoteFailure` that quotes it.
    """
    if status is None or status == ReplyStatus.OK:
        return None
    text = body.decode(errors="replace")
    try:
        kind, may_have_executed, meaning = _ERRORS[ReplyStatus(status)]
    except ValueError:
        said = f"the reply has the unknown status {status!r}"
        return RemoteFailure(f"{said}: {text}" if text else said, attempts=attempts)
    return kind(text or meaning, may_have_executed=may_have_executed, attempts=attempts)


def concerns(headers: Mapping[str, Any], key: str, worker_id: str) -> bool:
    """Return whether a control message applies to a worker; an absent header matches all."""
    return bool(headers.get(KEY, key) == key and headers.get(WORKER_ID, worker_id) == worker_id)


def traceparent_of(headers: Mapping[str, Any]) -> str:
    """Return the `traceparent` header of a request; "" for none."""
    parent = headers.get(TRACEPARENT)
    return parent if isinstance(parent, str) else ""


def partial_index(headers: Mapping[str, Any]) -> int | None:
    """Return the number of a partial reply; None for a final reply.

    Raises `RemoteViolation` for an invalid header.
    """
    index = headers.get(PARTIAL)
    if index is None or index is False:
        return None
    if isinstance(index, int) and not isinstance(index, bool) and index >= 0:
        return index
    raise RemoteViolation(f"the header {PARTIAL} is {index!r}, not a number")


def attempt_of(properties: Properties, redelivered: bool) -> int:
    """Return the number of this delivery of a request, from 1.

    Quorum queues count deliveries. Classic queues only flag a redelivery, which counts as 2.
    """
    count = _count(properties, DELIVERY_COUNT)
    if count >= 0:
        return count + 1
    return 2 if redelivered else 1


def is_uncounted(properties: Properties) -> bool:
    """Return whether a delivery of a request is missing in the count for the limit of its queue.

    RabbitMQ 4.3 counts neither a delivery that exceeded `consumer_timeout` nor a `basic.nack`. A
    `basic.reject` raises both counts, so each reject makes up for one uncounted delivery.
    """
    counted = max(0, _count(properties, DELIVERY_COUNT))
    return _count(properties, ACQUIRED_COUNT) - counted > counted


def _count(properties: Properties, name: str) -> int:
    count = properties.headers.get(name)
    if isinstance(count, int) and not isinstance(count, bool) and count >= 0:
        return count
    return -1


def expiration(remaining_s: float) -> str:
    """Encode the time until the deadline as the `expiration` property; "" for no limit."""
    if remaining_s > _EXPIRATION_S_MAX:
        return ""
    return str(max(1, int(remaining_s * 1000)))


def remaining_s(properties: Properties) -> float | None:
    """Return the `expiration` of a request in seconds; None if absent.

    Raises `RemoteViolation` for a value that is not a number.
    """
    text = properties.expiration
    if not text:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) <= 10):
        raise RemoteViolation(
            f"the property expiration is {text[:20]!r}, not a number of milliseconds"
        )
    return int(text) / 1000


# RabbitMQ takes 32 bits of milliseconds.
_EXPIRATION_S_MAX: Final = 0xFFFF_FFFF / 1000
