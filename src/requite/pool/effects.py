"""What the engines of a pool's manager ask of its shell.

For one key there is never more than one thing under way with its queue, and one with its group.
`Warn` and `Stopped` are those of `requite.engine`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, NamedTuple

from requite.engine import Stopped, Warn
from requite.pool.inputs import Tag


class Destination(StrEnum):
    """Where a delivery is published anew, with its key, body, properties and headers."""

    REQUESTS = "requests"  # the exchange of requests; what is not bound comes back as an orphan
    ORPHANS = "orphans"  # the end of the queue of orphans
    DEAD_LETTERS = "dead-letters"
    POISON = "poison"


# --- request queues: answered by QueueDone, QueueAbsent, QueueFailed ------------------------------
class ListQueues(NamedTuple):
    """Ask the management API which request queues there are; `QueuesListed` follows."""

    ticket: int


class DeclareQueue(NamedTuple):
    """Declare the key's request queue, durable, with these arguments."""

    key: str
    arguments: Mapping[str, Any]


class BindQueue(NamedTuple):
    """Bind the key's request queue to the exchange of requests."""

    key: str


class UnbindQueue(NamedTuple):
    """Take that binding away. It is done, too, when there was none."""

    key: str


class InspectQueue(NamedTuple):
    """See what is in the key's request queue; `QueueInspected` follows.

    What consumers hold counts as well: a worker that stops consuming and dies leaves no other trace
    until its connection is found to be dead. Where that cannot be told, `QueueFailed` does.
    """

    key: str


class DeleteQueue(NamedTuple):
    """Delete the key's request queue, unconditionally: RabbitMQ does not know conditions for
    quorum queues (540, NOT_IMPLEMENTED). Asked only for a queue that has been unbound for a while,
    was empty when it was inspected, and has no consumer."""

    key: str


# --- in place of queues, at a broker of MDP -------------------------------------------------------
class ListServices(NamedTuple):
    """Ask the broker for the services of the pool; `ServicesListed` follows."""

    ticket: int


# --- groups: answered by GroupDone, GroupFailed ---------------------------------------------------
class ListGroups(NamedTuple):
    """Ask the driver which groups run; `GroupsListed` follows."""

    ticket: int


class StartGroup(NamedTuple):
    """Start the key's group, or change what runs to so many workers. Starting twice does nothing.
    With `workers` None the driver decides."""

    key: str
    version: str
    workers: int | None = None


class StopGroup(NamedTuple):
    """Stop the key's group: its workers are told to drain, where there is a way to tell them, and
    the driver ends them; they finish what they hold. Stopping twice does nothing."""

    key: str


# --- messages: answered by Published, PublishFailed -----------------------------------------------
class Forward(NamedTuple):
    """Publish a delivery anew, mandatory and confirmed. `expires_s`: what it has left of its time.
    `reason` is told in x-first-death-reason, where it is not empty, and `attempts`, where they are
    known, in x-attempt."""

    ticket: int
    tag: Tag
    to: Destination
    expires_s: float | None = None
    reason: str = ""
    attempts: int = 0


class Answer(NamedTuple):
    """Publish a negative reply to the default exchange, mandatory and confirmed: x-status is
    `status`, x-attempt is `attempt`, correlation id and trace ("": none) are those of the
    request."""

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
    """Cancel the consumers of orphans and dead letters; what is in hand will be acknowledged."""


class HandOver(NamedTuple):
    """See whether another manager consumes in this one's place, after `StopConsuming`;
    `HandedOver` follows. Asked only of a shell that has told `DrainPool` so."""


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
