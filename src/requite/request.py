"""The nouns every part of requite shares: requests, replies, and how long and how often to try.

Bodies are sequences of frames (`bytes`); a protocol without frames carries exactly one. Times are
seconds. Instants are on the monotonic clock of whoever holds the object and never cross a wire:
what travels is the time that remains.
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
    NoService,
    Overloaded,
    Poisoned,
    RemoteFailure,
    WorkerLost,
)

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


# What the caller is told per status: the error, and whether a handler may have started, if the
# request was ever handed to a worker. NO_SERVICE may also come after its last worker was lost,
# SHUTTING_DOWN while one has it still.
_ERROR_BY_STATUS: Final[dict[Status, tuple[type[CallError], bool]]] = {
    Status.FAILED: (RemoteFailure, True),
    Status.NO_SERVICE: (NoService, True),
    Status.OVERLOADED: (Overloaded, False),
    Status.EXPIRED: (CallTimeout, True),
    Status.WORKER_LOST: (WorkerLost, True),
    Status.POISONED: (Poisoned, True),
    Status.CANCELLED: (Cancelled, True),
    Status.SHUTTING_DOWN: (Overloaded, True),
}


def error_from_status(status: Status, reason: str, attempts: int) -> CallError:
    """Build the error that a negative final reply stands for.

    `attempts` is the number of times the request was handed to a worker: with 0 it cannot have run.
    """
    kind, may_have_executed = _ERROR_BY_STATUS[status]
    return kind(reason, may_have_executed=may_have_executed and attempts > 0, attempts=attempts)


def error_class_of(status: Status) -> str:
    """Return the name of the error that a negative final reply stands for; "" for OK."""
    return "" if status is Status.OK else _ERROR_BY_STATUS[status][0].__name__


class Reply(NamedTuple):
    """The final answer to a call: `frames` as received, `elapsed` in seconds since the call.

    `attempts` is 1 where nothing went wrong. Each time the client sent the request again, and each
    time the broker gave it to another worker (MDP 0.3 tells), adds one.
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
class Partial:
    """One of the replies that precede the final one; `index` counts from 0 without a gap."""

    frames: Sequence[bytes]
    index: int

    @property
    def body(self) -> bytes:
        """All frames as one byte string."""
        frames = self.frames
        return frames[0] if len(frames) == 1 else b"".join(frames)


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """When and how often a failed attempt is repeated; one type for every transport.

    `attempts` bounds the tries of one call, the first included. `attempt_timeout` (seconds, None:
    only the call's own deadline counts) gives one try up and starts the next. Between tries the
    client waits `backoff` seconds, doubled each time up to `backoff_max`, times a random factor in
    [1 - jitter, 1]. `budget` is the share of retries per call that a client may reach over time
    (0.2: one retry for five calls), with `budget_burst` retries in reserve, so that an outage is
    not answered with a storm (I11). A request that is not idempotent is never tried twice once it
    may have run, whatever the policy says.
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
            raise ConfigurationError(f"jitter is a share between 0 and 1, not {self.jitter}")
        if min(self.backoff, self.backoff_max, self.budget, self.budget_burst) < 0:
            raise ConfigurationError("backoff, backoff_max, budget and budget_burst cannot be < 0")

    def delay_s(self, retry: int, rng: Callable[[], float]) -> float:
        """Return how long to wait before retry number `retry` (1 is the first)."""
        return pause_s(retry, self.backoff, self.backoff_max, self.jitter, rng)


class RetryBudget:
    """A token bucket shared by the calls of one client: calls earn, retries spend (I11)."""

    __slots__ = ("_burst", "_earn", "_tokens")

    def __init__(self, policy: RetryPolicy) -> None:
        self._earn = policy.budget
        self._burst = float(policy.budget_burst)
        self._tokens = self._burst

    def earn(self, calls: float = 1) -> None:
        """Count new calls, or what is worth as much."""
        if self._tokens < self._burst:
            self._tokens = min(self._burst, self._tokens + calls * self._earn)

    def maybe_spend(self) -> bool:
        """Take one retry out of the bucket, or decline."""
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True


@dataclass(frozen=True, slots=True)
class Deadline:
    """An instant on this process's monotonic clock, by which several calls must have ended.

    `requite.deadline(seconds)` makes one; give it to calls as their `timeout`.
    """

    at: float = inf


def _no_progress(_token: object, _extend_s: float) -> None:
    """Accept progress where nobody keeps a lease."""


@dataclass(slots=True, eq=False)
class Request:
    """A request as its handler sees it.

    `remaining_s` is what was left of the caller's deadline when the request arrived (None: no
    deadline). `attempt` is 1 for the first worker that was given it. `idempotency_key` is empty
    unless the caller gave one. `traceparent` is the W3C trace context of the call, "" where its
    protocol carries none (AMQP does).
    """

    service: str
    frames: Sequence[bytes]
    attempt: int = 1
    remaining_s: float | None = None
    idempotency_key: bytes = b""
    _on_progress: Callable[[Any, float], None] = field(default=_no_progress, repr=False)
    _token: Any = field(default=None, repr=False)  # what whoever keeps the lease knows it by
    traceparent: str = ""

    @property
    def body(self) -> bytes:
        """All frames as one byte string."""
        frames = self.frames
        return frames[0] if len(frames) == 1 else b"".join(frames)

    def progress(self, extend: float = 0.0) -> None:
        """Vouch for this handler: renew its lease (by `extend` seconds, 0: by the worker's own)."""
        self._on_progress(self._token, extend)
