"""What may be set on the Pirates, with the reasons for the defaults."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from requite.core.liveness import HeartbeatPolicy
from requite.errors import ConfigurationError
from requite.request import RetryPolicy

ATTEMPT_TIMEOUT_S: Final = 2.5
"""Guide, "Client-side Reliability": the client waits 2500 ms before it tries again."""

LINK_HANDSHAKE_S: Final = 5.0
"""How long a peer may take for its handshake: a process that is stopped accepts connections and
says nothing, and another address may be better."""

FRONT: Final = "front"
BACK: Final = "back"
"""The two sides of a queue: where clients come, and where workers do (`PeerJoined.place`)."""


def _at_least_one(**settings: int) -> None:
    for name, value in settings.items():
        if value < 1:
            raise ConfigurationError(f"{name} must be at least 1, not {value}")


@dataclass(frozen=True, slots=True)
class ClientPolicy:
    """What may be set on a Lazy Pirate.

    - `slots`: how many calls may be outstanding at a time; more end with `Overloaded`.
    - `retry`: how long to wait for a reply and how often to ask, as the Guide has it: 2.5 s, three
      times in all. Only calls that are idempotent are asked again.
    - `connections_max`: how many requests may be out at a time, each on a connection of its own.
    - `notes`: make `Note` effects: `sent`, `retried`, `replied`, `failed`.
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
class ServerPolicy:
    """What may be set on the server of Lazy Pirates; counts and bytes.

    - `capacity`: how many requests its handlers may have at a time, one per connection. The others
      wait at their connections, which take turns.
    - `queue_max`, `queue_size_max`: how many requests, and bytes of them, may wait per connection;
      then it is not read from until half of them are gone. A REQ client has one at most.
    - `reply_size_max`: how large a reply may grow out of partial ones.
    - `notes`: make `Note` effects: `delivered`, `finished`, `abandoned`.
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
class WorkerPolicy:
    """What may be set on a worker at a queue.

    - `heartbeat`: how often to be heard, and when a silent queue is gone (Paranoid alone).
    - `backlog_max`: how many requests may wait for the one in progress. There are such only at
      queues that take a heartbeat for "ready", as those of the Guide do; more are dropped.
    - `pause_first_s`, `pause_max_s`: how long to wait before the next connection when the last one
      came to nothing; doubled each time (Guide: from 1 to 32 s).
    - `reply_size_max`: how large a reply may grow out of partial ones.
    - `notes`: make `Note` effects: `ready`, `delivered`, `finished`, `abandoned`, `silent`.
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
class QueuePolicy:
    """What may be set on a queue.

    - `heartbeat`: how often to be heard by each worker, and when a silent one is gone (Paranoid).
    - `queue_max`, `queue_size_max`: how many requests, and bytes of them, may wait per client; then
      it is not read from until half of them are gone. A REQ client has one at most.
    - `drain_timeout_s`: how long a queue that drains waits for workers.
    - `notes`: make `Note` effects: `ready`, `dispatched`, `replied`, `lost`, `dropped`.
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
