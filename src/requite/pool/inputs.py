"""What the engines of a pool's manager are fed by its shell.

Every effect that asks for something is answered: done, failed, or by `Disconnected`, which answers
all that RabbitMQ had been asked for. A `tag` names a delivery that has to be acknowledged; it must
be used once in the life of an engine, so it names the connection as well as RabbitMQ's number. A
`ticket` is the engine's own name for what it has asked for.

`Drain` and `Wake` are those of `requite.engine`.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any, NamedTuple

from requite.chronicle import NO_CALL

Tag = Hashable


class RunningGroup(NamedTuple):
    """A group as its driver sees it. `workers` is None where the driver does not count them.
    `stopping`: it was told to stop, and has not ended yet."""

    version: str = ""
    workers: int | None = None
    stopping: bool = False


# --- the connection -------------------------------------------------------------------------------
class Connected(NamedTuple):
    """The connection stands, the pool's exchanges and queues are there, and this manager is the
    one that consumes. Deliveries come from now on."""


class Disconnected(NamedTuple):
    """The connection has ended, or somebody else consumes: no tag means anything any more, and
    nobody knows what has become of what RabbitMQ had been asked for."""

    reason: str = ""


# --- deliveries -----------------------------------------------------------------------------------
class OrphanArrived(NamedTuple):
    """A request without a queue; `expires_s` is what it has left of its time, None: no limit.
    `call_id` is the call's, for journals."""

    tag: Tag
    key: str
    expires_s: float | None = None
    call_id: bytes = NO_CALL


class DeadLetterArrived(NamedTuple):
    """A request that left its queue otherwise than to a worker who served it. `headers` are as
    RabbitMQ wrote them; `reply_to` and `correlation_id` are those of the request, if it has any.
    `call_id` is the call's, for journals."""

    tag: Tag
    key: str
    headers: Mapping[str, Any]
    reply_to: str | None = None
    correlation_id: str | None = None
    call_id: bytes = NO_CALL


class ActivityArrived(NamedTuple):
    """A worker of a group says what it does; `event` as x-event has it. Nobody acknowledges
    reports: one that is lost is made up for by the next."""

    key: str
    event: str


# --- what has become of what was asked of RabbitMQ ------------------------------------------------
class QueuesListed(NamedTuple):
    """The request queues of the pool that there are, by key; True: bound to the exchange."""

    ticket: int
    queues: Mapping[str, bool]


class QueueListFailed(NamedTuple):
    """The management API does not answer, or refuses to."""

    ticket: int
    reason: str


class QueueDone(NamedTuple):
    """What was last asked for a key's queue is done."""

    key: str


class QueueAbsent(NamedTuple):
    """What was last asked for a key's queue cannot be, since there is no such queue."""

    key: str


class QueueFailed(NamedTuple):
    """What was last asked for a key's queue was refused, or took too long and may be done."""

    key: str
    reason: str


class QueueInspected(NamedTuple):
    """What is in a queue: messages that wait, messages that workers hold, and consumers."""

    key: str
    ready: int
    unacknowledged: int
    consumers: int


class Published(NamedTuple):
    """RabbitMQ has confirmed what was published. `routed` is False where it was returned, since
    no queue takes it."""

    ticket: int
    routed: bool = True


class PublishFailed(NamedTuple):
    """RabbitMQ has refused what was published, or did not confirm it in time."""

    ticket: int
    reason: str


# --- in place of queues, what a broker of MDP tells -----------------------------------------------
class ServiceCounts(NamedTuple):
    """What a broker knows of a group's service: requests that wait, those that workers hold, those
    that it has accepted since it first heard of the service, and how many workers there are."""

    queued: int
    in_progress: int
    accepted: int
    workers: int


class ServicesListed(NamedTuple):
    """The services of the pool that the broker knows, by key."""

    ticket: int
    services: Mapping[str, ServiceCounts]


class ServiceListFailed(NamedTuple):
    """The broker does not answer, or not with what it was asked for."""

    ticket: int
    reason: str


# --- what has become of what was asked of the driver ----------------------------------------------
class GroupsListed(NamedTuple):
    """The groups that run, by key; only those of this pool and instance."""

    ticket: int
    groups: Mapping[str, RunningGroup]


class GroupListFailed(NamedTuple):
    """The driver cannot say what runs."""

    ticket: int
    reason: str


class GroupDone(NamedTuple):
    """The driver has started or stopped the key's group as it was asked to, or has begun to."""

    key: str


class GroupFailed(NamedTuple):
    """The driver could not start or stop the key's group, or did not answer in time."""

    key: str
    reason: str


# --- operators ------------------------------------------------------------------------------------
class RequireGroup(NamedTuple):
    """An operator wants a group to be there, as if a request for it had come."""

    key: str


class ReleaseGroup(NamedTuple):
    """An operator wants a group to go once it has nothing left to do: it is unbound now."""

    key: str


class ScaleGroup(NamedTuple):
    """An operator wants so many workers in a group, until this manager ends."""

    key: str
    workers: int


class SetVersion(NamedTuple):
    """Groups are to run another version: those that do not are replaced, a few at a time."""

    version: str


class DrainPool(NamedTuple):
    """Take no more orphans and dead letters, finish what is in hand, then say `Stopped`. With
    `stop_groups` the groups are stopped as well, for there is no other manager to look after them;
    requests stay in their queues. With `hand_over` it is found out first whether there is one,
    which takes the groups over as they are."""

    stop_groups: bool = True
    hand_over: bool = False


class HandedOver(NamedTuple):
    """Whether another manager consumes in the place of the one that is leaving."""

    taken: bool
