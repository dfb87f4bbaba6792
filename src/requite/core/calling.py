"""What clients have in common in protocols without a broker, where nobody but them keeps account of
a call: which calls there are, when each has to be looked at, and what becomes of it in the end.

    taken on ──► answered
       └───────► failed, timed out, cancelled

What lies in between, how a call reaches somebody who answers it, is the protocol's.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from math import inf
from operator import attrgetter
from typing import Any, ClassVar, Final, Generic, Protocol, TypeVar

from requite.core import recording
from requite.core.machine import Handlers, Machine
from requite.core.sweep import Sweep
from requite.engine import (
    Cancel,
    Deliver,
    Disconnect,
    Drain,
    Fail,
    Note,
    PeerBlocked,
    PeerJoined,
    PeerLost,
    PeerWritable,
    Received,
    Stopped,
    Submit,
    Wake,
)
from requite.errors import CallError, CallTimeout, Cancelled, LocalViolation, Overloaded
from requite.request import Reply, Status

_OK: Final = Status.OK


class Call(recording.Call, Protocol):
    """What there is of every call. `due_at` is when to look at it next, `tries` how often it was
    sent."""

    token: Any
    deadline: float
    due_at: float


CallT = TypeVar("CallT", bound=Call)


class SubmittedCall:
    """A call as a `Submit` asks for it, with at least one frame; `size` are the bytes of its body.

    `loss` tells what became of the last try that was lost, if one was. `call_id`, `sent_at` (of the
    first try) and `is_told` (the journal has what happened so far) are for the journal.
    """

    __slots__ = (
        "call_id",
        "deadline",
        "due_at",
        "frames",
        "idempotent",
        "is_told",
        "loss",
        "sent_at",
        "service",
        "size",
        "submitted_at",
        "token",
        "tries",
    )

    def __init__(self, asked: Submit, now: float) -> None:
        self.token = asked.token
        self.service = asked.service
        self.frames: Sequence[bytes] = asked.frames or (b"",)
        self.size = sum(map(len, self.frames))
        self.deadline = self.due_at = asked.deadline
        self.idempotent = asked.idempotent
        self.submitted_at = self.sent_at = now
        self.tries = 0
        self.loss = ""
        self.call_id = b""
        self.is_told = False


SubmittedT = TypeVar("SubmittedT", bound=SubmittedCall)


class ClientRecorder(recording.CallRecorder[CallT]):
    """Tells about calls, at the client."""

    def refused(self, service: str, error: CallError, now: float) -> None:
        """Tell that a call was not taken on."""
        self._happen(recording.refusal(error, now, service))


class SubmittedRecorder(ClientRecorder[SubmittedT]):
    """Tells about calls that are as their `Submit` asks for them."""

    def about(self, call: SubmittedT) -> tuple[bytes, int, float]:
        """Return the name of a call's service, the bytes of its body, and its deadline."""
        return recording.encode_name(call.service), call.size, call.deadline


