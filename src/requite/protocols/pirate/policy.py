"""Settings of the Pirates."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from requite.core.liveness import HeartbeatPolicy
from requite.errors import ConfigurationError
from requite.request import RetryPolicy
from requite.value import Value

ATTEMPT_TIMEOUT_S: Final = 2.5
"""Guide, "Client-side Reliability": the client waits 2500 ms before it retries."""

LINK_HANDSHAKE_S: Final = 5.0
"""Timeout of a handshake, in seconds: the system accepts connections for a stopped process, and
another address may work."""

FRONT: Final = "front"
BACK: Final = "back"
"""The two sides of a queue, for clients and for workers (`PeerJoined.place`)."""


def _at_least_one(**settings: int) -> None:
    for name, value in settings.items():
        if value < 1:
            raise ConfigurationError(f"{name} must be at least 1, not {value}")


@dataclass(frozen=True, slots=True)
class ClientPolicy(Value):
    """Settings of a Lazy Pirate.

    - `slots`: the maximum of outstanding calls; further calls fail with `Overloaded`.
    - `retry`: attempt timeout and number of attempts; by default the Guide's, 2.5 s and three. Only
      idempotent calls are retried.
    - `connections_max`: the maximum of requests in flight, each on a separate connection.
    - `notes`: emit `Note` effects: `sent`, `retried`, `replied`, `failed`.
    """

    slots: int = 1024
    retry: RetryPolicy = field(
        default_factory=lambda: RetryPolicy(attempt_timeout=ATTEMPT_TIMEOUT_S)
    )
    connections_max: int = 64
    notes: bool = False

    def __post_init__(self) -> None:
        _at_least_one(slots=self.slots, connections_max=self.connections_max)


@dataclass(frozen=True, slots=True)
class ServerPolicy(Value):
    """Settings of a server of Lazy Pirates.

    - `capacity`: the maximum of concurrent handlers, one per connection. Further requests are
      queued per connection, and connections take turns.
    - `queue_max`, `queue_size_max`: the maximum of queued requests, and of their bytes, per
      connection. At the limit, it is not read from until half of them are gone. A REQ client has at
      most one.
    - `reply_size_max`: the maximum size of a reply joined from partial ones, in bytes.
    - `notes`: emit `Note` effects: `delivered`, `finished`, `abandoned`.
    """

    capacity: int = 16
    queue_max: int = 64
    queue_size_max: int = 4 << 20
    reply_size_max: int = 64 << 20
    notes: bool = False

    def __post_init__(self) -> None:
        _at_least_one(
            capacity=self.capacity,
            queue_max=self.queue_max,
            queue_size_max=self.queue_size_max,
            reply_size_max=self.reply_size_max,
        )


@dataclass(frozen=True, slots=True)
class WorkerPolicy(Value):
    """Settings of a worker.

    - `heartbeat`: the interval, and when a silent queue counts as dead (Paranoid Pirate only).
    - `backlog_max`: the maximum of requests queued behind the running one; more are dropped. Only
      queues that take a heartbeat for READY, as the Guide's do, send several.
    - `pause_first_s`, `pause_max_s`: pause before reconnecting after a connection that did not
      work; doubled each time (Guide: from 1 to 32 s).
    - `reply_size_max`: the maximum size of a reply joined from partial ones, in bytes.
    - `notes`: emit `Note` effects: `ready`, `delivered`, `finished`, `abandoned`, `silent`.
    """

    heartbeat: HeartbeatPolicy = field(default_factory=HeartbeatPolicy)
    backlog_max: int = 64
    pause_first_s: float = 1.0
    pause_max_s: float = 32.0
    reply_size_max: int = 64 << 20
    notes: bool = False

    def __post_init__(self) -> None:
        _at_least_one(backlog_max=self.backlog_max, reply_size_max=self.reply_size_max)
        if not 0 < self.pause_first_s <= self.pause_max_s:
            raise ConfigurationError(
                f"pause_first_s ({self.pause_first_s}) must be positive and not exceed"
                f" pause_max_s ({self.pause_max_s})"
            )


@dataclass(frozen=True, slots=True)
class QueuePolicy(Value):
    """Settings of a queue.

    - `heartbeat`: the interval, and when a silent worker counts as dead (Paranoid Pirate only).
    - `queue_max`, `queue_size_max`: the maximum of queued requests, and of their bytes, per client.
      At the limit, it is not read from until half of them are gone. A REQ client has at most one.
    - `drain_timeout_s`: how long a draining queue waits for busy workers.
    - `notes`: emit `Note` effects: `ready`, `dispatched`, `replied`, `lost`, `dropped`.
    """

    heartbeat: HeartbeatPolicy = field(default_factory=HeartbeatPolicy)
    queue_max: int = 64
    queue_size_max: int = 4 << 20
    drain_timeout_s: float = 10.0
    notes: bool = False

    def __post_init__(self) -> None:
        _at_least_one(queue_max=self.queue_max, queue_size_max=self.queue_size_max)
        if self.drain_timeout_s < 0:
            raise ConfigurationError("drain_timeout_s cannot be negative")
