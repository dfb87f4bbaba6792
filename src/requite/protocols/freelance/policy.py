"""Settings of clients and servers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from requite.core.liveness import HeartbeatPolicy
from requite.errors import ConfigurationError
from requite.protocols.freelance.wire import Model
from requite.request import RetryPolicy
from requite.value import Value

ATTEMPT_S_DEFAULT: Final = 1.0
"""Guide, `flclient1`: REQUEST_TIMEOUT, the timeout of one server in model one."""

ATTEMPTS_DEFAULT: Final = 3
"""Guide, `flclient1`: MAX_RETRIES, for a single server."""

PING_DEFAULT: Final = HeartbeatPolicy(interval_s=2.0, liveness=3)
"""Guide, `flcliapi`: PING_INTERVAL, and SERVER_TTL, which is three of them; 10/FLP says "usually
2-3"."""

LIVES_WHILE_PRESSED: Final = 5
"""Factor by which a server with back-pressure may be silent for longer: our ping is queued behind a
large body."""

_SLOTS_MAX: Final = 1 << 24


@dataclass(frozen=True, slots=True)
class ClientPolicy(Value):
    """Settings of a client.

    - `servers`: the number of servers. Model one tries each of several once.
    - `slots`: the maximum of outstanding calls; further calls fail with `Overloaded`.
    - `retry`: see `RetryPolicy`. In model two, `attempts` bounds the attempts per server, and
      `attempt_timeout` is not used; in the others it applies to idempotent calls only (None: an
      attempt lasts as long as its server is live). There are no pauses between attempts. A request
      that was lost with its server is retried outside of the budget, since that adds no load.
    - `ping`: when a silent server is pinged, and when it counts as dead.
    - `notes`: emit `Note` effects: `sent`, `replied`, `failed`, `server-live`, `server-gone`.
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
class ServerPolicy(Value):
    """Settings of a server.

    - `model`: the clients it serves (`wire.Model`).
    - `capacity`: the maximum of concurrent handlers. Further requests are queued per client.
    - `queue_max`, `queue_size_max`: the maximum of queued requests, and of their bytes, per client.
      At the limit, the client is not read from until half of them are gone.
    - `reply_size_max`: the maximum size of a reply joined from partial ones, in bytes.
    - `notes`: emit `Note` effects: `delivered`, `finished`, `abandoned`, `dropped`.
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
