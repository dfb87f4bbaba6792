"""Who is alive: the one rule of heartbeats, for one peer.

Both ends agree on an interval. Each sends something at least that often (any message counts, so a
HEARTBEAT is needed only when nothing else went out: 18/MDP "Heartbeating") and counts the other as
gone after `liveness` silent intervals. In MDP 0.3 the ends tell each other their intervals and the
longer one holds for both, so that a hasty peer cannot condemn a slow one.

An engine owns a `Liveness` for each peer. When it is woken it asks, in this order:

    have I been away?    `absence_s`; if so, `excuse` its peers: what they sent is still unread
    is the peer gone?    `now >= gone_at()`
    must I speak?        `now >= speak_at()`, and `ask_at()` where the peer speaks only when asked

The protocol decides when to check again, and when not to judge a peer at all (a busy worker, a
connection with back-pressure).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from requite.errors import ConfigurationError
from requite.value import Value

INTERVAL_S_MIN: Final = 0.010
INTERVAL_S_MAX: Final = 30.0
# The RFC says "usually 3-5"; three is the Guide's number.
LIVENESS_DEFAULT: Final = 3
INTERVAL_S_DEFAULT: Final = 1.0


@dataclass(frozen=True, slots=True)
class HeartbeatPolicy(Value):
    """The heartbeat interval, and after how many silent intervals (`liveness`) a peer is dead."""

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
        """The interval in milliseconds, as on the wire."""
        return round(self.interval_s * 1000)

    @property
    def silence_s(self) -> float:
        """How long a peer may be silent, in seconds."""
        return self.interval_s * self.liveness


def heartbeat_of(
    given: HeartbeatPolicy | float | None, usual: HeartbeatPolicy | None = None
) -> HeartbeatPolicy:
    """Return the policy for a setting: a policy, an interval in seconds, or None (the default)."""
    if given is None:
        return usual or HeartbeatPolicy()
    return given if isinstance(given, HeartbeatPolicy) else HeartbeatPolicy(interval_s=given)


def announced_s(interval_ms: int) -> float:
    """Return the interval that a peer has announced, within the limits."""
    return min(max(interval_ms / 1000, INTERVAL_S_MIN), INTERVAL_S_MAX)


class Liveness:
    """Instants of one peer: last message received (`heard_at`), last message sent (`spoke_at`),
    last ping (`asked_at`). `silence_s` is how long it may be silent.

    These are plain attributes: engines write them on their hot paths.
    """

    __slots__ = ("_liveness", "asked_at", "heard_at", "interval_s", "silence_s", "spoke_at")

    def __init__(self, policy: HeartbeatPolicy, now: float) -> None:
        self._liveness = policy.liveness
        self.interval_s = policy.interval_s
        self.silence_s = policy.silence_s
        self.heard_at = self.spoke_at = self.asked_at = now

    def agree(self, interval_ms: int) -> None:
        """Adopt the peer's announced interval, if it is longer."""
        self.interval_s = max(self.interval_s, announced_s(interval_ms))
        self.silence_s = self.interval_s * self._liveness

    def excuse(self, absence_s: float, now: float) -> None:
        """Do not count a pause of this process as silence of the peer."""
        self.heard_at = min(now, self.heard_at + absence_s)

    def gone_at(self) -> float:
        """Return the instant at which a silent peer counts as dead."""
        return self.heard_at + self.silence_s

    def speak_at(self) -> float:
        """Return the instant by which we must send something: the peer judges us too."""
        return self.spoke_at + self.interval_s

    def ask_at(self) -> float:
        """Return when to ping a silent peer."""
        return max(self.heard_at, self.asked_at) + self.interval_s

    def next_at(self) -> float:
        """Return the next instant to check a peer that sends heartbeats unasked."""
        return min(self.gone_at(), self.speak_at())


def absence_s(planned_at: float, now: float, interval_s: float) -> float:
    """Return how long this process was paused (frozen, or its machine suspended), in seconds.

    This is the delay of a check that was planned for `planned_at`, if it exceeds `interval_s`, else
    0.0: a timer may be a little late.
    """
    late_s = now - planned_at
    return late_s if late_s > interval_s else 0.0
