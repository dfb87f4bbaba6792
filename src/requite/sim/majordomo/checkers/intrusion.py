"""I13: whatever intruders send, no client or worker leaves its broker without a reason."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Final

from requite.engine import Cause, Disconnect
from requite.sim.kernel.checkers import robustness

_SLACK_S: Final = 0.005


class NobodyNotices(robustness.NobodyNotices):
    """No exception escapes an engine, a framing or a host; no honest peer is disconnected."""

    @cached_property
    def _silence_s(self) -> dict[str, float]:
        silence_s: dict[str, float] = self.knobs.silence_s
        return silence_s

    def sent_away(self, hub: Any, effect: Disconnect) -> None:
        """Check why a client or worker leaves its broker."""
        if effect.cause is Cause.DONE:
            return
        silent_s = hub.silent_s(effect.peer)
        if silent_s < self._silence_s[hub.name] - _SLACK_S:
            heard = f"{hub} heard its broker {silent_s:.3f} s ago"
            self.violate(f"{heard}, and leaves it, which is honest: {effect.reason}")