class CallingEngine(Machine, Generic[CallT]):
    """A client but for its way to those who answer.

    Each `Submit` is answered exactly once: by a `Deliver` of a `Reply`, or by a `Fail`; after a
    `Cancel`, by a `Fail` with `Cancelled`. The token of a call that is still outstanding is a
    `LocalViolation`. After `Drain` every call fails at once with `Cancelled`, those outstanding and
    those to come.

    At most `slots` calls are outstanding. `notes`: make `Note` effects.
    """

    _kind: ClassVar = "a client"

    def __init__(self, slots: int, *, recorder: ClientRecorder[CallT] | None, notes: bool) -> None:
        super().__init__()
        self._slots = slots
        self._notes = notes
        self._recorder = recorder
        self._calls: dict[Any, CallT] = {}  # by token, in the order of submission
        self._sweep = Sweep()
        self._attend_at = inf  # when something else than a call has to be looked at
        self._resent = 0

    def _handlers(self) -> Handlers:
        return {
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

    def deadline(self) -> float | None:
        """See `requite.engine.Engine.deadline`."""
        at = self._sweep.at
        if self._attend_at < at:
            at = self._attend_at
        if self._recorder is not None and self._recorder.look_at < at:
            at = self._recorder.look_at
        return None if at == inf else at

    def forsake(self, error: CallError, now: float) -> None:
        """Tell the journal that all calls have ended with `error`, because the engine was given up:
        an exception struck while it was at work. It must not be used any more."""
        if self._recorder is not None:
            for call in self._calls.values():
                self._recorder.failed(call, error, now)

    # --- what differs -----------------------------------------------------------------------------
    @abstractmethod
    def _submitted(self, asked: Submit, now: float) -> None: ...

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
    def _expired(self, call: CallT, now: float) -> CallError:
        """Say what the caller is told whose call's deadline has passed."""

    @abstractmethod
    def _time_out(self, call: CallT, now: float) -> None:
        """Deal with a call whose instant has come before its deadline."""

    def _recall(self, call: CallT) -> None:
        """Let nothing come of a try that is given up."""
        return

    def _forget(self, call: CallT) -> None:
        """Take a call off all tables."""
        del self._calls[call.token]

    def _attempts(self, call: CallT) -> int:
        """Return how often a call was tried, for its reply."""
        return call.tries

    def _attend(self, now: float) -> None:
        """Do what was to be done at `_attend_at`."""
        return

    def _close(self) -> None:
        """Leave whoever is connected, if they are to be left at the end."""
        return

    # --- from the user ----------------------------------------------------------------------------
    def _maybe_refuse(self, token: Any, service: str, deadline: float, now: float) -> bool:
        """Turn a call down that cannot be taken on, and tell whether it was."""
        if token in self._calls:
            raise LocalViolation(f"a call with the token {token!r} is still outstanding")
        error = self._why_not(deadline, now)
        if error is None:
            return False
        self._turn_down(token, service, error, now)
        return True

    def _why_not(self, deadline: float, now: float) -> CallError | None:
        """Say why a call is not taken on, if it is not."""
        if self._stopped:
            return _not_begun(Cancelled, "the client is closed")
        if deadline <= now:
            return _not_begun(CallTimeout, "the deadline of the call passed before it was made")
        if len(self._calls) >= self._slots and now >= self._sweep.at:
            self._look(now)  # reclaims the slots of calls whose deadline has passed
        if len(self._calls) >= self._slots:
            text = f"all {self._slots} slots of this client are taken by outstanding calls"
            return _not_begun(Overloaded, text)
        return None

    def _turn_down(self, token: Any, service: str, error: CallError, now: float) -> None:
        self._out.append(Fail(token, error))
        if self._recorder is not None:
            self._recorder.refused(service, error, now)

    def _take_on(self, call: CallT) -> None:
        """Put a new call on the books."""
        self._calls[call.token] = call
        if self._recorder is not None:
            self._recorder.accepted(call)

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
        self._close()
        self._sweep.at = self._attend_at = inf
        self._out.append(Stopped())

    def _maybe_joined(self, event: PeerJoined, now: float) -> None:
        if self._stopped:
            self._out.append(Disconnect(event.peer, "the client is closed"))
        else:
            self._joined(event, now)

    # --- tries, and ends --------------------------------------------------------------------------
    def _take_back(self, call: CallT, reason: str, now: float) -> None:
        """Tell of a try that is given up for the next one."""
        self._resent += 1
        if self._recorder is not None:
            self._recorder.taken_back(call, reason, now)

    def _take_reply(self, call: CallT, body: Sequence[bytes], now: float) -> None:
        """End a call whose reply has come."""
        self._forget(call)
        reply = Reply(body, _OK, self._attempts(call), now - call.submitted_at)
        self._out.append(Deliver(call.token, reply))
        if self._recorder is not None:
            self._recorder.answered(call, sum(map(len, body)), now)
        if self._notes:
            self._note("replied", call, elapsed_s=reply.elapsed)

    def _fail(self, call: CallT, error: CallError, now: float) -> None:
        self._recall(call)
        self._forget(call)
        error.attempts = call.tries
        error.may_have_executed = call.tries > 0
        self._out.append(Fail(call.token, error))
        if self._recorder is not None:
            self._recorder.failed(call, error, now)
        if self._notes:
            self._note("failed", call, error=type(error).__name__, reason=str(error))

    # --- time -------------------------------------------------------------------------------------
    def _wait_until(self, call: CallT, at: float) -> None:
        call.due_at = at
        self._sweep.arm(at)

    def _woken(self, _event: Wake, now: float) -> None:
        if self._recorder is not None and now >= self._recorder.look_at:
            self._recorder.look(self._calls, now)
        if now >= self._sweep.at:
            self._look(now)
        if now >= self._attend_at:
            self._attend(now)

    def _look(self, now: float) -> None:
        """Handle every call whose instant has come."""
        due = self._sweep.due(self._calls.values(), now)
        # So that the budget, if it is short, goes round; and to the oldest first.
        due.sort(key=attrgetter("tries", "submitted_at"))
        for call in due:
            if now >= call.deadline:
                self._fail(call, self._expired(call, now), now)
            else:
                self._time_out(call, now)

    def _note(self, kind: str, call: CallT, **facts: Any) -> None:
        known = {"token": call.token, "attempts": call.tries}
        self._out.append(Note(kind, known | facts))


def times(n: int) -> str:
    """Return a number of times in words."""
    return "once" if n == 1 else f"{n} times"


def _not_begun(kind: type[CallError], text: str) -> CallError:
    return kind(text, may_have_executed=False)
