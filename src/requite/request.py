"""The data types that all of requite shares: requests, replies, deadlines and retry policies.

Bodies are sequences of frames (`bytes`); a protocol without frames carries exactly one. Times are
in seconds. Instants are on the local monotonic clock and are never sent: peers get the time that
remains.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from math import inf
from typing import Any, Final, NamedTuple

from requite.backoff import pause_s
from requite.errors import (
    CallError,
    CallTimeout,
    Cancelled,
    ConfigurationError,
    Denied,
    NoService,
    Overloaded,
    Poisoned,
    RemoteFailure,
    WorkerLost,
)
from requite.trace_context import NO_TRACE, encode_traceparent
from requite.value import Value

Body = Sequence[bytes]


class Status(IntEnum):
    """How a request ended, as FINAL carries it (MDP 0.3, section "Status codes")."""

    OK = 0
    FAILED = 1
    NO_SERVICE = 2
    OVERLOADED = 3
    EXPIRED = 4
    WORKER_LOST = 5
    POISONED = 6
    CANCELLED = 7
    SHUTTING_DOWN = 8
    DENIED = 9


# Per status: the caller's error, and whether a handler may have started, provided that the request
# was given to a worker. NO_SERVICE may follow the loss of the last worker; SHUTTING_DOWN and DENIED
# may come while a worker still has the request.
_ERROR_BY_STATUS: Final[dict[Status, tuple[type[CallError], bool]]] = {
    Status.FAILED: (RemoteFailure, True),
    Status.NO_SERVICE: (NoService, True),
    Status.OVERLOADED: (Overloaded, False),
    Status.EXPIRED: (CallTimeout, True),
    Status.WORKER_LOST: (WorkerLost, True),
    Status.POISONED: (Poisoned, True),
    Status.CANCELLED: (Cancelled, True),
    Status.SHUTTING_DOWN: (Overloaded, True),
    Status.DENIED: (Denied, True),
}


FINAL: Final = b"final"
"""The second frame of a negative reply that the service would give each time ([status-final])."""


def error_from_status(status: Status, body: Body, attempts: int) -> CallError:
    """Return the caller's error for a negative final reply, whose first frame is the reason.

    `attempts` is how often the request was given to a worker: with 0 it cannot have run.
    """
    kind, may_have_executed = _ERROR_BY_STATUS[status]
    reason = body[0].decode("utf-8", "replace")
    error = kind(reason, may_have_executed=may_have_executed and attempts > 0, attempts=attempts)
    if isinstance(error, RemoteFailure):
        error.is_final = is_final(body)
    return error


def is_final(body: Body) -> bool:
    """Whether a negative reply says that the service would give it each time."""
    return list(body[1:2]) == [FINAL]


def error_class_of(status: Status) -> str:
    """Return the name of the caller's error for a negative final reply; "" for OK."""
    return "" if status is Status.OK else _ERROR_BY_STATUS[status][0].__name__


class Reply(NamedTuple):
    """The final reply to a call: `frames` as received, `elapsed` in seconds since the call.

    `attempts` is 1, plus one for each time that the client resent the request or the broker gave it
    to another worker (reported by MDP 0.3).
    """

    frames: Sequence[bytes]
    status: Status = Status.OK
    attempts: int = 1
    elapsed: float = 0.0

    @property
    def body(self) -> bytes:
        """All frames as one byte string."""
        frames = self.frames
        return frames[0] if len(frames) == 1 else b"".join(frames)


@dataclass(frozen=True, slots=True)
class Partial(Value):
    """A partial reply, before the final one; `index` counts from 0 without gaps."""

    frames: Sequence[bytes]
    index: int

    @property
    def body(self) -> bytes:
        """All frames as one byte string."""
        frames = self.frames
        return frames[0] if len(frames) == 1 else b"".join(frames)


