"""I13: whatever intruders send, no process ends and no honest peer is disconnected."""

from __future__ import annotations

from functools import cached_property
from typing import Final

from requite.engine import Cause, Disconnect
from requite.sim.kernel.history import Checker
from requite.sim.kernel.process import Process

_SLACK_S: Final = 0.005


class NobodyNotices(Checker):
    """No exception escapes an engine, a framing or a host; no honest peer is disconnected."""

    invariant = "I13"
    sentence = "garbage bytes never end a loop or a process"

    def process_failed(self, process: Process, trace: str) -> None:
        """Report a process that ended with an exception."""
        self.violate(f"{process.name} ends with an exception:\n{trace}")

    @cached_property
    def _silence_s(self) -> dict[str, float]:
        silence_s: dict[str, float] = self.knobs.silence_s
        return silence_s

    def gave_up_on_broker(self, name: str, effect: Disconnect, silent_s: float) -> None:
        """Check why a client or worker leaves its broker. `silent_s` is infinite for a broker that
        has sent nothing yet: no heartbeat interval is negotiated with it."""
        if effect.cause is Cause.DONE:
            return
        if silent_s < self._silence_s[name] - _SLACK_S:
            heard = f"{name} heard its broker {silent_s:.3f} s ago"
            self.violate(f"{heard}, and leaves it, which is honest: {effect.reason}")

    def expelled(self, process: Process, reason: str) -> None:
        """Report an honest peer that a framing disconnects."""
        self.violate(f"{process.name}, which is honest, is disconnected: {reason}")
