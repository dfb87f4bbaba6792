"""What may be set on a client and on a server, with the reasons for the defaults."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from requite.core.liveness import HeartbeatPolicy
from requite.errors import ConfigurationError
from requite.protocols.freelance.wire import Model
from requite.request import RetryPolicy

ATTEMPT_S_DEFAULT: Final = 1.0
"""Guide, `flclient1`: REQUEST_TIMEOUT, what one server is given time for in model one."""

ATTEMPTS_DEFAULT: Final = 3
"""Guide, `flclient1`: MAX_RETRIES, where there is but one server."""

PING_DEFAULT: Final = HeartbeatPolicy(interval_s=2.0, liveness=3)
"""Guide, `flcliapi`: PING_INTERVAL, and SERVER_TTL, which is three of them; 10/FLP says "usually
2-3"."""

LIVES_WHILE_PRESSED: Final = 5
"""How many times longer a server that pushes back may be silent: our ping is behind a large body,
and no answer can be expected soon."""

_SLOTS_MAX: Final = 1 << 24


@dataclass(frozen=True, slots=True)
class ClientPolicy:
    """What may be set on a client; seconds and counts.

    - `servers`: how many servers there are. Model one tries each of several once.
    - `slots`: how many calls may be outstanding at a time; more end with `Overloaded`.
    - `retry`: see `RetryPolicy`. Of model two, `attempts` bounds the tries at each server, and
      there is no `attempt_timeout`; elsewhere that applies to idempotent calls alone (None: a try
      lasts as long as its server lives). There are no pauses between tries. What was lost with its
      server goes to another one free of charge: that adds no load.
    - `ping`: when a silent server is asked whether it lives, and when it counts as gone.
    - `notes`: make `Note` effects: `sent`, `replied`, `failed`, `server-live`, `server-gone`.
    """

    servers: int = 1
    slots: int = 1024
    retry: RetryPolicy = field(default_factory=lambda: RetryPolicy(attempts=ATTEMPTS_DEFAULT))
    ping: HeartbeatPolicy = field(default_factory=lambda: PING_DEFAULT)
    notes: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.slots <= _SLOTS_MAX:
            raise ConfigurationError(f"slots is 1 to {_SLOTS_MAX}, not {self.slots}")
        if self.servers < 1:
            raise ConfigurationError("a client needs at least one server")


@dataclass(frozen=True, slots=True)
class ServerPolicy:
    """What may be set on a server; counts and bytes.

    - `model`: which clients it serves (`wire.Model`).
    - `capacity`: how many requests its handlers may have at a time. The others wait, per client.
    - `queue_max`, `queue_size_max`: how many requests, and bytes of them, may wait per client; then
      the client is not read from until half of them are gone.
    - `reply_size_max`: how large a reply may grow out of partial ones.
    - `notes`: make `Note` effects: `delivered`, `finished`, `abandoned`, `dropped`.
    """

    model: Model = Model.AGENT
    capacity: int = 16
    queue_max: int = 1024
    queue_size_max: int = 4 << 20
    reply_size_max: int = 64 << 20
    notes: bool = False

    def __post_init__(self) -> None:
        for name in ("capacity", "queue_max", "queue_size_max", "reply_size_max"):
            if getattr(self, name) < 1:
                raise ConfigurationError(f"{name} must be at least 1, not {getattr(self, name)}")
