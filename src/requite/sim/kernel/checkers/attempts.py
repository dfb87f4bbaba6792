"""Check the attempts of clients whose engines are observed (`requite.sim.kernel.hub`)."""

from __future__ import annotations

from typing import Any

from requite.sim.kernel.history import Call, Checker, Execution, History
from requite.sim.kernel.hub import Hub


class Resends(Checker):
    """A client retries only idempotent requests, and within the limit."""

    invariant = "I11"
    sentence = "a non-idempotent request is never re-sent once it may have run"

    def call_sent(self, hub: Hub, peer: Any, call: Call) -> None:
        """Check each attempt of a client."""
        call.sent += 1
        if call.sent > 1 and not call.idempotent:
            self.violate(f"{call} is not idempotent and may have run, but is sent again")
        if call.sent > call.tries_max:
            self.violate(f"{call} is sent {call.sent} times; at most {call.tries_max} are allowed")


class Attempts(Resends):
    """The same, in protocols where only a client can repeat a request."""

    def execution_started(self, execution: Execution) -> None:
        """Check each start of a handler."""
        call = execution.call
        if not call.idempotent and len(call.executions) > 1:
            self.violate(f"{call} is not idempotent, but starts again as {execution}")


class LockStep(Checker):
    """A client has at most one request in flight per connection, even if the call gave up."""

    invariant = "lock-step"
    sentence = "a REQ socket has one request outstanding (Guide, Client-side Reliability)"

    def __init__(self, history: History) -> None:
        super().__init__(history)
        self._out: dict[Any, Call] = {}

    def call_sent(self, hub: Hub, peer: Any, call: Call) -> None:
        """Check that no request is in flight on the connection."""
        if peer in self._out:
            self.violate(f"{call} is sent over a connection where {self._out[peer]} is in flight")
        self._out[peer] = call

    def reply_came(self, _hub: Hub, peer: Any, _message: Any) -> None:
        """Record that the connection is free."""
        self._out.pop(peer, None)

    def channel_lost(self, _hub: Hub, peer: Any) -> None:
        """Forget a connection."""
        self._out.pop(peer, None)


class SentInTime(Checker):
    """Clients send no request that has ended, or whose deadline has passed."""

    invariant = "I15"
    sentence = "expired or cancelled work never starts"

    def call_sent(self, _hub: Hub, _peer: Any, call: Call) -> None:
        """Check that a client's request has neither ended nor expired."""
        late_s = self.history.world.now - call.due_at
        if late_s > 0.0:
            self.violate(f"{call} is sent {late_s:.4f} s after its deadline")
        if call.cancelled or call.ended_at is not None:
            self.violate(f"{call} is sent, but has already ended or was cancelled")
