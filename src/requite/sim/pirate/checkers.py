"""Checkers of Pirate runs: one class per invariant, each with the evidence that it saw.

The numbers are those of ARCHITECTURE.md; rules without a number there have a name. The checkers
read messages without the code of the engines under test.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from requite.sim.kernel.checkers import robustness
from requite.sim.kernel.checkers.calls import (
    EndsOnce,
    HonestErrors,
    LosesNothing,
    OwnReply,
    PartialsInOrder,
)
from requite.sim.kernel.history import Checker, Execution, History
from requite.sim.kernel.workload import parse_task
from requite.sim.pirate.presence import HeardInTime
from requite.sim.pirate.queueing import TheQueue
from requite.sim.pirate.watch import Hub


class NeverRepeated(Checker):
    """A client retries only idempotent requests, and within the limit."""

    invariant = "I11"
    sentence = "a non-idempotent request is never re-sent once it may have run"

    def request_sent(self, hub: Hub, _peer: Any, message: Sequence[bytes]) -> None:
        """Check each attempt of a client."""
        task = parse_task(message) if hub.kind == "client" else None
        call = None if task is None else self.history.calls.get(task.number)
        if call is None:
            return
        call.sent += 1
        if call.sent > 1 and not call.idempotent:
            self.violate(f"{call} is not idempotent and may have run, but is sent again")
        if call.sent > call.tries_max:
            self.violate(f"{call} is sent {call.sent} times; at most {call.tries_max} are allowed")

    def execution_started(self, execution: Execution) -> None:
        """Check each start of a handler: only the client may retry."""
        call = execution.call
        if len(call.executions) > (call.sent if call.idempotent else 1):
            self.violate(f"{call} was sent {call.sent} times, but starts again as {execution}")


class LockStep(Checker):
    """A client has at most one request in flight per connection."""

    invariant = "lock-step"
    sentence = "a REQ socket has one request outstanding (Guide, Client-side Reliability)"

    def __init__(self, history: History) -> None:
        super().__init__(history)
        self._out: Counter[Any] = Counter()

    def request_sent(self, hub: Hub, peer: Any, _message: Sequence[bytes]) -> None:
        """Check that no request is in flight on the connection."""
        if hub.kind != "client":
            return
        self._out[peer] += 1
        if self._out[peer] > 1:
            self.violate(f"{hub} sends over a connection with a request in flight")

    def reply_came(self, hub: Hub, peer: Any, _message: Sequence[bytes]) -> None:
        """Record that the connection is free."""
        if hub.kind == "client":
            self._out[peer] -= 1

    def channel_lost(self, _hub: Hub, peer: Any) -> None:
        """Forget a connection."""
        self._out.pop(peer, None)


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
