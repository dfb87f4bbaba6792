"""I13 for parties: whatever intruders send, no process ends, no honest peer is disconnected."""

from __future__ import annotations

from typing import Any, ClassVar

from requite.sim.kernel.history import Checker
from requite.sim.kernel.process import Process


class NobodyNotices(Checker):
    """No exception escapes an engine, a framing or a host; no honest peer is disconnected."""

    invariant = "I13"
    sentence = "garbage bytes never end a loop or a process"
    fair: ClassVar[tuple[str, ...]] = (
        "closed",
        "drain",
        "shut",
        "leav",
    )  # reasons for which an honest peer may be disconnected

    def process_failed(self, process: Process, trace: str) -> None:
        """Report a process that ended with an exception."""
        self.violate(f"{process.name} ends with an exception:\n{trace}")

    def expelled(self, process: Process, reason: str) -> None:
        """Check that a framing refuses no honest peer's bytes."""
        if process.is_honest:
            self.violate(f"{process.name}, which is honest, is disconnected: {reason}")

    def sent_away(self, hub: Any, peer: Any, reason: str) -> None:
        """Check that an engine disconnects no honest peer without a fair reason."""
        if peer.stream.other.process.is_honest and not self._is_fair(reason):
            self.violate(f"{hub} disconnects {hub.names[peer]}, which is honest: {reason}")

    def _is_fair(self, reason: str) -> bool:
        """Whether an honest peer may be disconnected for this reason."""
        return any(word in reason for word in self.fair)
