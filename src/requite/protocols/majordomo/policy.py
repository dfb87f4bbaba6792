"""Settings of a broker."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from requite.core.liveness import HeartbeatPolicy
from requite.errors import ConfigurationError
from requite.value import Value

LEGACY_IDLE_S: Final = 7.5
"""Minimum silence, in seconds, after which an idle worker of MDP 0.1 or 0.2 is dead: three of the
Guide's heartbeat intervals of 2.5 s. Those dialects announce no interval."""


class PartialsFor01(StrEnum):
    """Handling of partial replies for clients of MDP 0.1, which has one reply per request."""

    JOIN = "join"
    REFUSE = "refuse"


@dataclass(frozen=True, slots=True)
class BrokerPolicy(Value):
    """Limits and times of a broker; times are in seconds.

    - `heartbeat`: the interval, and when a silent worker counts as dead.
    - `legacy_busy_timeout_s`: how long a busy worker of MDP 0.1 or 0.2 may be silent. A
      single-threaded worker sends no heartbeats while it works, however short the interval.
    - `attempts_max`: how many workers may be lost with one request before it is poisoned.
    - `service_grace_s`: how long a request waits for a service without workers (NO_SERVICE). Longer
      than workers need to reconnect after a restart of the broker.
    - `service_ttl_s`: when a service whose workers have left is forgotten, if no request waits. One
      that never had a worker exists only while a request waits.
    - `services_max`, `client_services_max` (named by one client, without workers), `queue_max` (per
      service), `client_pending_max` (per client),
      `client_pending_bytes_max` (per client), `pending_bytes_max` (in all): beyond these limits, a
      request fails with OVERLOADED. MDP 0.1 and 0.2 have no such answer: the broker stops reading
      from their clients until there is room. Requests that were already read are accepted
      beyond the limit, but at most 16 per client at new services; the rest waits in the broker.
      While such a client waits for a queue, other clients may have one request each in it. A
      request counts with the bytes of its frames, 48 for each frame, and 1 KiB. One that arrives
      below a limit is accepted, whatever its size. Partial replies that are joined for a client of
      MDP 0.1 may take as many bytes as its requests, or their request fails.
    - `worker_capacity_max`: how many requests a worker gets at a time, whatever it announces.
    - `worker_expired_max`: a worker of MDP 0.3 that lets so many requests in a row expire without
      any answer is disconnected ([worker-mute]), but not before `heartbeat.silence_s` since the
      first of them.
    - `drain_timeout_s`: how long a draining broker waits for pending requests.
    - `partials_for_0_1`: join partial replies into one for clients of 0.1, or fail the request.
    - `tell_old_clients`: MDP 0.1 and 0.2 have no negative reply, and the RFCs ask for silence. True
      sends a final reply of two frames instead: `requite-error STATUS`, and the reason. These
      clients are then refused beyond a limit, like those of 0.3.
    - `titanic_inside`: the broker has a Titanic of its own; no other worker may serve its names.
    - `notes`: emit `Note` effects, for a journal or a checker.
    - `notes_traces`: emit them also for requests of sampled traces.
    """

    heartbeat: HeartbeatPolicy = field(default_factory=HeartbeatPolicy)
    legacy_busy_timeout_s: float = 300.0
    attempts_max: int = 3
    service_grace_s: float = 10.0
    service_ttl_s: float = 60.0
    services_max: int = 10_000
    client_services_max: int = 1_000
    queue_max: int = 100_000
    client_pending_max: int = 20_000
    client_pending_bytes_max: int = 256 << 20
    pending_bytes_max: int = 1 << 30
    worker_capacity_max: int = 1024
    worker_expired_max: int = 32
    drain_timeout_s: float = 30.0
    partials_for_0_1: PartialsFor01 = PartialsFor01.JOIN
    tell_old_clients: bool = False
    titanic_inside: bool = False
    notes: bool = False
    notes_traces: bool = False

    def __post_init__(self) -> None:
        for name in ("service_grace_s", "service_ttl_s", "drain_timeout_s"):
            if getattr(self, name) < 0:
                raise ConfigurationError(f"{name} cannot be negative, not {getattr(self, name)}")
        if not self.legacy_busy_timeout_s > 0:
            raise ConfigurationError(
                f"legacy_busy_timeout_s must be positive, not {self.legacy_busy_timeout_s}"
            )
        for name in (
            "services_max",
            "client_services_max",
            "queue_max",
            "client_pending_max",
            "client_pending_bytes_max",
            "pending_bytes_max",
            "worker_capacity_max",
            "worker_expired_max",
        ):
            if getattr(self, name) < 1:
                raise ConfigurationError(f"{name} must be at least 1, not {getattr(self, name)}")
        if not 1 <= self.attempts_max <= 255:  # FINAL counts attempts in one byte
            raise ConfigurationError(f"attempts_max is 1 to 255, not {self.attempts_max}")
