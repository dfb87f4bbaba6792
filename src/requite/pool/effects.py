"""Effects of the engines of a pool's manager, performed by its shell.

Per key, at most one operation on its queue and one on its group are in progress. `Warn` and
`Stopped` are those of `requite.engine`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, NamedTuple

from requite.engine import Stopped, Warn
from requite.pool.inputs import Tag


class Destination(StrEnum):
    """Where a delivery is republished, with its key, body, properties and headers."""

    REQUESTS = "requests"  # the exchange of requests; an unroutable one returns as an orphan
    ORPHANS = "orphans"  # the end of the queue of orphans
    DEAD_LETTERS = "dead-letters"
    POISON = "poison"


# --- request queues: answered by QueueDone, QueueAbsent, QueueFailed ------------------------------
class ListQueues(NamedTuple):
    """List the request queues by the management API; `QueuesListed` follows."""

    ticket: int


class DeclareQueue(NamedTuple):
    """Declare the key's request queue, durable, with `arguments`."""

    key: str
    arguments: Mapping[str, Any]


class BindQueue(NamedTuple):
    """Bind the key's request queue to the exchange of requests."""

    key: str


class UnbindQueue(NamedTuple):
    """Unbind the key's request queue; succeeds if there is no binding."""

    key: str


class InspectQueue(NamedTuple):
    """Count the messages of the key's request queue; `QueueInspected` follows.

    Includes unacknowledged messages: a worker that stops consuming and dies leaves no other trace
    until RabbitMQ detects its dead connection. `QueueFailed` follows if they cannot be counted.
    """

    key: str


class DeleteQueue(NamedTuple):
    """Delete the key's request queue, unconditionally: RabbitMQ does not support conditions for
    quorum queues (540, NOT_IMPLEMENTED). The engine does so only for a queue that is unbound, was
    empty at its inspection, and has no consumer."""

    key: str


# --- in place of queues, at a broker of MDP -------------------------------------------------------
class ListServices(NamedTuple):
    """List the services of the pool at the broker; `ServicesListed` follows."""

    ticket: int


# --- groups: answered by GroupDone, GroupFailed ---------------------------------------------------
class ListGroups(NamedTuple):
    """List the running groups by the driver; `GroupsListed` follows."""

    ticket: int


class StartGroup(NamedTuple):
    """Start the key's group, or scale a running one to `workers` (None: the driver decides).
    Idempotent."""

    key: str
    version: str
    workers: int | None = None


class StopGroup(NamedTuple):
    """Stop the key's group: ask its workers to drain, if the carrier can, and have the driver stop
    them. They finish the requests that they hold. Idempotent."""

    key: str


# --- messages: answered by Published, PublishFailed -----------------------------------------------
class Forward(NamedTuple):
    """Republish a delivery, mandatory and confirmed. `expires_s` is its remaining time to live.
    A `reason` is sent in x-first-death-reason, and non-zero `attempts` in x-attempt."""

    ticket: int
    tag: Tag
    to: Destination
    expires_s: float | None = None
    reason: str = ""
    attempts: int = 0


class Answer(NamedTuple):
    """Publish a negative reply to the default exchange, mandatory and confirmed: x-status is
    `status`, x-attempt is `attempt`; correlation id and trace ("": none) are the request's."""

    ticket: int
    reply_to: str
    correlation_id: str | None
    status: str
    attempt: int = 1
    traceparent: str = ""


class Ack(NamedTuple):
    """Acknowledge a delivery."""

    tag: Tag


class StopConsuming(NamedTuple):
    """Cancel the consumers of orphans and dead letters; deliveries in progress are finished."""


class HandOver(NamedTuple):
    """Find out whether another manager has taken over, after `StopConsuming`; `HandedOver` follows.
    Only for a shell that sent `DrainPool` with `hand_over`."""


PoolEffect = (
    ListQueues
    | DeclareQueue
    | BindQueue
    | UnbindQueue
    | InspectQueue
    | DeleteQueue
    | ListServices
    | ListGroups
    | StartGroup
    | StopGroup
    | Forward
    | Answer
    | Ack
    | StopConsuming
    | HandOver
    | Warn
    | Stopped
)
