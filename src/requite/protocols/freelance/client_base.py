"""What becomes of a client's calls, in every model.

    HELD ──► SENT ──► answered
      ▲        │
      └────────┘   its server was lost, or did not answer in time: to another one

and out of both states: failed, timed out, cancelled. `FreelanceClient` owns these moves. Which
server a call goes to, and when one counts as gone, is told by the models: `failover.py` (one),
`shotgun.py` (two), `agent.py` (three).

A request that is not idempotent is never sent again once it may have run, and retries by time share
one budget (I11). What was lost with its server goes to another one at once and free of charge.

Shells keep the connections, one or more per server; engines only hear of them.

Sources: 10/FLP; Guide, "Brokerless Reliability (Freelance Pattern)".
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from requite.chronicle import NO_INSTANCE, Chronicle
from requite.core.budget import TimedBudget
from requite.core.calling import CallingEngine, SubmittedRecorder
from requite.engine import Send, Submit
from requite.errors import CallError, LocalViolation
from requite.protocols.freelance import failures
from requite.protocols.freelance.calls import PendingCall
from requite.protocols.freelance.policy import ClientPolicy
from requite.protocols.freelance.wire import control_frame


class FreelanceClient(CallingEngine[PendingCall]):
    """A client but for its way of choosing servers. An idempotency key is a `LocalViolation`.

    `origin`, the first half of its call ids, should be random per start; `chronicle` takes down
    what happens to calls.
    """

    def __init__(
        self,
        policy: ClientPolicy | None = None,
        *,
        origin: bytes = NO_INSTANCE,
        chronicle: Chronicle | None = None,
    ) -> None:
        self._policy = policy = policy or ClientPolicy()
        super().__init__(
            policy.slots,
            recorder=None if chronicle is None else SubmittedRecorder(chronicle, origin),
            notes=policy.notes,
        )
        self._retry = policy.retry
        self._budget = TimedBudget(policy.retry)
        self._pending: dict[bytes, PendingCall] = {}  # by control frame, those that were sent
        self._held: dict[PendingCall, None] = {}  # a set that keeps its order
        self._number = 0  # of the request sent last
        self._malformed = self._stray = 0

    def snapshot(self) -> SimpleNamespace:
        """Return the counts of all tables.

        `connections`: the `live` lead to servers that count as live, the `blocked` push back.
        Calls: `held` ones wait for a server, `sent` ones for a reply. Since the start: `resent`
        requests; replies ignored as `malformed`, or as `stray`: late, repeated or unasked.
        """
        connections, live, blocked = self._connections()
        held = len(self._held)
        return SimpleNamespace(
            connections=connections,
            live=live,
            blocked=blocked,
            held=held,
            sent=len(self._calls) - held,
            resent=self._resent,
            malformed=self._malformed,
            stray=self._stray,
            stopped=self._stopped,
        )

    # --- what differs between models --------------------------------------------------------------
    @abstractmethod
    def _maybe_send(self, call: PendingCall, now: float) -> bool:
        """Send a call to whichever server is to have it; False where none takes it now."""

    @abstractmethod
    def _connections(self) -> tuple[int, int, int]:
        """Return how many connections there are, live ones, and blocked ones."""

    # --- the life of a try ------------------------------------------------------------------------
    def _submitted(self, asked: Submit, now: float) -> None:
        if asked.idempotency_key:
            raise LocalViolation("FLP carries no idempotency key")
        if not self._maybe_refuse(asked.token, asked.service, asked.deadline, now):
            call = PendingCall(asked, now)
            self._take_on(call)
            self._budget.earn()
            self._send_or_hold(call, now)

    def _send_or_hold(self, call: PendingCall, now: float) -> None:
        if now >= call.deadline:  # its timer is late (I15)
            self._fail(call, self._expired(call, now), now)
        elif not self._maybe_send(call, now):
            self._hold(call, call.deadline)

    def _hold(self, call: PendingCall, until: float) -> None:
        """Let a call wait for a server that takes it; look at it again at `until`."""
        self._held[call] = None
        self._wait_until(call, min(until, call.deadline))

    def _release(self, now: float) -> None:
        """Send what is held and can be sent now."""
        for call in list(self._held):
            if now >= call.deadline:  # its timer is late (I15)
                self._fail(call, self._expired(call, now), now)
            elif self._maybe_send(call, now):
                self._held.pop(call, None)

    def _transmit(self, call: PendingCall, peer: Any, message: Sequence[bytes], now: float) -> None:
        """Make a try."""
        call.tries += 1
        call.peers[peer] = None
        self._out.append(Send(peer, message))
        if self._recorder is not None:
            self._recorder.sent(call, now)
        if self._notes:
            self._note("sent", call, peer=peer)

    def _name(self, call: PendingCall) -> None:
        """Give a call the control frame by which its reply is known, unless it has one.

        Connections die with their client, so that no reply to a former life can come; numbers may
        begin with 1, as in the Guide.
        """
        if not call.control:
            self._number += 1
            call.control = control_frame(self._number)
            self._pending[call.control] = call

    def _await_reply(self, call: PendingCall, now: float) -> None:
        """Give a try its time; only what may be sent again is looked at before its deadline."""
        try_s = self._retry.attempt_timeout
        if try_s is None or not call.idempotent:
            self._wait_until(call, call.deadline)
        else:
            self._wait_until(call, min(now + try_s, call.deadline))

    def _is_last(self, call: PendingCall) -> bool:
        """Whether there cannot be another try."""
        return not call.idempotent or call.tries >= self._retry.attempts

    def _may_spend(self, call: PendingCall, now: float) -> bool:
        """Tell whether the budget allows a call another try; if not, look at it again soon."""
        if self._budget.maybe_spend(now):
            return True
        self._wait_until(call, min(self._budget.again_at, call.deadline))
        return False

    def _interrupt(self, call: PendingCall, reason: str, now: float) -> None:
        """Send a call elsewhere whose only try was lost with its server, or give it up."""
        call.loss = reason
        if self._is_last(call):
            self._fail(call, failures.lost(call, reason), now)
            return
        self._take_back(call, f"its server was lost: {reason}", now)
        self._send_or_hold(call, now)

    # --- ends -------------------------------------------------------------------------------------
    def _ignore(self, now: float, *, malformed: bool = False) -> None:
        """Count a reply to nothing that is outstanding."""
        self._malformed += malformed
        self._stray += not malformed
        if self._recorder is not None:
            why = "malformed replies" if malformed else "late, repeated or stray replies"
            self._recorder.dropped(why, now)

    def _expired(self, call: PendingCall, now: float) -> CallError:
        return failures.expired(call, now)

    def _forget(self, call: PendingCall) -> None:
        super()._forget(call)
        self._pending.pop(call.control, None)
        self._held.pop(call, None)

    def _note(self, kind: str, call: PendingCall, **facts: Any) -> None:
        super()._note(kind, call, control=call.control, **facts)
