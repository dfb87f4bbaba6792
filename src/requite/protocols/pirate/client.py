"""The Lazy Pirate: a client that asks, waits a while, and asks again on a new connection.

    HELD ──► SENT ──► answered
      ▲        │
      └────────┘   no reply came in time, or the connection was lost

and out of both states: failed, timed out, cancelled. There is nothing on the wire that tells
replies apart, so each connection is a lane (`requite.core.lanes`), as a REQ socket is, and several
calls have several connections. When a try is given up its connection is closed (I2). At the other
end that is how a server, or a queue, learns that nobody waits any more.

A request that is not idempotent is sent once. What a call's deadline leaves of it is not spent on a
server that cannot be reached: it is held until there is a connection.

Source: Guide, "Client-side Reliability (Lazy Pirate Pattern)".
"""

from __future__ import annotations

from math import inf
from types import SimpleNamespace
from typing import ClassVar

from requite.chronicle import NO_INSTANCE, Chronicle
from requite.core.calls import Calls, times
from requite.core.lanes import Lanes
from requite.core.machine import Handlers, Machine, take_no_notice
from requite.core.recording import call_observer
from requite.engine import (
    Cancel,
    Connect,
    Disconnect,
    Drain,
    Peer,
    PeerBlocked,
    PeerJoined,
    PeerLost,
    PeerWritable,
    Received,
    Send,
    Stopped,
    Submit,
    Wake,
    Warn,
)
from requite.errors import CallError, LocalViolation
from requite.protocols.pirate import failures
from requite.protocols.pirate.calls import PendingCall
from requite.protocols.pirate.policy import ClientPolicy
from requite.request import RetryBudget


