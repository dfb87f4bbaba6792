"""What an operator may set on Titanic, with the reasons for the defaults."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from requite.backoff import pause_s
from requite.engine import Rng
from requite.errors import ConfigurationError


class Replicate(StrEnum):
    """Whether what is stored here is stored at a replica as well, and when that is told."""

    NO = "no"
    ASYNC = "async"
    SYNC = "sync"


@dataclass(frozen=True, slots=True, kw_only=True)
class TitanicPolicy:
    """Limits and times of Titanic; seconds and counts.

    - `attempts_max`: how often a request may fail before it is poisoned; None: there is no limit.
      Counted is what may have run: a negative reply, a timeout, a lost worker. That nobody serves a
      service is not held against a request.
    - `attempt_timeout_s`: how long one attempt may take.
    - `backoff_s`, `backoff_s_max`: pauses between the attempts of one request, doubled each time,
      of which up to the share `jitter` is taken off at random.
    - `check_service`: ask the broker (`mmi.service`) whether a service is there before requests are
      sent to it; at most once per `check_every_s` for each service, and not while it answers.
    - `window`, `service_window`: how many requests may be with workers at a time: overall, and for
      one service.
    - `key_window_s`: how long an idempotency key goes on naming a request after that was closed.
    - `expire_s`: when a reply (or a poisoned request) that nobody collected is removed; None:
      never.
    - `requests_max`: how many requests are kept; more are refused with 500.
    - `cache_bytes_max`: bodies kept in memory as well; others are read from the log when needed.
    - `store_retry_s`: when a reply that the disk did not take is stored again.
    - `drain_timeout_s`: how long a draining Titanic waits for replies to what it has sent.
    - `replicate`: whether there is a replica, and whether a submission is acknowledged before that
      has it; `replica_timeout_s`: how long it may take to answer.
    - `standby`: be a replica, unless the store says that it was promoted.
    - `notes`: make `Note` effects: `submitted`, `dispatched`, `answered`, `tried`, `poisoned`,
      `closed`.
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
    cache_bytes_max: int = 64 * 1024 * 1024
    store_retry_s: float = 1.0
    drain_timeout_s: float = 30.0
    replicate: Replicate = Replicate.NO
    replica_timeout_s: float = 5.0
    standby: bool = False
    notes: bool = False

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
        for name in ("window", "service_window", "requests_max"):
            if getattr(self, name) < 1:
                raise ConfigurationError(f"{name} must be at least 1, not {getattr(self, name)}")
        for name in ("key_window_s", "cache_bytes_max", "drain_timeout_s"):
            if getattr(self, name) < 0:
                raise ConfigurationError(f"{name} cannot be negative, not {getattr(self, name)}")
        if self.attempts_max is not None and self.attempts_max < 1:
            raise ConfigurationError(f"attempts_max is 1 or more, not {self.attempts_max}")
        if self.expire_s is not None and self.expire_s < 0:
            raise ConfigurationError(f"expire_s cannot be negative, not {self.expire_s}")
        if self.backoff_s_max < self.backoff_s:
            raise ConfigurationError("backoff_s_max cannot be less than backoff_s")
        if self.standby and self.replicate is not Replicate.NO:
            raise ConfigurationError("a replica has no replica of its own")
        if not 0 <= self.jitter <= 1:
            raise ConfigurationError(f"jitter is a share between 0 and 1, not {self.jitter}")

    def delay_s(self, failures: int, rng: Rng) -> float:
        """Return how long a request rests after so many failed attempts."""
        return pause_s(failures, self.backoff_s, self.backoff_s_max, self.jitter, rng)
