"""A Majordomo client's calls and settings."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

from requite.core import calls
from requite.core.liveness import HeartbeatPolicy
from requite.engine import Submit
from requite.errors import ConfigurationError
from requite.request import RetryPolicy
from requite.value import Value


@dataclass(frozen=True, slots=True)
class ClientPolicy(Value):
    """Settings of a client, in every dialect.

    - `slots`: the maximum of outstanding calls; further calls fail with `Overloaded`.
    - `retry`: see `RetryPolicy`. `attempt_timeout` applies to idempotent calls only: other calls
      could not be retried after it.
    - `heartbeat`: when a silent broker is pinged and counts as dead; not in dialects without ids.
    - `connections_max`: the maximum of requests in flight in a dialect without ids.
    - `hold_back`: the share of a call's time that is withheld from the timeout sent to the broker,
      so that the broker's own error, which says whether a worker had the request, arrives before
      the deadline here.
    - `notes`: emit `Note` effects: `sent`, `retried`, `turned-away`, `replied`, `failed`.
    """

    slots: int = 1024
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    heartbeat: HeartbeatPolicy = field(default_factory=HeartbeatPolicy)
    connections_max: int = 64
    hold_back: float = 0.0
    notes: bool = False

    def __post_init__(self) -> None:
        if self.connections_max < 1:
            raise ConfigurationError(
                f"connections_max must be at least 1, not {self.connections_max}"
            )
        if not 0 <= self.hold_back < 1:
            raise ConfigurationError(
                f"hold_back must be a number from 0 to below 1, not {self.hold_back}"
            )


class CallState(Enum):
    """State of a call."""

    HELD = "held"  # waits for a connection
    SENT = "sent"  # an attempt is with the broker
    RESTING = "resting"  # backs off between two attempts


# Module constants: a lookup through the class costs twice as much.
HELD: Final = CallState.HELD
SENT: Final = CallState.SENT
RESTING: Final = CallState.RESTING


class PendingCall(calls.PendingCall):
    """One call. `name` is its service on the wire. `call_id` is the same for all attempts,
    `request_id` new for each.

    `may_have_run` is about earlier attempts, not the current one. `partials` counts partial replies
    of the current attempt; `joined` are their frames, unless the user takes them
    (`wants_partials`). `turned_away` counts attempts that a broker gave back while shutting down;
    `tries` does not include them. `peer` is the connection of the current attempt, for engines with
    several connections. `principal`: see `Submit`.
    """

    __slots__ = (
        "idempotency_key",
        "joined",
        "may_have_run",
        "name",
        "partials",
        "peer",
        "principal",
        "request_id",
        "state",
        "turned_away",
        "wants_partials",
    )

    name: bytes
    may_have_run: bool

    def __init__(self, asked: Submit, name: bytes, call_id: bytes, now: float) -> None:
        self.take_from(asked, now)
        self.call_id = call_id
        self.name = name
        self.idempotency_key = asked.idempotency_key
        self.principal = asked.principal
        self.wants_partials = asked.partials
        self.request_id = -1
        self.state = HELD
        self.turned_away = 0
        self.may_have_run = False
        self.partials = 0
        self.joined: list[bytes] | None = None
        self.peer: Any = None

    @property
    def attempts(self) -> int:
        """See `requite.core.calls.PendingCall.attempts`."""
        return self.tries + self.turned_away

    @property
    def is_streaming(self) -> bool:
        """Whether the user has got partial replies, whose sequence must not restart (I5)."""
        return self.partials > 0 and self.wants_partials

    def facts(self) -> dict[str, Any]:
        """See `requite.core.calls.PendingCall.facts`."""
        return {
            "token": self.token,
            "service": self.service,
            "request_id": self.request_id,
            "attempts": self.tries,
            "call_id": self.call_id,
        }
