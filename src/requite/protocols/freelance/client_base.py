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

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from math import inf
from typing import Any, Final

from requite.chronicle import NO_INSTANCE, Chronicle
from requite.engine import (
    Cancel,
    Deliver,
    Disconnect,
    Drain,
    Effect,
    Fail,
    Input,
    Note,
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
from requite.errors import CallError, Cancelled, LocalViolation
from requite.protocols.freelance import failures
from requite.protocols.freelance.calls import ClientSnapshot, PendingCall
from requite.protocols.freelance.policy import BUDGET_PAUSE_S, CALLS_WORTH_A_SECOND, ClientPolicy
from requite.protocols.freelance.recorders import ClientRecorder
from requite.protocols.freelance.wire import control_frame
from requite.request import Reply, RetryBudget, RetryPolicy, Status
from requite.sweep import Sweep

_OK: Final = Status.OK


class FreelanceClient(ABC):
    """A client but for its way of choosing servers.

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
        self._budget = RetryBudget(
            RetryPolicy(budget=policy.budget, budget_burst=policy.budget_burst)
        )
        self._earned_at = 0.0  # whatever that is: the budget is full
        self._recorder = None if chronicle is None else ClientRecorder(chronicle, origin)
        self._calls: dict[Any, PendingCall] = {}  # by token, in the order of submission
        self._pending: dict[bytes, PendingCall] = {}  # by control frame, those that were sent
        self._held: dict[PendingCall, None] = {}  # a set that keeps its order
        self._sweep = Sweep()
        self._number = 0  # of the request sent last
        self._resent = self._malformed = self._stray = 0
        self._stopped = False
        self._out: list[Effect] = []
        self._inputs: dict[type, Callable[[Any, float], None]] = {
            Submit: self._submitted,
            Received: self._received,
            Cancel: self._cancelled,
            Wake: self._woken,
            PeerJoined: self._maybe_joined,
            PeerLost: self._lost,
            PeerBlocked: self._blocked,
            PeerWritable: self._writable,
            Drain: self._drained,
        }

    # --- the engine's contract --------------------------------------------------------------------
    def handle(self, event: Input, now: float) -> Iterable[Effect]:
        """See `requite.engine.Engine.handle`.

        Each `Submit` is answered exactly once: by a `Deliver` of a `Reply`, or by a `Fail`; after a
        `Cancel`, by a `Fail` with `Cancelled`. The token of a call that is still outstanding, or an
        idempotency key, is a `LocalViolation`. After `Drain` every call fails at once with
        `Cancelled`, those outstanding and those to come.
        """
        handler = self._inputs.get(event.__class__)
        if handler is None:
            raise LocalViolation(f"a client has no use for {event!r}")
        handler(event, now)
        out = self._out
        if out:
            self._out = []
        return out

    def deadline(self) -> float | None:
        """See `requite.engine.Engine.deadline`: the next of all instants, or none (tickless)."""
        at = self._sweep.at if self._stopped else min(self._sweep.at, self._next_at())
        if self._recorder is not None:
            at = min(at, self._recorder.look_at)
        return None if at == inf else at

    def snapshot(self) -> ClientSnapshot:
        """Return the sizes of all tables."""
        held = len(self._held)
        return ClientSnapshot(
            *self._connections(),
            held,
            len(self._calls) - held,
            self._resent,
            self._malformed,
            self._stray,
            self._stopped,
        )

    def forsake(self, error: CallError, now: float) -> None:
        """Tell the journal that all calls have ended with `error`, because the engine was given up:
        an exception struck while it was at work. It must not be used any more."""
        if self._recorder is not None:
            for call in self._calls.values():
                self._recorder.failed(call, error, now)

    # --- what differs between models --------------------------------------------------------------
    @abstractmethod
    def _maybe_send(self, call: PendingCall, now: float) -> bool:
        """Send a call to whichever server is to have it; False where none takes it now."""

    @abstractmethod
    def _time_out(self, call: PendingCall, now: float) -> None:
        """Deal with a call whose instant has come before its deadline."""

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
        """Return how many connections there are, live ones, and blocked ones."""

    def _next_at(self) -> float:
        """Return when servers need attention next."""
        return inf

    def _attend_servers(self, now: float) -> None:
        """Give it to them, if it is time to."""
        return

    def _recall(self, _call: PendingCall) -> None:
        """Let nothing come of a try that is given up."""
        return

    def _attempts(self, call: PendingCall) -> int:
        """Return how often a call was tried, for its reply."""
        return call.tries

    # --- from the user ----------------------------------------------------------------------------
    def _submitted(self, asked: Submit, now: float) -> None:
        if asked.token in self._calls:
            raise LocalViolation(f"a call with the token {asked.token!r} is still outstanding")
        if asked.idempotency_key:
            raise LocalViolation("FLP carries no idempotency key")
        if (refusal := self._why_not(asked, now)) is not None:
            self._out.append(Fail(asked.token, refusal))
            if self._recorder is not None:
                self._recorder.refused(refusal, now)
            return
        call = PendingCall(asked, now)
        self._calls[asked.token] = call
        self._budget.earn()
        if self._recorder is not None:
            self._recorder.accepted(call)
        self._send_or_hold(call, now)

    def _why_not(self, asked: Submit, now: float) -> CallError | None:
        """Say why a call is not taken on, if it is not."""
        if self._stopped:
            return failures.closed()
        if asked.deadline <= now:
            return failures.too_late()
        if len(self._calls) >= self._policy.slots and now >= self._sweep.at:
            self._look(now)  # reclaims the slots of calls whose deadline has passed
        if len(self._calls) >= self._policy.slots:
            return failures.no_slot(self._policy.slots)
        return None

    def _cancelled(self, event: Cancel, now: float) -> None:
        call = self._calls.get(event.token)
        if call is not None:  # else its end has just crossed the cancel
            self._fail(call, Cancelled("the call was given up by its caller"), now)

    def _drained(self, _event: Drain, now: float) -> None:
        if self._stopped:
            return
        self._stopped = True
        for call in list(self._calls.values()):
            self._fail(call, Cancelled("the client was closed"), now)
        self._sweep.at = inf
        self._out.append(Stopped())

    # --- the life of a try ------------------------------------------------------------------------
    def _send_or_hold(self, call: PendingCall, now: float) -> None:
        if now >= call.asked.deadline:  # its timer is late (I15)
            self._fail(call, failures.expired(call, now), now)
        elif not self._maybe_send(call, now):
            self._hold(call, call.asked.deadline)

    def _hold(self, call: PendingCall, until: float) -> None:
        """Let a call wait for a server that takes it; look at it again at `until`."""
        self._held[call] = None
        self._wait_until(call, min(until, call.asked.deadline))

    def _release(self, now: float) -> None:
        """Send what is held and can be sent now."""
        for call in list(self._held):
            if now >= call.asked.deadline:  # its timer is late (I15)
                self._fail(call, failures.expired(call, now), now)
            elif self._maybe_send(call, now):
                self._held.pop(call, None)

    def _transmit(self, call: PendingCall, peer: Any, message: Sequence[bytes], now: float) -> None:
        """Make a try."""
        call.tries += 1
        call.peers[peer] = None
        self._out.append(Send(peer, message))
        if self._recorder is not None:
            self._recorder.sent(call, now)
        if self._policy.notes:
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
        try_s = self._policy.attempt_s
        if try_s is None or not call.asked.idempotent:
            self._wait_until(call, call.asked.deadline)
        else:
            self._wait_until(call, min(now + try_s, call.asked.deadline))

    def _wait_until(self, call: PendingCall, at: float) -> None:
        call.due_at = at
        self._sweep.arm(at)

    def _is_last(self, call: PendingCall) -> bool:
        """Whether there cannot be another try."""
        return not call.asked.idempotent or call.tries >= self._policy.attempts_max

    def _may_spend(self, call: PendingCall, now: float) -> bool:
        """Tell whether the budget allows a call another try; if not, look at it again soon."""
        self._budget.earn((now - self._earned_at) * CALLS_WORTH_A_SECOND)
        self._earned_at = now
        if self._budget.maybe_spend():
            return True
        self._wait_until(call, min(now + BUDGET_PAUSE_S, call.asked.deadline))
        return False

    def _take_back(self, call: PendingCall, reason: str, now: float) -> None:
        """Tell of a try that is given up for the next one."""
        self._resent += 1
        if self._recorder is not None:
            self._recorder.taken_back(call, reason, now)

    def _interrupt(self, call: PendingCall, reason: str, now: float) -> None:
        """Send a call elsewhere whose only try was lost with its server, or give it up."""
        call.loss = reason
        if self._is_last(call):
            self._fail(call, failures.lost(call, reason), now)
            return
        self._take_back(call, f"its server was lost: {reason}", now)
        self._send_or_hold(call, now)

    # --- ends -------------------------------------------------------------------------------------
    def _take_reply(self, call: PendingCall, body: Sequence[bytes], now: float) -> None:
        """End a call whose reply has come."""
        self._forget(call)
        reply = Reply(body, _OK, self._attempts(call), now - call.submitted_at)
        self._out.append(Deliver(call.asked.token, reply))
        if self._recorder is not None:
            self._recorder.replied(call, body, now)
        if self._policy.notes:
            self._note("replied", call, elapsed_s=reply.elapsed)

    def _ignore(self, now: float, *, malformed: bool = False) -> None:
        """Count a reply to nothing that is outstanding."""
        self._malformed += malformed
        self._stray += not malformed
        if self._recorder is not None:
            why = "malformed replies" if malformed else "late, repeated or stray replies"
            self._recorder.dropped(why, now)

    def _fail(self, call: PendingCall, error: CallError, now: float) -> None:
        self._recall(call)
        self._forget(call)
        error.attempts = call.tries
        error.may_have_executed = call.tries > 0
        self._out.append(Fail(call.asked.token, error))
        if self._recorder is not None:
            self._recorder.failed(call, error, now)
        if self._policy.notes:
            self._note("failed", call, error=type(error).__name__, reason=str(error))

    def _forget(self, call: PendingCall) -> None:
        del self._calls[call.asked.token]
        self._pending.pop(call.control, None)
        self._held.pop(call, None)

    # --- connections, and time --------------------------------------------------------------------
    def _maybe_joined(self, event: PeerJoined, now: float) -> None:
        if self._stopped:
            self._out.append(Disconnect(event.peer, "the client is closed"))
        else:
            self._joined(event, now)

    def _woken(self, _event: Wake, now: float) -> None:
        if self._recorder is not None and now >= self._recorder.look_at:
            self._recorder.look(self._calls, now)
        if now >= self._next_at() and not self._stopped:
            self._attend_servers(now)
        if now >= self._sweep.at:
            self._look(now)

    def _look(self, now: float) -> None:
        """Handle every call whose instant has come."""
        for call in self._sweep.due(self._calls.values(), now):
            if now >= call.asked.deadline:
                self._fail(call, failures.expired(call, now), now)
            else:
                self._time_out(call, now)

    def _note(self, kind: str, call: PendingCall, **facts: Any) -> None:
        known = {"token": call.asked.token, "control": call.control, "attempts": call.tries}
        self._out.append(Note(kind, known | facts))
