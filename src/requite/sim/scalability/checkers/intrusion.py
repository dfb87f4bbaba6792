"""I13: whatever strangers send, no process ends and no honest peer is made to pay for it."""

from __future__ import annotations

from typing import Any, Final

from requite.sim.history import Checker
from requite.sim.process import Process
from requite.sim.scalability.watch import Hub

# Why a process may send an honest peer away.
_FAIR_REASONS: Final = ("closed", "drain", "shut", "leav")


class NobodyNotices(Checker):
    """No exception leaves an engine, a framing or a host; nobody honest is sent away."""

    invariant = "I13"
    sentence = "garbage bytes never end a loop or a process"

    def process_failed(self, process: Process, trace: str) -> None:
        """Check what ends a process: never an exception."""
        self.violate(f"{process.name} ends with an exception:\n{trace}")

    def expelled(self, process: Process, reason: str) -> None:
        """Check whose bytes a framing refuses."""
        if process.is_honest:
            self.violate(f"{process.name}, which is honest, is sent away: {reason}")

    def sent_away(self, hub: Hub, peer: Any, reason: str) -> None:
        """Check whom an engine disconnects."""
        is_honest = peer.stream.other.process.is_honest
        if is_honest and not any(word in reason for word in _FAIR_REASONS):
            self.violate(f"{hub} sends {hub.names[peer]} away, which is honest: {reason}")
