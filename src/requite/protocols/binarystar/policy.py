"""What may be set on one server of a pair."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from requite.core.liveness import INTERVAL_S_MAX, INTERVAL_S_MIN, HeartbeatPolicy
from requite.errors import ConfigurationError
from requite.protocols.binarystar.table import Role

HEARTBEAT_S_DEFAULT: Final = 1.0
# The Guide's: "If peer doesn't respond in two heartbeats, it is 'dead'".
LIVENESS: Final = 2


@dataclass(frozen=True, slots=True)
class BinaryStarPolicy:
    """Which of the two servers this is, and how often it is heard.

    - `heartbeat_s`: how often it tells the other its state, in seconds. After two of these without
      a word the other counts as gone. Where the two differ the longer one holds for both.
    - `notes`: make `Note` effects: `became`.
    """

    role: Role
    heartbeat_s: float = HEARTBEAT_S_DEFAULT
    notes: bool = False

    def __post_init__(self) -> None:
        if not INTERVAL_S_MIN <= self.heartbeat_s <= INTERVAL_S_MAX:
            raise ConfigurationError(
                f"the heartbeat of a pair is between 10 ms and 30 s, not {self.heartbeat_s} s"
            )

    @property
    def heartbeat(self) -> HeartbeatPolicy:
        """When the other server counts as gone."""
        return HeartbeatPolicy(self.heartbeat_s, LIVENESS)

    @property
    def heartbeat_ms(self) -> int:
        """The heartbeat as it is announced on the wire."""
        return self.heartbeat.interval_ms

    @property
    def failover_s(self) -> float:
        """How long an active may be silent before the other may take over, at least."""
        return self.heartbeat.silence_s
