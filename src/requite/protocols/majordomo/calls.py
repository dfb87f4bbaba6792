"""The nouns of a Majordomo client: a call in progress, and what may be set and seen."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

from requite.core import calls
from requite.core.liveness import HeartbeatPolicy
from requite.engine import Submit
from requite.errors import ConfigurationError
from requite.request import RetryPolicy


@dataclass(frozen=True, slots=True)
class ClientPolicy:
    """What may be set on a client, in every dialect.

    - `slots`: how many calls may be outstanding at a time; more end with `Overloaded`.
    - `retry`: see `RetryPolicy`. `attempt_timeout` applies to idempotent calls alone: there is no
      use in giving a try up after which there cannot be another.
    - `heartbeat`: how a broker that went silent is noticed; dialects without ids cannot ask it.
    - `connections_max`: how many requests of a dialect without ids may be out at a time.
    - `hold_back`: the share of a call's time that the broker is not told of, so that its own end of
      the call, and its word whether a worker ever had it, come before the deadline here.
    - `notes`: make `Note` effects: `sent`, `retried`, `turned-away`, `replied`, `failed`.
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
            raise ConfigurationError(f"hold_back is a share below 1, not {self.hold_back}")


class CallState(Enum):
    """Where a call is between its submission and its end."""

    HELD = "held"  # waits for a connection
    SENT = "sent"  # a try is with the broker
    RESTING = "resting"  # waits out the time between two tries


# By these names a look-up costs half as much as through the class.
HELD: Final = CallState.HELD
SENT: Final = CallState.SENT
RESTING: Final = CallState.RESTING


class PendingCall(calls.PendingCall):
    """One call. `name` is its service on the wire. `call_id` is the same for all tries,
    `request_id` new for each.

    `may_have_run` tells it of the tries that are over; of the present one nothing is known.
    `partials` counts those of the present try; `joined` are their frames unless the user takes them
    (`wants_partials`). `turned_away` counts the tries that a broker gave back because it is
    shutting down; they are not among `tries`. `peer` is where the present try is, for engines with
    more than one connection.
    """

    __slots__ = (
        "idempotency_key",
        "joined",
        "may_have_run",
        "name",
        "partials",
        "peer",
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
        """Whether the user has been given partials: the sequence cannot start anew (I5)."""
        return self.partials > 0 and self.wants_partials

    def facts(self) -> dict[str, Any]:
        """See `requite.core.calls.PendingCall.facts`."""
        return {
            "token": self.token,
            "service": self.service,
            "request_id": self.request_id,
            "attempts": self.tries,
        }
