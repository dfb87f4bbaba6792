"""Majordomo on the wire: the commands, and the interface of a dialect.

Engines use one set of commands for three dialects; a `Dialect` encodes and decodes them, and says
what it cannot express. Commands are slotted objects, like inputs and effects (`requite.engine`),
and must not be changed once they are passed on.

Sources: 7/MDP (0.1), 18/MDP (0.2), docs/protocols/mdp-0.3.md (0.3). A body is a list of frames.
Dialects without ids, timeouts and intervals set them to 0; likewise the call id, which identifies a
request in all journals, and the instance, a worker's name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Final, Protocol, final

from requite.chronicle import NO_CALL, NO_INSTANCE
from requite.engine import Carried

MMI_PREFIX: Final = b"mmi."
SERVICE_NAME_SIZE_MAX: Final = 255  # MDP 0.3 counts it in one byte; names cross dialects
NOT_IDEMPOTENT: Final = 1  # flag of REQUEST

# Features that a peer announces in its handshake ([features]).
KNOWS_DENIED: Final = "denied"
TAKES_PRINCIPALS: Final = "principals"
TAKES_TRACES: Final = "traces"
KNOWS_USERS: Final = "users"  # a broker with an access file
FEATURES: Final = (KNOWS_DENIED, TAKES_PRINCIPALS, TAKES_TRACES)
# Peers that may close a connection before the first message.
CLOSES_EARLY: Final = "the passive broker of a pair, a broker without free file descriptors"
U32_MAX: Final = (1 << 32) - 1


# --- client and broker ----------------------------------------------------------------------------
@final
@dataclass(slots=True)
class ClientRequest:
    """A client's request to `service`; `timeout_ms` 0 means no limit. `principal`: for whom the
    client makes it; empty: for itself. `trace`: its trace context (`requite.trace_context`), empty
    without one."""

    service: bytes
    body: list[bytes]
    request_id: int = 0
    timeout_ms: int = 0
    flags: int = 0
    key: bytes = b""
    call_id: bytes = NO_CALL
    principal: bytes = b""
    trace: bytes = b""


@final
@dataclass(slots=True)
class ClientCancel:
    """A client cancels a request."""

    request_id: int


@final
@dataclass(slots=True)
class ClientHeartbeat:
    """Sent both ways between client and broker."""

    interval_ms: int


@final
@dataclass(slots=True)
class ClientPartial:
    """A partial reply to a client."""

    service: bytes
    body: list[bytes]
    request_id: int = 0
    part_index: int = -1  # -1: the dialect does not count


@final
@dataclass(slots=True)
class ClientFinal:
    """The final reply to a client."""

    service: bytes
    body: list[bytes]
    request_id: int = 0
    status: int = 0
    attempts: int = 1


# --- worker and broker ----------------------------------------------------------------------------
@final
@dataclass(slots=True)
class Ready:
    """A worker registers for a service."""

    service: bytes
    capacity: int = 1
    interval_ms: int = 0
    lease_ms: int = 0
    instance: bytes = NO_INSTANCE


@final
@dataclass(slots=True)
class WorkerRequest:
    """The broker sends a request to a worker."""

    address: bytes
    body: list[bytes]
    dispatch_id: int = 0
    timeout_ms: int = 0
    attempt: int = 1
    key: bytes = b""
    call_id: bytes = NO_CALL
    principal: bytes = b""
    trace: bytes = b""


@final
@dataclass(slots=True)
class WorkerPartial:
    """A worker's partial reply."""

    address: bytes
    body: list[bytes]
    dispatch_id: int = 0


@final
@dataclass(slots=True)
class WorkerFinal:
    """A worker's final reply."""

    address: bytes
    body: list[bytes]
    dispatch_id: int = 0
    status: int = 0


@final
@dataclass(slots=True)
class WorkerHeartbeat:
    """Sent both ways between worker and broker; 0 in dialects that do not announce it."""

    interval_ms: int = 0


@final
@dataclass(slots=True)
class Disconnect:
    """End of the dialogue; sent both ways between worker and broker. `reason` is the broker's, and
    may be empty."""

    reason: bytes = b""


@final
@dataclass(slots=True)
class Progress:
    """A worker extends the lease of a handler (`extend_ms` 0: by its usual lease)."""

    dispatch_id: int
    extend_ms: int


@final
@dataclass(slots=True)
class DrainNotice:
    """A worker accepts no more requests."""


@final
@dataclass(slots=True)
class WorkerCancel:
    """The broker cancels a request at a worker."""

    dispatch_id: int


FromClient = ClientRequest | ClientCancel | ClientHeartbeat
ToClient = ClientPartial | ClientFinal | ClientHeartbeat
FromWorker = (
    Ready | WorkerPartial | WorkerFinal | WorkerHeartbeat | Disconnect | Progress | DrainNotice
)
ToWorker = WorkerRequest | WorkerHeartbeat | Disconnect | WorkerCancel
Command = FromClient | ToClient | FromWorker | ToWorker


class Dialect(Protocol):
    """The codec of one version. Decoders raise `RemoteViolation` for malformed messages, encoders
    `LocalViolation` for commands that this version lacks, or values that do not fit.

    The last four methods are `encode` without a command object: each request needs them, and the
    objects cost a broker 0.3 us of 4 us per request, a client 0.3 us of 4 us (engines alone,
    CPython 3.11).
    """

    version: str
    has_ids: bool
    """Whether requests carry ids: many outstanding per client, stale replies recognisable, negative
    replies, cancel, announced intervals. (MDP 0.3 has all of them, 0.1 and 0.2 none.)"""
    has_partials: bool

    def decode_from_client(self, message: Carried) -> FromClient: ...
    def decode_to_client(self, message: Carried) -> ToClient: ...
    def decode_from_worker(self, message: Carried) -> FromWorker: ...
    def decode_to_worker(self, message: Carried) -> ToWorker: ...
    def encode(self, command: Command) -> Carried: ...
    def client_request(
        self,
        service: bytes,
        body: Sequence[bytes],
        request_id: int,
        timeout_ms: int,
        flags: int,
        key: bytes,
        call_id: bytes,
        principal: bytes = b"",
        trace: bytes = b"",
    ) -> Carried:
        """Only MDP 0.3 carries the principal and the trace; other dialects ignore both."""
        ...

    def worker_request(
        self,
        address: bytes,
        body: list[bytes],
        dispatch_id: int,
        timeout_ms: int,
        attempt: int,
        key: bytes,
        call_id: bytes,
        principal: bytes = b"",
        trace: bytes = b"",
    ) -> Carried: ...
    def worker_final(
        self, address: bytes, body: Sequence[bytes], dispatch_id: int, status: int
    ) -> Carried: ...
    def client_final(
        self, service: bytes, body: list[bytes], request_id: int, status: int, attempts: int
    ) -> Carried: ...


def timeout_ms(remaining_s: float) -> int:
    """Encode a remaining time in milliseconds: 0 for no limit, and at least 1."""
    if remaining_s == inf:
        return 0
    ms = int(remaining_s * 1000 + 0.5)
    if ms < 1:
        return 1
    return ms if ms < U32_MAX else U32_MAX
