"""The records of a broker: services, clients, workers and pending requests.

Plain records with slots; the code that uses them is in `broker.py`.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any, Final

from requite.core.durations import Durations
from requite.core.liveness import Liveness
from requite.engine import Carried, Peer, PeerJoined
from requite.protocols.majordomo.headers_03 import PRINCIPAL_SIZE_MAX
from requite.protocols.majordomo.queue import ServiceQueue
from requite.protocols.majordomo.quotas import Usage
from requite.protocols.majordomo.wire import KNOWS_DENIED, TAKES_PRINCIPALS, TAKES_TRACES, Dialect
from requite.request import Status

# The memory of a request beside its body, and of a frame beside its content. Measured: 750 bytes,
# and 44 (CPython 3.11). Without them, empty requests would be free.
REQUEST_SIZE: Final = 1024
FRAME_SIZE: Final = 48
_NO_ORIGIN: Final = b"none, since it is longer than a call id"


@dataclass(slots=True, eq=False)
class Load:
    """The pending requests of all clients: their number, and the sum of their sizes."""

    count: int = 0
    size: int = 0

    def pending(self) -> int:
        """Return their number."""
        return self.count


def _no_ends() -> list[int]:
    return [0] * len(Status)


@dataclass(slots=True, eq=False)
class Counters:
    """Counters of a service's requests since the service was added.

    `ended` counts requests by their final status; those that are OK are in `took`, with the time
    from acceptance to reply. `received` is the sum of the sizes of accepted requests (`size_of`
    and 1 KiB each), `sent` the bytes of replies. `refused`: of the requests that ended, those for
    which the queue was full.
    """

    accepted: int = 0
    received: int = 0
    sent: int = 0
    redelivered: int = 0
    refused: int = 0
    ended: list[int] = field(default_factory=_no_ends)
    took: Durations = field(default_factory=Durations)

    @property
    def failed(self) -> int:
        """How many requests ended neither with a reply nor by their deadline or client."""
        expired, cancelled = self.ended[Status.EXPIRED], self.ended[Status.CANCELLED]
        return sum(self.ended) - expired - cancelled


@dataclass(slots=True, eq=False)
class Service:
    """One service: its workers, its waiting workers, its queue and its counters.

    `waiting` holds the workers that can take a request, the one that has waited longest first:
    `waiting[worker] = None` appends a worker, or leaves it at its position. `namer` is the client
    that named it, as long as it has had no worker. `number` tells it from earlier services of the
    same name. While `is_paused`, no request is dispatched.
    `takes_s`: how long a request was at a worker recently, while others were queued.
    """

    name: bytes
    namer: Client | None = None
    number: int = 0
    workers: dict[Worker, None] = field(default_factory=dict)  # ordered: runs must repeat
    waiting: OrderedDict[Worker, None] = field(default_factory=OrderedDict)
    queue: ServiceQueue[PendingRequest] = field(default_factory=ServiceQueue)
    counters: Counters = field(default_factory=Counters)
    is_paused: bool = False
    takes_s: float = 0.0
    is_keyed: bool = field(init=False)  # the name of a group of a pool

    def __post_init__(self) -> None:
        self.is_keyed = b"/" in self.name

    @property
    def is_bare(self) -> bool:
        """Whether it has no workers."""
        return not self.workers

    @property
    def in_progress(self) -> int:
        """The number of its requests at workers."""
        return sum(p is not None for worker in self.workers for p in worker.holds.values())


class Newcomer:
    """A peer that has not sent a message yet; `features` are those that it has announced."""

    __slots__ = ("address", "features", "principal")

    def __init__(self, joined: PeerJoined) -> None:
        self.address = joined.identity
        self.principal = joined.principal
        self.features = joined.features


class Departed:
    """A worker that sent DISCONNECT, while its connection is still open; it is sent nothing."""

    __slots__ = ()


class Client:
    """A client, and its requests without a final reply, by request id.

    `origin` is the first half of the call ids that the broker makes for a client that sends none;
    `known_origin` that of the call ids which it sent last, and may use. `denied` is the status of
    its denied requests: one of an older requite does not know DENIED. `usage` is shared with other
    clients of its principal; None if that has no quota.
    `size` is the sum of the sizes of its requests. `named` counts the services of which it is the
    `namer`. `limits`: why it is not read from (`Pushback`). `backlog`: messages that had been read
    by then, with more new services than the broker accepts at a time. `interval_s` is the interval
    of its heartbeats; that of the broker until it has announced one.
    """

    __slots__ = (
        "address",
        "backlog",
        "denied",
        "dialect",
        "interval_s",
        "known_origin",
        "limits",
        "named",
        "origin",
        "peer",
        "pending",
        "principal",
        "principal_name",
        "reassure_at",
        "size",
        "usage",
    )

    def __init__(
        self, peer: Peer, joined: Newcomer, dialect: Dialect, origin: bytes, interval_s: float
    ) -> None:
        self.origin = origin
        self.known_origin = _NO_ORIGIN
        self.principal = joined.principal
        self.usage: Usage | None = None
        self.principal_name = joined.principal.name.encode()[:PRINCIPAL_SIZE_MAX]
        self.denied = Status.DENIED if KNOWS_DENIED in joined.features else Status.FAILED
        self.peer = peer
        self.address = joined.address
        self.dialect = dialect
        self.pending: dict[int, PendingRequest] = {}
        self.size = 0
        self.named = 0
        self.limits: dict[Any, None] = {}
        self.backlog: tuple[Carried, ...] = ()  # nearly always empty: a deque takes 760 bytes
        self.interval_s = interval_s
        self.reassure_at = 0.0  # the earliest next heartbeat that it has not asked for

    def count_named(self, more: int) -> None:
        """Count services without workers that it has named."""
        self.named += more
        if self.usage is not None:
            self.usage.named += more


class Worker:
    """A registered worker, and what it holds, by dispatch id.

    `name` identifies it in journals: its instance, or its address if it has none.
    `holds[id]` is None when the request was withdrawn (cancelled, expired, lease over) but the
    worker has not sent FINAL yet: its slot stays occupied (mdp-0.3 [worker-lease],
    [worker-cancel]). `given_at`: when it was last sent a request. `expired` counts requests in a
    row that expired here without any answer of the worker, the first one at `expired_since`, when
    `served` was `served_then`. `takes_principals`: it wants to know whose requests it gets.
    `takes_traces`: and to which traces they belong.
    """

    __slots__ = (
        "address",
        "blocked",
        "capacity",
        "dialect",
        "draining",
        "expired",
        "expired_since",
        "given_at",
        "holds",
        "joined_at",
        "lease_s",
        "liveness",
        "name",
        "peer",
        "principal",
        "served",
        "served_then",
        "service",
        "takes_principals",
        "takes_traces",
    )

    def __init__(
        self,
        peer: Peer,
        joined: Newcomer,
        dialect: Dialect,
        service: Service,
        capacity: int,
        lease_s: float,
        liveness: Liveness,
        name: bytes,
    ) -> None:
        self.principal = joined.principal
        self.takes_principals = TAKES_PRINCIPALS in joined.features
        self.takes_traces = TAKES_TRACES in joined.features
        self.name = name
        self.peer = peer
        self.address = joined.address
        self.dialect = dialect
        self.service = service
        self.capacity = capacity
        self.lease_s = lease_s
        self.liveness = liveness
        self.joined_at = self.given_at = liveness.heard_at
        self.holds: dict[int, PendingRequest | None] = {}
        self.draining = False
        self.blocked = False
        self.served = 0
        self.expired = 0
        self.expired_since = 0.0
        self.served_then = 0

    @property
    def may_take(self) -> bool:
        """Whether it can be sent a request now."""
        return not self.draining and not self.blocked and len(self.holds) < self.capacity


class PendingRequest:
    """A request between its acceptance and its final reply.

    `worker` is None while it is queued. `partials` counts partial replies sent to the client;
    `joined` collects partial frames for a client whose dialect has none. `is_expanded`: its events
    so far are in the journal. `is_noted`: the engine makes notes about it. `size` is the memory
    that it counts for, in bytes. `principal` is the name of its owner and `trace` its trace
    context, for the worker.
    """

    __slots__ = (
        "accepted_at",
        "attempts",
        "body",
        "call_id",
        "client",
        "deadline",
        "dispatch_id",
        "dispatched_at",
        "flags",
        "is_expanded",
        "is_noted",
        "joined",
        "key",
        "partials",
        "principal",
        "queued_at",
        "request_id",
        "service",
        "size",
        "trace",
        "worker",
    )

    def __init__(
        self,
        client: Client,
        service: Service,
        request_id: int,
        body: list[bytes],
        deadline: float,
        flags: int,
        key: bytes,
        call_id: bytes,
        now: float,
        principal: bytes = b"",
        trace: bytes = b"",
    ) -> None:
        self.client = client
        self.principal = principal
        self.trace = trace
        self.service = service
        self.request_id = request_id
        self.body = body
        self.size = REQUEST_SIZE + size_of(body)
        self.deadline = deadline
        self.flags = flags
        self.key = key
        self.call_id = call_id
        self.accepted_at = self.queued_at = self.dispatched_at = now
        self.is_expanded = False
        self.is_noted = False
        self.attempts = 0
        self.partials = 0
        self.dispatch_id = 0
        self.worker: Worker | None = None
        self.joined: list[bytes] | None = None


def size_of(body: list[bytes]) -> int:
    """Return the memory of a body in bytes."""
    if len(body) == 1:  # nearly every body
        return FRAME_SIZE + len(body[0])
    return FRAME_SIZE * len(body) + sum(map(len, body))


Party = Newcomer | Client | Worker | Departed
