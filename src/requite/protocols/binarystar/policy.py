"""Settings of one server of a pair."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from requite.core.liveness import INTERVAL_S_MAX, INTERVAL_S_MIN, HeartbeatPolicy
from requite.errors import ConfigurationError
from requite.protocols.binarystar.table import PairRole
from requite.value import Value

HEARTBEAT_S_DEFAULT: Final = 1.0
# The Guide's: "If peer doesn't respond in two heartbeats, it is 'dead'".
LIVENESS: Final = 2


@dataclass(frozen=True, slots=True)
class BinaryStarPolicy(Value):
    """Role and heartbeat of one server of a pair.

    - `heartbeat_s`: the heartbeat interval in seconds. After two intervals without a heartbeat the
      other server counts as dead. If the servers' intervals differ, the longer one applies to both.
    - `notes`: emit `Note` effects: `became`.
    """

    role: PairRole
    heartbeat_s: float = HEARTBEAT_S_DEFAULT
    notes: bool = False

    def __post_init__(self) -> None:
        if not INTERVAL_S_MIN <= self.heartbeat_s <= INTERVAL_S_MAX:
            raise ConfigurationError(
                f"the heartbeat of a pair is between 10 ms and 30 s, not {self.heartbeat_s} s"
            )

    @property
    def heartbeat(self) -> HeartbeatPolicy:
        """The heartbeat policy of the link."""
        return HeartbeatPolicy(self.heartbeat_s, LIVENESS)

    @property
    def heartbeat_ms(self) -> int:
        """The interval in milliseconds, as on the wire."""
        return self.heartbeat.interval_ms

    @property
    def failover_s(self) -> float:
        """Minimum silence of an active server, in seconds, before the other may take over."""
        return self.heartbeat.silence_s
