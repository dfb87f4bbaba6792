"""The numbers of a broker, for metrics and dashboards.

They come from the counters and tables that the engine has anyway, and cost something only when
somebody asks: some 5 µs per service. So a caller with many services reads them in portions, and
lets the event loop turn in between: `take_census` once, then `traffic_of` for each service.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from math import inf
from typing import Final, NamedTuple, TypeAlias

from requite.core.durations import BOUNDS_S
from requite.protocols.majordomo.parties import (
    FRAME_SIZE,
    REQUEST_SIZE,
    Client,
    Counters,
    Load,
    Party,
    PendingRequest,
    Service,
    Worker,
)
from requite.request import Status

Tally: TypeAlias = tuple[int, ...]
"""Counters of one or several services: at `ACCEPTED`, `REDELIVERED`, `RECEIVED` (bytes of bodies;
each frame of a body after its first counts 48 more), `SENT` (bytes of replies) and `TOOK_NS` (the
sum of the durations in nanoseconds); in `ENDED` by final status, in `TOOK` the replies by duration.
All are whole numbers: a sum of seconds without one of its terms may become less by rounding."""

ACCEPTED: Final = 0
REDELIVERED: Final = 1
RECEIVED: Final = 2
SENT: Final = 3
TOOK_NS: Final = 4
_ENDED_AT: Final = 5
_TOOK_AT: Final = _ENDED_AT + len(Status)
ENDED: Final = slice(_ENDED_AT, _TOOK_AT)
TOOK: Final = slice(_TOOK_AT, _TOOK_AT + len(BOUNDS_S) + 1)
NO_TALLY: Final[Tally] = (0,) * (_TOOK_AT + len(BOUNDS_S) + 1)


class Traffic(NamedTuple):
    """A service at one moment: its counters, its requests and its workers.

    `number` tells it from earlier services of the same name, `tally` has its counters. `oldest_at`
    is when the request was accepted that has waited longest in the queue; infinite if none waits.
    `unserved` requests wait while the service has no worker at all.
    A worker is `idle` or `busy`, unless it is `draining` or `blocked` (it does not read). `paused`
    is 1 or 0.
    """

    name: str
    number: int
    tally: Tally
    queued: int
    unserved: int
    in_progress: int
    oldest_at: float
    idle: int
    busy: int
    draining: int
    blocked: int
    paused: int

    @property
    def workers(self) -> int:
        """How many workers it has, in any state."""
        return self.idle + self.busy + self.draining + self.blocked


class Census(NamedTuple):
    """A broker at one moment. `services` are the engine's own records, which change.

    `forgotten`: the counters of services that were removed. `refused` counts requests that were
    never accepted, by status, and `denied` what principals had no right to, by verb. `unread`:
    clients that are not read from, because a limit is reached. Sizes are in bytes. `broker` names
    the broker since its start, as journals do, in hex.
    """

    services: tuple[Service, ...]
    forgotten: Tally
    refused: tuple[int, ...]
    denied: Mapping[str, int]
    clients: int
    workers: int
    newcomers: int
    unread: int
    pending: int
    pending_size: int
    pending_size_max: int
    services_max: int
    draining: bool
    broker: str = ""


def take_census(
    services: Iterable[Service],
    parties: Iterable[Party],
    load: Load,
    forgotten: Tally,
    refused: Iterable[int],
    denied: Mapping[str, int],
    unread: int,
    pending_size_max: int,
    services_max: int,
    draining: bool,
    broker: str,
) -> Census:
    """Return a census of the broker's tables."""
    kinds = [party.__class__ for party in parties]
    clients, workers = kinds.count(Client), kinds.count(Worker)
    return Census(
        services=tuple(services),
        forgotten=forgotten,
        refused=tuple(refused),
        denied=dict(denied),
        clients=clients,
        workers=workers,
        newcomers=len(kinds) - clients - workers,
        unread=unread,
        pending=load.count,
        pending_size=load.size,
        pending_size_max=pending_size_max,
        services_max=services_max,
        draining=draining,
        broker=broker,
    )


def tally_of(counters: Counters) -> Tally:
    """Return the counters of a service."""
    took = counters.took
    ended = counters.ended.copy()
    ended[Status.OK] = took.count
    accepted, redelivered, sent = counters.accepted, counters.redelivered, counters.sent
    received = counters.received - accepted * (REQUEST_SIZE + FRAME_SIZE)
    took_ns = round(took.total_s * 1e9)
    return (accepted, redelivered, received, sent, took_ns, *ended, *took.counts)


def added(tally: Tally, other: Tally) -> Tally:
    """Return the sum of two tallies."""
    return tuple([a + b for a, b in zip(tally, other, strict=True)])


def reduced(tally: Tally, other: Tally) -> Tally:
    """Return a tally without what another one has."""
    return tuple([a - b for a, b in zip(tally, other, strict=True)])


def traffic_of(service: Service) -> Traffic:
    """Return the numbers of a service."""
    idle = busy = draining = blocked = in_progress = 0
    for worker in service.workers:
        holds = worker.holds
        if holds:
            in_progress += sum([pending is not None for pending in holds.values()])
        if worker.draining:
            draining += 1
        elif worker.blocked:
            blocked += 1
        elif holds:
            busy += 1
        else:
            idle += 1
    queue = service.queue
    oldest_at = inf
    if queue.length:
        oldest_at = min([pending.accepted_at for pending in queue.firsts()])
    return Traffic(
        service.name.decode(),
        service.number,
        tally_of(service.counters),
        queue.length,
        queue.length if service.is_bare else 0,
        in_progress,
        oldest_at,
        idle,
        busy,
        draining,
        blocked,
        int(service.is_paused),
    )


class HeldRequest(NamedTuple):
    """A request at a worker: its ID in hex ("": a request that was withdrawn, which the worker has
    not ended yet), when the worker got it, and which attempt that is."""

    request_id: str
    since: float
    attempt: int


class WorkerView(NamedTuple):
    """A worker of a service at one moment. `name` is its name in journals, in hex, and `state` is
    idle, busy, draining or blocked. `holds` has some of the `holding` requests that it has."""

    name: str
    principal: str
    dialect: str
    capacity: int
    state: str
    joined_at: float
    served: int
    holding: int
    holds: tuple[HeldRequest, ...]


def worker_views_of(service: Service, workers_max: int, holds_max: int) -> list[WorkerView]:
    """Return the workers of a service, the oldest first, and what they hold: at most `workers_max`,
    and `holds_max` requests of each."""
    return [_worker_view_of(worker, holds_max) for worker in islice(service.workers, workers_max)]


def _worker_view_of(worker: Worker, holds_max: int) -> WorkerView:
    return WorkerView(
        worker.name.hex(),
        worker.principal.name,
        worker.dialect.version,
        worker.capacity,
        _state_of(worker),
        worker.joined_at,
        worker.served,
        len(worker.holds),
        tuple(
            [_held_request_of(worker, each) for each in islice(worker.holds.values(), holds_max)]
        ),
    )


def _held_request_of(worker: Worker, pending: PendingRequest | None) -> HeldRequest:
    if pending is None:
        return HeldRequest("", worker.given_at, 0)
    return HeldRequest(pending.call_id.hex(), pending.dispatched_at, pending.attempts)


def _state_of(worker: Worker) -> str:
    if worker.draining:
        return "draining"
    if worker.blocked:
        return "blocked"
    return "busy" if worker.holds else "idle"
