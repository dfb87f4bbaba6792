"""I13: whatever strangers send, no process ends and no honest peer is made to pay for it."""

from __future__ import annotations

from requite.sim.history import Checker
from requite.sim.process import Process


class NobodyNotices(Checker):
    """No exception leaves an engine, a framing or a host; nobody honest is sent away."""

    invariant = "I13"
    sentence = "garbage bytes never end a loop or a process"

    def process_failed(self, process: Process, trace: str) -> None:
        """Check what ends a process: never an exception."""
        self.violate(f"{process.name} ends with an exception:\n{trace}")

    def expelled(self, process: Process, reason: str) -> None:
        """Check who is sent away."""
        self.violate(f"{process.name}, which is honest, is sent away: {reason}")
