"""The life of a client's calls, in every model.

    HELD ──► SENT ──► answered
      ▲        │
      └────────┘   its server was lost, or did not answer in time: to another one

A call in either state may also fail, time out or be cancelled. `FreelanceClient` implements these
transitions. The models choose the server for a call and decide when one counts as dead:
`failover.py` (one), `shotgun.py` (two), `agent.py` (three).

A request that is not idempotent is never sent again once it may have run. Retries after a timeout
share one budget (I11); a request that was lost with its server is retried at once, outside of the
budget.

The shell maintains the connections, one or more per server.

Sources: 10/FLP; Guide, "Brokerless Reliability (Freelance Pattern)".
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from math import inf
from types import SimpleNamespace
from typing import Any, ClassVar

from requite.chronicle import NO_INSTANCE, Chronicle
from requite.core.budget import TimedBudget
from requite.core.calls import MALFORMED, STRAY, Calls
from requite.core.machine import Handlers, Machine
from requite.core.recording import call_observer
from requite.engine import (
    Cancel,
    Cause,
    Disconnect,
    Drain,
    PeerBlocked,
    PeerJoined,
    PeerLost,
    PeerWritable,
    Received,
    Send,
    Stopped,
    Submit,
    Wake,
)
from requite.errors import CallError, LocalViolation
from requite.protocols.freelance import failures
from requite.protocols.freelance.calls import PendingCall
from requite.protocols.freelance.policy import ClientPolicy
from requite.protocols.freelance.wire import control_frame


class FreelanceClient(Machine):
    """The base of clients; subclasses choose servers. An idempotency key is a `LocalViolation`.

    `origin` is the first half of call ids, and should be random per start. `chronicle` journals
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
        self._budget = TimedBudget(policy.retry)
        self._pending: dict[bytes, PendingCall] = {}  # by control frame, those that were sent
        self._held: dict[PendingCall, None] = {}  # a set that keeps its order
        self._number = 0  # of the last request

    def _handlers(self) -> Handlers:
        return {
            Submit: self._submitted,
            Received: self._received,
            Cancel: self.calls.cancelled,
            Wake: self.calls.woken,
            PeerJoined: self._maybe_joined,
            PeerLost: self._lost,
            PeerBlocked: self._blocked,
            PeerWritable: self._writable,
            Drain: self._drained,
        }

    def deadline(self) -> float | None:
        """See `requite.engine.Engine.deadline`."""
        at = self.calls.next_at()
        return None if at == inf else at

    def snapshot(self) -> SimpleNamespace:
        """Return the counts of all tables.

        `connections`: all; `live`: to servers that count as live; `blocked`: with back-pressure.
        `held` calls wait for a server, `sent` calls for a reply. Since the start: `resent`
        requests; replies ignored as `malformed` or `stray` (late, duplicate or unexpected).
        """
        connections, live, blocked = self._connections()
        held = len(self._held)
        return SimpleNamespace(
            connections=connections,
            live=live,
            blocked=blocked,
            held=held,
            sent=len(self.calls) - held,
            resent=self.calls.resent,
            malformed=self.calls.dropped[MALFORMED],
            stray=self.calls.dropped[STRAY],
            stopped=self._stopped,
        )

    # --- for the models ---------------------------------------------------------------------------
    @abstractmethod
    def _maybe_send(self, call: PendingCall, now: float) -> bool:
        """Send a call to a server; return False if none accepts it now."""

    @abstractmethod
    def _time_out(self, call: PendingCall, now: float) -> None:
        """Handle a call whose timer has fired before its deadline."""

    @abstractmethod
    def _received(self, event: Received, now: float) -> None: ...

    @abstractmethod
    def _joined(self, event: PeerJoined, now: float) -> None: ...

    @abstractmethod
    def _lost(self, event: PeerLost, now: float) -> None: ...

    @abstractmethod
    def _blocked(self, event: PeerBlocked, now: float) -> None: ...

    @abstractmethod
    def _writable(self, event: PeerWritable, now: float) -> None: ...

    @abstractmethod
    def _connections(self) -> tuple[int, int, int]:
        """Return the number of all, live and blocked connections."""

    # --- attempts ---------------------------------------------------------------------------------
    def _submitted(self, asked: Submit, now: float) -> None:
        if asked.idempotency_key:
            raise LocalViolation("FLP does not carry idempotency keys")
        if not self.calls.refuse(asked.token, asked.service, asked.deadline, self._out, now):
            call = PendingCall(asked, now)
            self.calls.take_on(call)
            self._budget.earn()
            self._send_or_hold(call, now)

    def _send_or_hold(self, call: PendingCall, now: float) -> None:
        if now >= call.deadline:  # its timer is late (I15)
            self._fail(call, failures.expired(call, now), now)
        elif not self._maybe_send(call, now):
            self._hold(call, call.deadline)

    def _hold(self, call: PendingCall, until: float) -> None:
        """Hold a call until a server accepts it; its timer fires at `until`."""
        self._held[call] = None
        self.calls.wait_until(call, until)

    def _release(self, now: float) -> None:
        """Send the held calls that a server accepts now."""
        for call in list(self._held):
            if now >= call.deadline:  # its timer is late (I15)
                self._fail(call, failures.expired(call, now), now)
            elif self._maybe_send(call, now):
                self._held.pop(call, None)

    def _transmit(self, call: PendingCall, peer: Any, message: Sequence[bytes], now: float) -> None:
        """Send the request of a call."""
        call.peers[peer] = None
        self._out.append(Send(peer, message))
        self.calls.sent(call, self._out, now, peer=peer)

    def _name(self, call: PendingCall) -> None:
        """Give a call the control frame that identifies its reply, unless it has one.

        Connections end with their client, so no reply to an earlier process can arrive; numbers may
        begin with 1, as in the Guide.
        """
        if not call.control:
            self._number += 1
            call.control = control_frame(self._number)
            self._pending[call.control] = call

    def _is_last(self, call: PendingCall) -> bool:
        """Whether the call cannot be retried."""
        return not call.idempotent or call.tries >= self._retry.attempts

    def _may_spend(self, call: PendingCall, now: float) -> bool:
        """Return whether the budget allows a retry; if not, wait until it does."""
        if self._budget.maybe_spend(now):
            return True
        self.calls.wait_until(call, self._budget.again_at)
        return False

    def _interrupt(self, call: PendingCall, reason: str, now: float) -> None:
        """Retry or fail a call that was lost with its server."""
        call.loss = reason
        if self._is_last(call):
            self._fail(call, failures.lost(call, reason), now)
            return
        self.calls.take_back(call, f"its server was lost: {reason}", now)
        self._send_or_hold(call, now)

    # --- ends -------------------------------------------------------------------------------------
    def _answer(self, call: PendingCall, body: Sequence[bytes], attempts: int, now: float) -> None:
        """Answer a call."""
        self._forget(call)
        self.calls.answer(call, body, attempts, self._out, now)

    def _fail(self, call: PendingCall, error: CallError, now: float) -> None:
        self._forget(call)
        self.calls.end(call, error, self._out, now)

    def _forget(self, call: PendingCall) -> None:
        """Remove a call from all tables except `calls`."""
        self._pending.pop(call.control, None)
        self._held.pop(call, None)

    def _drained(self, _event: Drain, now: float) -> None:
        if not self._stopped:
            self._stopped = True
            self.calls.close(now)
            self._out.append(Stopped())

    def _maybe_joined(self, event: PeerJoined, now: float) -> None:
        if self._stopped:
            self._out.append(Disconnect(event.peer, "the client is closed", Cause.DONE))
        else:
            self._joined(event, now)
