"""Inputs of the engines of a pool's manager, fed by its shell.

Every operation has a result: done, failed, or `Disconnected`, which ends all operations on
RabbitMQ. A `tag` identifies a delivery to acknowledge; it is unique in the life of an engine, so it
contains the connection and RabbitMQ's delivery tag. A `ticket` identifies an operation of the
engine.

`Drain` and `Wake` are those of `requite.engine`.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any, NamedTuple

from requite.chronicle import NO_CALL

Tag = Hashable


class RunningGroup(NamedTuple):
    """A group, as its driver lists it. `workers` is None if the driver does not count them;
    `stopping`: some workers of a stopped group still run."""

    version: str = ""
    workers: int | None = None
    stopping: bool = False


# --- the connection -------------------------------------------------------------------------------
class Connected(NamedTuple):
    """The manager is connected and active: the pool's exchanges and queues are declared, and it
    consumes. Deliveries follow."""


class Disconnected(NamedTuple):
    """The connection was lost, or another manager is active: all tags are invalid, and the results
    of pending operations are unknown."""

    reason: str = ""


# --- deliveries -----------------------------------------------------------------------------------
class OrphanArrived(NamedTuple):
    """A request without a queue. `expires_s` is its remaining time to live (None: no limit);
    `call_id` is the call's, for journals."""

    tag: Tag
    key: str
    expires_s: float | None = None
    call_id: bytes = NO_CALL


class DeadLetterArrived(NamedTuple):
    """A request that left its queue unanswered. `headers` are those of RabbitMQ; `reply_to` and
    `correlation_id` are the request's, if it has any; `call_id` is the call's, for journals."""

    tag: Tag
    key: str
    headers: Mapping[str, Any]
    reply_to: str | None = None
    correlation_id: str | None = None
    call_id: bytes = NO_CALL


class ActivityArrived(NamedTuple):
    """An activity report of a worker; `event` is its x-event. Reports are not acknowledged: the
    next one makes up for a lost one."""

    key: str
    event: str


# --- what has become of what was asked of RabbitMQ ------------------------------------------------
class QueuesListed(NamedTuple):
    """The existing request queues of the pool, by key; True: bound to the exchange."""

    ticket: int
    queues: Mapping[str, bool]


class QueueListFailed(NamedTuple):
    """The management API does not answer, or refuses the request."""

    ticket: int
    reason: str


class QueueDone(NamedTuple):
    """The last operation on a key's queue succeeded."""

    key: str


class QueueAbsent(NamedTuple):
    """The last operation on a key's queue failed: there is no such queue."""

    key: str


class QueueFailed(NamedTuple):
    """The last operation on a key's queue was refused, or timed out and may have succeeded."""

    key: str
    reason: str


class QueueInspected(NamedTuple):
    """Counts of a queue: ready messages, unacknowledged messages, and consumers."""

    key: str
    ready: int
    unacknowledged: int
    consumers: int


class Published(NamedTuple):
    """RabbitMQ confirmed a publication. `routed` is False if it was returned as unroutable."""

    ticket: int
    routed: bool = True


class PublishFailed(NamedTuple):
    """RabbitMQ refused a publication, or did not confirm it in time."""

    ticket: int
    reason: str


# --- in place of queues, at a broker of MDP -------------------------------------------------------
class ServiceCounts(NamedTuple):
    """A broker's counts for a group's service: requests that wait, requests in progress, requests
    accepted since the broker has known the service, and workers."""

    queued: int
    in_progress: int
    accepted: int
    workers: int


class ServicesListed(NamedTuple):
    """The services of the pool at the broker, by key."""

    ticket: int
    services: Mapping[str, ServiceCounts]


class ServiceListFailed(NamedTuple):
    """The broker does not answer, or its answer is malformed."""

    ticket: int
    reason: str


# --- what has become of what was asked of the driver ----------------------------------------------
class GroupsListed(NamedTuple):
    """The running groups of this pool and instance, by key."""

    ticket: int
    groups: Mapping[str, RunningGroup]


class GroupListFailed(NamedTuple):
    """The driver could not list the groups."""

    ticket: int
    reason: str


class GroupDone(NamedTuple):
    """The driver has started or stopped the key's group, or has begun to."""

    key: str


class GroupFailed(NamedTuple):
    """The driver could not start or stop the key's group, or did not answer in time."""

    key: str
    reason: str


# --- operators ------------------------------------------------------------------------------------
class RequireGroup(NamedTuple):
    """An operator requires a group, as a request for its key does."""

    key: str


class ReleaseGroup(NamedTuple):
    """An operator releases a group: it is unbound now, and stopped when it is idle."""

    key: str


class ScaleGroup(NamedTuple):
    """An operator scales a group to `workers`, until this manager ends."""

    key: str
    workers: int


class SetVersion(NamedTuple):
    """Groups run another version from now on: the others are replaced, a few at a time."""

    version: str


class DrainPool(NamedTuple):
    """Stop consuming orphans and dead letters, finish those in progress, then emit `Stopped`.

    With `stop_groups` the groups are stopped, too; requests stay in their queues. With `hand_over`
    the groups keep running if another manager takes over.
    """

    stop_groups: bool = True
    hand_over: bool = False


class HandedOver(NamedTuple):
    """Whether another manager has taken over."""

    taken: bool
