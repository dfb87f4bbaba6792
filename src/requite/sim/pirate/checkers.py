"""Checkers of Pirate runs: one class per invariant, each with the evidence that it saw.

The numbers are those of ARCHITECTURE.md; rules without a number there have a name. The checkers
read messages without the code of the engines under test.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from requite.sim.kernel.checkers import robustness
from requite.sim.kernel.checkers.attempts import Attempts, LockStep
from requite.sim.kernel.checkers.calls import (
    EndsOnce,
    HonestErrors,
    LosesNothing,
    OwnReply,
    PartialsInOrder,
)
from requite.sim.kernel.history import Checker, Execution, History
from requite.sim.kernel.hub import Hub
from requite.sim.kernel.workload import parse_task
from requite.sim.pirate.presence import HeardInTime
from requite.sim.pirate.queueing import TheQueue


class NeverRepeated(Attempts):
    """A client retries only idempotent requests, and within the limit; nobody else retries."""

    def execution_started(self, execution: Execution) -> None:
        """Check each start of a handler."""
        call = execution.call
        if len(call.executions) > (call.sent if call.idempotent else 1):
            self.violate(f"{call} was sent {call.sent} times, but starts again as {execution}")


class NeverStartedInVain(Checker):
    """A server starts no request whose client has disconnected. (`TheQueue` checks queues.)"""

    invariant = "I15"
    sentence = "expired or cancelled work never starts"

    def __init__(self, history: History) -> None:
        super().__init__(history)
        self._waiting: dict[tuple[str, int], list[Any]] = {}  # by server and call: connections

    def request_came(self, hub: Hub, peer: Any, message: Sequence[bytes]) -> None:
        """Record a received request."""
        task = parse_task(message) if hub.kind == "server" else None
        if task is not None:
            self._waiting.setdefault((hub.name, task.number), []).append(peer)

    def channel_lost(self, hub: Hub, peer: Any) -> None:
        """Forget the requests of a lost connection."""
        if hub.kind == "server":
            for waiting in self._waiting.values():
                if peer in waiting:
                    waiting.remove(peer)

    def execution_started(self, execution: Execution) -> None:
        """Check that the client is still connected."""
        waiting = self._waiting.get((execution.worker, execution.call.number))
        if waiting == []:
            self.violate(f"no client waits for {execution.call}, but {execution} starts")
        elif waiting:
            waiting.pop(0)


class NobodyNotices(robustness.NobodyNotices):
    """No exception escapes an engine, a framing or a host; no honest peer is disconnected for a
    protocol error; no message is sent to a lost connection."""

    def sent_in_vain(self, hub: Hub, _peer: Any, message: Sequence[bytes]) -> None:
        """Report a message to a lost connection."""
        self.violate(f"{hub} sends over a lost connection: {message!r}")


PIRATE_CHECKERS: Final[tuple[type[Checker], ...]] = (
    EndsOnce,
    OwnReply,
    PartialsInOrder,
    NeverRepeated,
    HonestErrors,
    LockStep,
    NeverStartedInVain,
    TheQueue,
    HeardInTime,
    NobodyNotices,
    LosesNothing,
)
