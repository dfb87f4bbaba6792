"""I13 for parties: whatever strangers send, no process ends and nobody honest is made to pay."""

from __future__ import annotations

from typing import Any, ClassVar

from requite.sim.history import Checker
from requite.sim.process import Process


class NobodyNotices(Checker):
    """No exception leaves an engine, a framing or a host; nobody honest is sent away."""

    invariant = "I13"
    sentence = "garbage bytes never end a loop or a process"
    fair: ClassVar[tuple[str, ...]] = (
        "closed",
        "drain",
        "shut",
        "leav",
    )  # reasons to send somebody honest away

    def process_failed(self, process: Process, trace: str) -> None:
        """Check what ends a process: never an exception."""
        self.violate(f"{process.name} ends with an exception:\n{trace}")

    def expelled(self, process: Process, reason: str) -> None:
        """Check whose bytes a framing refuses."""
        if process.is_honest:
            self.violate(f"{process.name}, which is honest, is sent away: {reason}")

    def sent_away(self, hub: Any, peer: Any, reason: str) -> None:
        """Check whom an engine disconnects."""
        if peer.stream.other.process.is_honest and not self.is_fair(reason):
            self.violate(f"{hub} sends {hub.names[peer]} away, which is honest: {reason}")

    def is_fair(self, reason: str) -> bool:
        """Whether somebody honest may be sent away for that."""
        return any(word in reason for word in self.fair)
