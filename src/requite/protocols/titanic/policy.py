"""Settings of Titanic."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from requite.backoff import pause_s
from requite.engine import Rng
from requite.errors import ConfigurationError
from requite.protocols.titanic.requests import Owner
from requite.value import Value

REQUEST_OVERHEAD: Final = 256
"""Bytes that a request counts for in addition to its bodies, in `owner_bytes_max`: about what its
records take on the disk without them."""
_WHAT_TO_DO: Final = "fetch and close finished ones"


class Replicate(StrEnum):
    """Replication: none, after acknowledging (ASYNC), or before acknowledging (SYNC)."""

    NO = "no"
    ASYNC = "async"
    SYNC = "sync"


@dataclass(frozen=True, slots=True, kw_only=True)
class TitanicPolicy(Value):
    """Settings of Titanic; times are in seconds.

    - `attempts_max`: failed attempts until a request is poisoned; None: no limit. Only attempts
      that may have run count: a negative reply, a timeout, a lost worker. A service without workers
      does not count.
    - `attempt_timeout_s`: timeout of one attempt.
    - `backoff_s`, `backoff_s_max`: pause between attempts of one request, doubled each time and
      reduced at random by up to the share `jitter`.
    - `check_service`: ask the broker (`mmi.service`) for a service before sending requests to it;
      at most once per `check_every_s` for each service, and not while it answers.
    - `window`, `service_window`: maximum of requests in flight, overall and per service. One
      principal may have three times as many in flight as `window` has free slots, so alone three
      quarters of it; all requests without a principal count as those of one.
    - `key_window_s`: how long an idempotency key remains valid after its request was closed.
    - `expire_s`: when an uncollected reply or a poisoned request is removed, counted from its end
      or, if that is later, from the start of this process; None: never.
    - `requests_max`: maximum of stored requests; further ones are refused with 500.
    - `owner_requests_max`, `owner_bytes_max`: maximum of stored requests of one principal, and of
      their bytes: request, reply, and `REQUEST_OVERHEAD` for each; further requests are refused
      with 500. Replies may take as much again; a request whose reply exceeds that is poisoned.
      None: a quarter of the disk space of the store, if that is limited. Requests without a
      principal have no limits of their own.
    - `cache_bytes_max`: bytes of bodies cached in memory; others are read from the log.
    - `store_retry_s`: when to retry storing a reply that the disk refused.
    - `drain_timeout_s`: how long a draining Titanic waits for attempts in flight.
    - `replicate`: replication mode; `replica_timeout_s`: timeout for the replica's answers.
    - `standby`: be a replica, unless the store says that it was promoted.
    - `notes`: emit `Note` effects: `submitted`, `dispatched`, `answered`, `tried`, `poisoned`,
      `closed`.
    - `notes_traces`: emit them also for requests of sampled traces, with their trace contexts.
    """

    attempts_max: int | None = None
    attempt_timeout_s: float = 60.0
    backoff_s: float = 1.0
    backoff_s_max: float = 60.0
    jitter: float = 0.5
    check_service: bool = True
    check_every_s: float = 1.0
    window: int = 1024
    service_window: int = 256
    key_window_s: float = 3600.0
    expire_s: float | None = None
    requests_max: int = 2_000_000
    owner_requests_max: int = 1_000_000
    owner_bytes_max: int | None = None
    cache_bytes_max: int = 64 * 1024 * 1024
    store_retry_s: float = 1.0
    drain_timeout_s: float = 30.0
    replicate: Replicate = Replicate.NO
    replica_timeout_s: float = 5.0
    standby: bool = False
    notes: bool = False
    notes_traces: bool = False

    def __post_init__(self) -> None:
        for name in (
            "attempt_timeout_s",
            "backoff_s",
            "check_every_s",
            "store_retry_s",
            "replica_timeout_s",
        ):
            if not getattr(self, name) > 0:
                raise ConfigurationError(f"{name} must be positive, not {getattr(self, name)}")
        for name in ("window", "service_window", "requests_max", "owner_requests_max"):
            if getattr(self, name) < 1:
                raise ConfigurationError(f"{name} must be at least 1, not {getattr(self, name)}")
        for name in ("key_window_s", "cache_bytes_max", "drain_timeout_s"):
            if getattr(self, name) < 0:
                raise ConfigurationError(f"{name} cannot be negative, not {getattr(self, name)}")
        if self.attempts_max is not None and self.attempts_max < 1:
            raise ConfigurationError(f"attempts_max is 1 or more, not {self.attempts_max}")
        if self.owner_bytes_max is not None and self.owner_bytes_max < 1:
            raise ConfigurationError(
                f"owner_bytes_max must be at least 1, or None, not {self.owner_bytes_max}"
            )
        if self.expire_s is not None and self.expire_s < 0:
            raise ConfigurationError(f"expire_s cannot be negative, not {self.expire_s}")
        if self.backoff_s_max < self.backoff_s:
            raise ConfigurationError("backoff_s_max cannot be less than backoff_s")
        if self.standby and self.replicate is not Replicate.NO:
            raise ConfigurationError("a replica has no replica of its own")
        if not 0 <= self.jitter <= 1:
            raise ConfigurationError(f"jitter is a share between 0 and 1, not {self.jitter}")

    def exceeded_by(self, owner: Owner) -> str:
        """Return which limit an owner has reached; "" if none."""
        if owner.requests >= self.owner_requests_max:
            return (
                f"{owner.text} has reached the maximum of {self.owner_requests_max} stored requests"
                f" (owner_requests_max): {_WHAT_TO_DO}"
            )
        size = owner.size + owner.requests * REQUEST_OVERHEAD
        if self.owner_bytes_max is None or size < self.owner_bytes_max:
            return ""
        return (
            f"the stored requests of {owner.text} take {size} of at most {self.owner_bytes_max}"
            f" bytes (owner_bytes_max): {_WHAT_TO_DO}"
        )

    def exceeded_by_replies_to(self, owner: Owner) -> str:
        """Return which limit the replies to an owner exceed; "" if none."""
        if self.owner_bytes_max is None or not owner.name:
            return ""
        size = owner.size + owner.requests * REQUEST_OVERHEAD
        if size <= 2 * self.owner_bytes_max:
            return ""
        return (
            f"the reply is not stored: with it, the requests and replies of {owner.text} take"
            f" {size} bytes, and the maximum is {2 * self.owner_bytes_max} (twice owner_bytes_max):"
            f" {_WHAT_TO_DO}"
        )

    def delay_s(self, failures: int, rng: Rng) -> float:
        """Return the pause, in seconds, after this number of failed attempts."""
        return pause_s(failures, self.backoff_s, self.backoff_s_max, self.jitter, rng)