@dataclass(frozen=True, slots=True)
class RetryPolicy(Value):
    """When and how often to retry a failed attempt; the same type for every transport.

    `attempts` is the maximum per call, including the first. `attempt_timeout` is the time limit of
    one attempt in seconds (None: only the call's deadline). Between attempts the client waits
    `backoff` seconds, doubled each time up to `backoff_max` and multiplied by a random factor in
    [1 - jitter, 1]. `budget` limits the long-term ratio of retries to calls (0.2: one retry per
    five calls), with `budget_burst` retries in reserve, to prevent a retry storm in an outage
    (I11). A request that is not idempotent is never retried once it may have run, whatever the
    policy says.
    """

    attempts: int = 3
    attempt_timeout: float | None = None
    backoff: float = 0.05
    backoff_max: float = 2.0
    jitter: float = 0.5
    budget: float = 0.2
    budget_burst: int = 100

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise ConfigurationError(f"attempts must be at least 1, not {self.attempts}")
        if self.attempt_timeout is not None and self.attempt_timeout <= 0:
            raise ConfigurationError("attempt_timeout must be positive, or None for no limit")
        if not 0 <= self.jitter <= 1:
            raise ConfigurationError(f"jitter must be between 0 and 1, not {self.jitter}")
        if min(self.backoff, self.backoff_max, self.budget, self.budget_burst) < 0:
            raise ConfigurationError(
                "backoff, backoff_max, budget and budget_burst cannot be negative"
            )

    def delay_s(self, retry: int, rng: Callable[[], float]) -> float:
        """Return the seconds to wait before retry number `retry` (1 is the first)."""
        return pause_s(retry, self.backoff, self.backoff_max, self.jitter, rng)


class RetryBudget:
    """A token bucket shared by a client's calls: calls add tokens, retries take them (I11)."""

    __slots__ = ("_burst", "_earn", "_tokens")

    def __init__(self, policy: RetryPolicy) -> None:
        self._earn = policy.budget
        self._burst = float(policy.budget_burst)
        self._tokens = self._burst

    def earn(self, calls: float = 1) -> None:
        """Add the tokens of `calls` new calls."""
        if self._tokens < self._burst:
            self._tokens = min(self._burst, self._tokens + calls * self._earn)

    def maybe_spend(self) -> bool:
        """Take a token for a retry and return True; return False if there is none."""
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True


@dataclass(frozen=True, slots=True)
class Deadline(Value):
    """An instant on this process's monotonic clock at which several calls time out.

    Make one with `requite.deadline(seconds)`, and pass it to calls as `timeout`.
    """

    at: float = inf


def _no_progress(_token: object, _extend_s: float) -> None:
    """Ignore progress, for protocols without leases."""


@dataclass(slots=True, eq=False)
class Request:
    """A request, as passed to its handler.

    `remaining_s` is the time left until the caller's deadline when the request arrived (None: no
    deadline). `attempt` is 1 for the first worker that gets the request. `idempotency_key` is empty
    unless the caller gave one. `principal` is the name of the caller, as the listener knows it: its
    user in the access file, or its credential (`tls:CN=shop`, over RabbitMQ `amqp:USER`); ""
    without one. For a caller with the right `act`, such as a gateway, it is the user for whom the
    request is made. `trace` is the trace context of the call (`requite.trace_context`), empty
    unless the protocol carries one (MDP 0.3 and AMQP).
    """

    service: str
    frames: Sequence[bytes]
    attempt: int = 1
    remaining_s: float | None = None
    idempotency_key: bytes = b""
    _on_progress: Callable[[Any, float], None] = field(default=_no_progress, repr=False)
    _token: Any = field(
        default=None, repr=False
    )  # identifies the request to the keeper of its lease
    trace: bytes = NO_TRACE
    principal: str = ""

    @property
    def body(self) -> bytes:
        """All frames as one byte string."""
        frames = self.frames
        return frames[0] if len(frames) == 1 else b"".join(frames)

    @property
    def traceparent(self) -> str:
        """The W3C trace context of the call, as a header; "" for none."""
        return encode_traceparent(self.trace)

    def progress(self, extend: float = 0.0) -> None:
        """Renew the handler's lease by `extend` seconds (0: by the worker's `handler_timeout`)."""
        self._on_progress(self._token, extend)
