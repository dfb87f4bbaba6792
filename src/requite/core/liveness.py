"""Who is alive: the arithmetic of heartbeats for one peer.

Both ends agree on an interval. Each sends something at least that often (any message counts, so a
HEARTBEAT is needed only when nothing else went out: 18/MDP "Heartbeating") and counts the other as
gone after `liveness` silent intervals. In MDP 0.3 the ends tell each other their intervals and the
longer one holds for both, so that a hasty peer cannot condemn a slow one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from requite.errors import ConfigurationError

INTERVAL_S_MIN: Final = 0.010
INTERVAL_S_MAX: Final = 30.0
# The RFC says "usually 3-5"; three is the Guide's number.
LIVENESS_DEFAULT: Final = 3
INTERVAL_S_DEFAULT: Final = 1.0


@dataclass(frozen=True, slots=True)
class HeartbeatPolicy:
    """How often to be heard, and after how many silent intervals (`liveness`) a peer is gone."""

    interval_s: float = INTERVAL_S_DEFAULT
    liveness: int = LIVENESS_DEFAULT

    def __post_init__(self) -> None:
        if not INTERVAL_S_MIN <= self.interval_s <= INTERVAL_S_MAX:
            raise ConfigurationError(
                f"the heartbeat interval must be between 10 ms and 30 s, not {self.interval_s} s"
            )
        if not 2 <= self.liveness <= 100:
            raise ConfigurationError(f"liveness must be between 2 and 100, not {self.liveness}")

    @property
    def interval_ms(self) -> int:
        """The interval as it is announced on the wire."""
        return round(self.interval_s * 1000)


class Heartbeat:
    """The state of one peer: when it was heard, when it was spoken to.

    `heard_at` and `spoke_at` are plain attributes, written by the engine on its hot path.
    """

    __slots__ = ("heard_at", "interval_s", "liveness", "spoke_at")

    def __init__(self, policy: HeartbeatPolicy, now: float) -> None:
        self.interval_s = policy.interval_s
        self.liveness = policy.liveness
        self.heard_at = now
        self.spoke_at = now

    def agree(self, interval_ms: int) -> None:
        """Take the interval the peer announced into account: the longer one holds."""
        announced_s = min(max(interval_ms / 1000, INTERVAL_S_MIN), INTERVAL_S_MAX)
        self.interval_s = max(self.interval_s, announced_s)

    def gone_at(self) -> float:
        """Return the instant at which silence means that the peer is gone."""
        return self.heard_at + self.interval_s * self.liveness

    def speak_at(self) -> float:
        """Return the instant by which something must be sent."""
        return self.spoke_at + self.interval_s

    def next_at(self) -> float:
        """Return the earlier of the two: when this peer needs attention."""
        return min(self.gone_at(), self.speak_at())
