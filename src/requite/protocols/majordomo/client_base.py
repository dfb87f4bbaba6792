"""The life of a client's calls, in every dialect.

    HELD ──► SENT ──► answered
     ▲ ▲      │ │
     │ └──────┘ │  the attempt timed out, or was refused: back off, if the policy allows a retry
     │  its     ▼
     │  link  RESTING
     │  was     │
     │  lost    │
     └──────────┘

A call in any state may also fail, time out or be cancelled. `ClientEngine` implements these
transitions. The dialects differ in how attempts are sent and cancelled: `client.py` has one
connection on which requests carry ids, `lanes.py` one connection per outstanding request.

Each attempt has a new request id, so a late reply to an earlier one is never taken for the current
one's (I2). A request that is not idempotent is never sent again once it may have run, and the
retries of all calls share one budget (I11). Two things are outside of the budget, since they add no
load: the first sending of a held call, and resending a request that its broker has forgotten
together with the connection ([client-left]). The latter counts as an attempt. Requests that a
broker gives back because it is shutting down count as neither ([client-drain]).

Rule ids in brackets are those of docs/protocols/mdp-0.3.md.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from math import inf
from types import SimpleNamespace
from typing import ClassVar, Final

from requite.chronicle import NO_INSTANCE, Chronicle
from requite.core.calls import Calls
from requite.core.machine import Handlers, Machine, ignore_input
from requite.core.observer import CallObserver
from requite.core.slots import Slots
from requite.engine import (
    Cancel,
    Deliver,
    Drain,
    PeerBlocked,
    PeerJoined,
    PeerLost,
    PeerWritable,
    Received,
    Rng,
    Stopped,
    Submit,
    Wake,
)
from requite.errors import CallError, CallTimeout, LocalViolation, TransportError
from requite.protocols.majordomo.calls import (
    HELD,
    RESTING,
    SENT,
    CallState,
    ClientPolicy,
    PendingCall,
)
from requite.protocols.majordomo.names import ServiceNames
from requite.protocols.majordomo.recorders import ClientRecorder
from requite.protocols.majordomo.redial import Redial
from requite.protocols.majordomo.wire import ClientFinal, Dialect
from requite.request import Partial, RetryBudget, Status, error_from_status

_KEY_SIZE_MAX: Final = 255

# A retry may meet a new worker, or a shorter queue.
_WORTH_ANOTHER_TRY: Final = frozenset({Status.NO_SERVICE, Status.OVERLOADED, Status.WORKER_LOST})


class ClientEngine(Machine):
    """The base of Majordomo clients; subclasses handle connections.

    An invalid service name, or a key of more than 255 bytes, in a `Submit` is a `LocalViolation`.

    `first_sequence` (see `requite.core.slots`) and `origin`, the first half of call ids, should be
    random per start. `chronicle` journals calls.
    """

    _kind: ClassVar = "a client"

    def __init__(
        self,
        dialect: Dialect,
        policy: ClientPolicy,
        *,
        rng: Rng,
        first_sequence: int,
        origin: bytes = NO_INSTANCE,
        chronicle: Chronicle | None = None,
    ) -> None:
        self.calls: Calls[PendingCall] = Calls(
            policy.slots,
            CallObserver(notes=policy.notes)
            if chronicle is None
            else ClientRecorder(
                chronicle, origin, tells_brokers=dialect.has_ids, notes=policy.notes
            ),
            fail=self._give_up,
            time_out=self._time_out,
            expired=_expired,
            try_s=policy.retry.attempt_timeout,
        )
        super().__init__()
        self._dialect = dialect
        self._origin = origin
        self._number = 0  # of the last call
        self._policy = policy
        self._retry = policy.retry
        self._rng = rng
        self._budget = RetryBudget(policy.retry)
        self._slots: Slots[PendingCall] = Slots(policy.slots, first_sequence)
        self._redial = Redial(rng)
        self._names = ServiceNames()

    def _handlers(self) -> Handlers:
        return {
            Submit: self._submitted,
            Received: self._received,
            Wake: self._woken,
            Cancel: self.calls.cancelled,
            PeerJoined: self._joined,
            PeerLost: self._lost,
            # Unsent data is bounded without them: at most `slots` requests are unanswered, and
            # their bodies are the users' objects, not copies.
            PeerBlocked: ignore_input,
            PeerWritable: ignore_input,
            Drain: self._drained,
        }

    # --- the engine's contract --------------------------------------------------------------------
    def deadline(self) -> float | None:
        """See `requite.engine.Engine.deadline`."""
        at = min(self.calls.next_at(), self._redial.at)
        return None if at == inf else at

    def snapshot(self) -> SimpleNamespace:
        """Return the counts of all tables.

        `held` calls wait for a connection, `sent` calls for a reply, `resting` calls for their next
        attempt. `connections` are up; `dialling` ones are being established.
        """
        states = [call.state for call in self.calls.values()]
        up, dialling = self._connections()
        return SimpleNamespace(
            connections=up,
            dialling=dialling,
            held=states.count(HELD),
            sent=states.count(SENT),
            resting=states.count(RESTING),
            slots_taken=len(self._slots),
            stopped=self._stopped,
        )

    # --- for the dialects -------------------------------------------------------------------------
    @abstractmethod
    def _transmit(self, call: PendingCall, now: float) -> None:
        """Send a HELD call if there is a connection for it; else connect."""

    @abstractmethod
    def _recall(self, call: PendingCall, now: float) -> None:
        """Cancel an abandoned SENT attempt."""

    @abstractmethod
    def _received(self, event: Received, now: float) -> None: ...

    @abstractmethod
    def _joined(self, event: PeerJoined, now: float) -> None: ...

    @abstractmethod
    def _lost(self, event: PeerLost, now: float) -> None: ...

    @abstractmethod
    def _connect(self, now: float) -> None:
        """Connect, if a connection is still needed, at the planned instant."""

    @abstractmethod
    def _close(self) -> None:
        """Close all connections."""

    @abstractmethod
    def _connections(self) -> tuple[int, int]:
        """Return the number of connections that are up, and of those being established."""

    # --- from the user ----------------------------------------------------------------------------
    def _submitted(self, asked: Submit, now: float) -> None:
        name = self._names[asked.service]
        if len(asked.idempotency_key) > _KEY_SIZE_MAX:
            raise LocalViolation(f"an idempotency key has at most {_KEY_SIZE_MAX} bytes")
        calls = self.calls
        if calls.refuse(asked.token, asked.service, asked.deadline, self._out, now):
            return
        self._number += 1
        call = PendingCall(asked, name, self._origin + self._number.to_bytes(8, "big"), now)
        request_id = self._slots.take(call)
        assert request_id is not None, "there is a slot for every accepted call"
        call.request_id = request_id
        calls.take_on(call)
        self._budget.earn()
        self._transmit(call, now)

    def _drained(self, _event: Drain, now: float) -> None:
        if self._stopped:
            return
        self._stopped = True
        self.calls.close(now)
        self._close()
        self._redial.at = inf
        self._out.append(Stopped())

    # --- time -------------------------------------------------------------------------------------
    def _woken(self, event: Wake, now: float) -> None:
        self.calls.woken(event, now)
        if self._redial.is_due(now):
            self._connect(now)

    def _time_out(self, call: PendingCall, now: float) -> None:
        """Send a call after its back-off; retry or fail a call whose attempt has timed out."""
        if call.state is RESTING:
            call.state = HELD
            self.calls.wait_until(call, call.deadline)
            self._transmit(call, now)
            return
        self._recall(call, now)
        tries = f"{_count(call.tries, 'attempt')} of {self._retry.attempt_timeout:g} s"
        error = CallTimeout(f"no reply from {call.service!r} to {tries}")
        self._try_again_or_fail(call, error, now, ran=True)

    # --- attempts ---------------------------------------------------------------------------------
    def _sent(self, call: PendingCall, now: float) -> None:
        """Record that a HELD call was sent."""
        call.state = SENT
        self.calls.sent(call, self._out, now)

    def _take_partial(self, call: PendingCall, frames: Sequence[bytes], now: float) -> None:
        if call.wants_partials:
            self._out.append(Deliver(call.token, Partial(frames, call.partials)))
        elif call.joined is None:
            call.joined = list(frames)
        else:
            call.joined += frames
        call.partials += 1
        self.calls.observer.partial(call, frames, now)

    def _take_refusal(self, call: PendingCall, final: ClientFinal, now: float) -> None:
        """Handle a negative final reply: back off and retry if that may help, else fail."""
        status = Status(final.status)
        error = error_from_status(status, final.body, final.attempts)  # [status-reason]
        if status in _WORTH_ANOTHER_TRY and not self._would_only_wait(call, status, now):
            self._try_again_or_fail(call, error, now, ran=error.may_have_executed)
        else:
            call.may_have_run |= error.may_have_executed
            self._fail(call, error, now)

    def _would_only_wait(self, call: PendingCall, status: Status, now: float) -> bool:
        """Whether a retry would outlast the deadline if it took as long as earlier attempts.

        The broker has waited for a worker each time. Waiting again would turn its clear answer into
        a timeout, which leaves open whether the request has run.
        """
        try_s = (now - call.submitted_at) / call.tries
        return status is Status.NO_SERVICE and now + try_s >= call.deadline

    def _try_again_or_fail(
        self, call: PendingCall, error: CallError, now: float, *, ran: bool
    ) -> None:
        """Back off or fail after an attempt without a reply (it may have run if `ran`)."""
        call.may_have_run |= ran
        rest_until = now + self._retry.delay_s(call.tries, self._rng)
        if (
            not self._may_go_again(call)
            or rest_until >= call.deadline
            or not self._budget.maybe_spend()
        ):
            self._fail(call, error, now)
            return
        self._begin_anew(call, RESTING)
        self.calls.wait_until(call, rest_until)
        rest_s = rest_until - now
        self.calls.remark("retried", call, self._out, reason=str(error), rest_s=rest_s)

    def _interrupt(self, call: PendingCall, reason: str, now: float) -> None:
        """Hold or fail a SENT call whose connection was lost.

        [client-resend]: a request that may have run and is not idempotent must not be resent.
        """
        call.may_have_run = True
        if self._may_go_again(call):
            self._begin_anew(call, HELD)
            self.calls.wait_until(call, call.deadline)
            return
        why = _why_not_again(call)
        text = f"the connection to the broker was lost: {reason}; {why}"
        self._fail(call, TransportError(text), now)

    def _take_back(self, call: PendingCall, final: ClientFinal, now: float) -> None:
        """Hold a call that the broker gives back because it is shutting down ([client-drain])."""
        reason = final.body[0].decode("utf-8", "replace")
        call.may_have_run |= final.attempts > 0
        self.calls.observer.expand(call)
        if not _is_repeatable(call):
            self._fail(call, TransportError(f"{reason}; {_why_not_again(call)}"), now)
            return
        call.tries -= 1
        call.turned_away += 1
        self._begin_anew(call, HELD)
        self.calls.wait_until(call, call.deadline)
        self.calls.remark("turned-away", call, self._out, reason=reason)

    def _may_go_again(self, call: PendingCall) -> bool:
        return call.tries < self._retry.attempts and _is_repeatable(call)

    def _begin_anew(self, call: PendingCall, state: CallState) -> None:
        """Forget an attempt: replies to it are stale from now on."""
        call.state = state
        call.request_id = self._slots.renumber(call.request_id)
        call.partials = 0
        call.joined = None
        call.peer = None

    # --- ends -------------------------------------------------------------------------------------
    def _give_up(self, call: PendingCall, error: CallError, now: float) -> None:
        if call.state is SENT:
            call.may_have_run = True
            if not self._stopped:
                self._recall(call, now)
        self._fail(call, error, now)

    def _fail(self, call: PendingCall, error: CallError, now: float) -> None:
        self._slots.free(call.request_id)
        self.calls.end(call, error, self._out, now)


def _expired(call: PendingCall, now: float) -> CallError:
    """Return the error for a call whose deadline has passed."""
    text = f"no reply from {call.service!r} within {now - call.submitted_at:.3f} s"
    if not call.attempts:
        return CallTimeout(
            f"{text}; the request was never sent, because there was no connection, and has not run"
        )
    ran = "may have run" if call.may_have_run or call.state is SENT else "has not run"
    return CallTimeout(f"{text}; the request was sent {_count(call.attempts, 'time')} and {ran}")


def _is_repeatable(call: PendingCall) -> bool:
    """Whether a call whose attempt has ended may safely be sent again."""
    return (call.idempotent or not call.may_have_run) and not call.is_streaming


def _count(n: int, noun: str) -> str:
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def _why_not_again(call: PendingCall) -> str:
    if call.is_streaming:
        return f"{call.partials} of the request's partial replies had already arrived"
    if not call.idempotent:
        return "the request may have run, and is not idempotent"
    return f"the request was sent {_count(call.tries, 'time')}, which is the limit"