class LazyPirate(Machine):
    """A client of the place its shell dials. An idempotency key, or a wish for partial replies, is
    a `LocalViolation`.

    `origin`, by which journals know the client, should be random per start; `chronicle` takes down
    what happens to calls.
    """

    _kind: ClassVar = "a client"

    def __init__(
        self,
        policy: ClientPolicy | None = None,
        *,
        origin: bytes = NO_INSTANCE,
        chronicle: Chronicle | None = None,
    ) -> None:
        self._policy = policy = policy or ClientPolicy()
        self.calls: Calls[PendingCall] = Calls(
            policy.slots,
            call_observer(chronicle, origin, notes=policy.notes),
            fail=self._fail,
            time_out=self._time_out,
            expired=failures.expired,
            try_s=policy.retry.attempt_timeout,
        )
        super().__init__()
        self._retry = policy.retry
        self._budget = RetryBudget(policy.retry)
        self._waiting: dict[PendingCall, None] = {}  # HELD ones, in the order of submission
        self._lanes: Lanes[PendingCall] = Lanes(policy.connections_max)
        self._stray = 0

    def _handlers(self) -> Handlers:
        return {
            Submit: self._submitted,
            Received: self._received,
            Cancel: self._cancelled,
            Wake: self._woken,
            PeerJoined: self._joined,
            PeerLost: self._lost,
            # One request waits there at most, the caller's own object.
            PeerBlocked: take_no_notice,
            PeerWritable: take_no_notice,
            Drain: self._drained,
        }

    def deadline(self) -> float | None:
        """See `requite.engine.Engine.deadline`."""
        at = self.calls.next_at()
        return None if at == inf else at

    def snapshot(self) -> SimpleNamespace:
        """Return the counts of all tables. `dialling` connections are not up yet."""
        held = len(self._waiting)
        return SimpleNamespace(
            connections=len(self._lanes),
            dialling=self._lanes.dialling,
            held=held,
            sent=len(self.calls) - held,
            resent=self.calls.resent,
            stray=self._stray,
            stopped=self._stopped,
        )

    # --- from the user ----------------------------------------------------------------------------
    def _submitted(self, asked: Submit, now: float) -> None:
        if asked.idempotency_key or asked.partials:
            raise LocalViolation("REQ carries no idempotency key, and has one reply per request")
        if not self.calls.refuse(asked.token, asked.service, asked.deadline, self._out, now):
            call = PendingCall(asked, now)
            self.calls.take_on(call)
            self._budget.earn()
            self._hold(call)
        self._supply(now)

    def _cancelled(self, event: Cancel, now: float) -> None:
        self.calls.cancelled(event, now)
        self._supply(now)

    def _drained(self, _event: Drain, now: float) -> None:
        if self._stopped:
            return
        self._stopped = True
        self.calls.close(now)
        self._out += (Disconnect(peer, "the client was closed") for peer in self._lanes)
        self._lanes.clear()
        self._out.append(Stopped())

    # --- the life of a try ------------------------------------------------------------------------
    def _hold(self, call: PendingCall) -> None:
        """Let a call wait for a connection, in the order of submission."""
        call.peer = None
        self.calls.wait_until(call, call.deadline)
        self._waiting[call] = None
        if call.tries:
            self._waiting = {each: None for each in self.calls.values() if each in self._waiting}

    def _supply(self, now: float) -> None:
        """Give idle connections to calls that wait, and open as many more as are needed."""
        while self._lanes.idle and self._waiting:
            call = next(iter(self._waiting))
            del self._waiting[call]
            if now >= call.deadline:  # its timer is late (I15)
                self._fail(call, failures.expired(call, now), now)
                continue
            self._transmit(call, now)
        wanted = self._lanes.wanted(len(self._waiting))
        self._out += (Connect() for _ in range(wanted))

    def _transmit(self, call: PendingCall, now: float) -> None:
        call.peer = peer = self._lanes.occupy(call)
        self._out.append(Send(peer, call.frames))
        self.calls.sent(call, self._out, now)

    def _received(self, event: Received, now: float) -> None:
        peer, messages = event.peer, event.messages
        if peer not in self._lanes:
            return  # the rest of a connection that was closed
        call = self._lanes.calls[peer]
        strays = len(messages) - (call is not None)
        if call is not None and messages:
            self._lanes.vacate(peer)
            self.calls.answer(call, messages[0], call.tries, self._out, now)
        # Not before the whole batch is read: none of it can be a reply to what is sent only now.
        if strays > 0:
            self._distrust(peer, strays)
        else:
            self._lanes.rest(peer)
        self._supply(now)

    def _distrust(self, peer: Peer, strays: int) -> None:
        """Close a connection that brought more replies than requests: the next ones would be taken
        for replies to what was not asked yet (I2)."""
        self._stray += strays
        self._lanes.drop(peer)
        text = "a reply came on a connection that asks nothing"
        self._out += (Warn("stray reply", text), Disconnect(peer, text))

    def _recall(self, call: PendingCall) -> None:
        """Close the connection of a try that is given up: its reply must not come."""
        if call.peer is not None:
            self._lanes.drop(call.peer)
            self._out.append(Disconnect(call.peer, "its request was given up: no reply must come"))
            call.peer = None

    def _try_again(self, call: PendingCall, why: str, now: float) -> None:
        call.loss = why
        self.calls.take_back(call, why, now)
        self._hold(call)
        self.calls.remark("retried", call, self._out, reason=why)

    def _fail(self, call: PendingCall, error: CallError, now: float) -> None:
        self._recall(call)
        self._waiting.pop(call, None)
        self.calls.end(call, error, self._out, now)

    # --- connections ------------------------------------------------------------------------------
    def _joined(self, event: PeerJoined, now: float) -> None:
        if self._stopped:
            self._out.append(Disconnect(event.peer, "the client is closed"))
            return
        if not self._lanes.join(event.peer):
            self._out.append(Disconnect(event.peer, "this connection is not needed"))
            return
        self._lanes.rest(event.peer)
        self._supply(now)

    def _lost(self, event: PeerLost, now: float) -> None:
        if event.peer not in self._lanes:
            return
        call = self._lanes.drop(event.peer)
        if call is not None:
            call.peer = None
            self._interrupt(call, event.reason or "it was closed", now)
        self._supply(now)

    def _interrupt(self, call: PendingCall, reason: str, now: float) -> None:
        """Hold a call whose connection has gone for the next one, or give it up (I11)."""
        if not call.idempotent:
            why = "it may have run, and is not idempotent"
        elif call.tries >= self._retry.attempts:
            why = f"it may have run, and was sent {times(call.tries)}, which is the limit"
        else:
            self._try_again(call, f"its connection was lost: {reason}", now)
            return
        self._fail(call, failures.lost(call, reason, why), now)

    # --- time -------------------------------------------------------------------------------------
    def _woken(self, event: Wake, now: float) -> None:
        self.calls.woken(event, now)
        self._supply(now)

    def _time_out(self, call: PendingCall, now: float) -> None:
        """End a try that took too long; there may be another one, if the budget has it (I11)."""
        try_s = self._retry.attempt_timeout
        self._recall(call)
        if call.tries >= self._retry.attempts:
            why = "no more attempts are allowed"
        elif not self._budget.maybe_spend():
            why = "too many calls of this client were repeated of late"
        else:
            self._try_again(call, f"no reply within {try_s:g} s", now)
            return
        self._fail(call, failures.silent(call, try_s, why), now)
