"""The Lazy Pirate: a client that retries after a timeout, on a new connection.

    HELD ──► SENT ──► answered
      ▲        │
      └────────┘   attempt timed out, or connection lost

A call in either state may also fail, time out or be cancelled. Replies do not identify their
requests, so each connection is a lane (`requite.core.lanes`), as a REQ socket is, and concurrent
calls use several connections. When an attempt is abandoned, its connection is closed (I2), which
also tells the server or queue that the caller does not wait any more.

A request that is not idempotent is sent once. While no server can be reached, calls are held, and
use up no attempts.

Source: Guide, "Client-side Reliability (Lazy Pirate Pattern)".
"""

from __future__ import annotations

from math import inf
from types import SimpleNamespace
from typing import ClassVar

from requite.chronicle import NO_INSTANCE, Chronicle
from requite.core.calls import Calls, times
from requite.core.lanes import Lanes
from requite.core.machine import Handlers, Machine, ignore_input
from requite.core.recording import call_observer
from requite.engine import (
    Cancel,
    Cause,
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
    """A client of the address that its shell dials. An idempotency key or partial replies are a
    `LocalViolation`.

    `origin` identifies the client in journals and should be random per start. `chronicle` journals
    calls.
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
        self._waiting: dict[PendingCall, None] = {}  # HELD calls, in the order of submission
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
            # At most one request is queued there, without a copy.
            PeerBlocked: ignore_input,
            PeerWritable: ignore_input,
            Drain: self._drained,
        }

    def deadline(self) -> float | None:
        """See `requite.engine.Engine.deadline`."""
        at = self.calls.next_at()
        return None if at == inf else at

    def snapshot(self) -> SimpleNamespace:
        """Return the counts of all tables. `dialling` connections are being established."""
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
            raise LocalViolation(
                "REQ does not carry idempotency keys, and has one reply per request"
            )
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
        self._out += (Disconnect(peer, "the client was closed", Cause.DONE) for peer in self._lanes)
        self._lanes.clear()
        self._out.append(Stopped())

    # --- attempts ---------------------------------------------------------------------------------
    def _hold(self, call: PendingCall) -> None:
        """Hold a call until there is a connection, in order of submission."""
        call.peer = None
        self.calls.wait_until(call, call.deadline)
        self._waiting[call] = None
        if call.tries:
            self._waiting = {each: None for each in self.calls.values() if each in self._waiting}

    def _supply(self, now: float) -> None:
        """Send held calls on idle connections, and open as many connections as are needed."""
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
            return  # of a connection that was closed
        call = self._lanes.calls[peer]
        strays = len(messages) - (call is not None)
        if call is not None and messages:
            self._lanes.vacate(peer)
            self.calls.answer(call, messages[0], call.tries, self._out, now)
        # Only after the whole batch: none of it can answer a request that is sent now.
        if strays > 0:
            self._distrust(peer, strays)
        else:
            self._lanes.rest(peer)
        self._supply(now)

    def _distrust(self, peer: Peer, strays: int) -> None:
        """Close a connection with more replies than requests: further ones would be taken for
        replies to later requests (I2)."""
        self._stray += strays
        self._lanes.drop(peer)
        text = "received a reply on a connection without a request"
        self._out += (Warn("stray reply", text), Disconnect(peer, text, Cause.FAULTY))

    def _recall(self, call: PendingCall) -> None:
        """Close the connection of an abandoned attempt, so that its reply cannot arrive."""
        if call.peer is not None:
            self._lanes.drop(call.peer)
            self._out.append(Disconnect(call.peer, "its request was given up", Cause.DONE))
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
            self._out.append(Disconnect(event.peer, "the client is closed", Cause.DONE))
            return
        if not self._lanes.join(event.peer):
            self._out.append(Disconnect(event.peer, "this connection is not needed", Cause.DONE))
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
        """Retry or fail a call whose connection was lost (I11)."""
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
        """Retry a call whose attempt has timed out, if limit and budget allow it (I11)."""
        try_s = self._retry.attempt_timeout
        self._recall(call)
        if call.tries >= self._retry.attempts:
            why = "no more attempts are allowed"
        elif not self._budget.maybe_spend():
            why = "the retry budget is used up: too many recent calls of this client were retried"
        else:
            self._try_again(call, f"no reply within {try_s:g} s", now)
            return
        self._fail(call, failures.silent(call, try_s, why), now)
