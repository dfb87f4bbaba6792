"""I13 for parties: whatever intruders send, no process ends, no honest peer is disconnected."""

from __future__ import annotations

from typing import Any

from requite.engine import Cause, Disconnect
from requite.sim.kernel.history import Checker
from requite.sim.kernel.process import Process


class NobodyNotices(Checker):
    """No exception escapes an engine, a framing or a host; no honest peer is disconnected."""

    invariant = "I13"
    sentence = "garbage bytes never end a loop or a process"

    def process_failed(self, process: Process, trace: str) -> None:
        """Report a process that ended with an exception."""
        self.violate(f"{process.name} ends with an exception:\n{trace}")

    def expelled(self, process: Process, reason: str) -> None:
        """Check that a framing refuses no honest peer's bytes."""
        if process.is_honest:
            self.violate(f"{process.name}, which is honest, is disconnected: {reason}")

    def sent_away(self, hub: Any, effect: Disconnect) -> None:
        """Check that an engine accuses no honest peer of a protocol error."""
        peer: Any = effect.peer
        if effect.cause is Cause.FAULTY and peer.stream.other.process.is_honest:
            self.violate(f"{hub} disconnects {hub.names[peer]}, which is honest: {effect.reason}")
