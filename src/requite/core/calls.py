"""Outstanding calls of a client: tokens, slots, deadlines and outcomes.

    accepted ──► answered
       └───────► failed, timed out, cancelled

The protocol sends requests and matches replies. Its engine owns one `Calls`, the table of
outstanding calls by token, and reports attempts to it; `Calls` finds due calls and informs the
observer. Effects are appended to the engine's `out`, which is an argument.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from math import inf
from operator import attrgetter
from typing import Any, Final, Generic, TypeVar

from requite.core.observer import CallObserver
from requite.core.recording import encode_name
from requite.core.sweep import Sweep
from requite.engine import Cancel, Deliver, Effect, Fail, Note, Submit, Wake
from requite.errors import CallError, CallTimeout, Cancelled, LocalViolation, Overloaded
from requite.request import Reply, Status
from requite.trace_context import is_sampled

_OK: Final = Status.OK
_new: Final = tuple.__new__  # half the cost of calling a NamedTuple's class

MALFORMED: Final = "malformed replies"
STRAY: Final = "late, repeated or stray replies"


class PendingCall:
    """An outstanding call, with at least one frame.

    `tries` counts its attempts, `due_at` is its next timer, and `loss` the reason why its last lost
    attempt was lost. `trace` is its trace context. For the journal: `call_id`, `sent_at` (of the
    first attempt) and `is_expanded` (its events so far are written). Protocols add their own
    attributes.

    There is no `__init__`: on the hot path of SP it would cost more than the attributes (0.35 us
    against 0.18).
    """

    __slots__ = (
        "call_id",
        "deadline",
        "due_at",
        "frames",
        "idempotent",
        "is_expanded",
        "loss",
        "sent_at",
        "service",
        "submitted_at",
        "token",
        "trace",
        "tries",
    )

    token: Any
    service: str
    frames: Sequence[bytes]
    deadline: float
    due_at: float
    idempotent: bool
    submitted_at: float
    sent_at: float
    tries: int
    loss: str
    trace: bytes
    call_id: bytes
    is_expanded: bool

    def take_from(self, asked: Submit, now: float) -> None:
        """Initialise from a `Submit`."""
        self.token = asked.token
        self.service = asked.service
        self.frames = asked.frames or (b"",)
        self.deadline = self.due_at = asked.deadline
        self.idempotent = asked.idempotent
        self.trace = asked.trace
        self.submitted_at = self.sent_at = now
        self.tries = 0
        self.loss = ""
        self.call_id = b""
        self.is_expanded = False

    @property
    def name(self) -> bytes:
        """The name of its service, as encoded in the journal."""
        return encode_name(self.service)

    @property
    def size(self) -> int:
        """The size of its body in bytes."""
        return sum(map(len, self.frames))

    @property
    def attempts(self) -> int:
        """The number of attempts, as reported in errors."""
        return self.tries

    @property
    def may_have_run(self) -> bool:
        """Whether a handler may have run for it."""
        return self.tries > 0

    def facts(self) -> dict[str, Any]:
        """Return the facts for every remark about this call."""
        return {"token": self.token, "attempts": self.tries}


CallT = TypeVar("CallT", bound=PendingCall)


class Calls(dict[Any, CallT], Generic[CallT]):
    """The outstanding calls of one engine, by token, in the order of submission: `slots` at most.

    Each `Submit` is answered exactly once: by a `Deliver` of a `Reply`, or by a `Fail`; after a
    `Cancel`, by a `Fail` with `Cancelled`. After `close` every call fails at once with `Cancelled`,
    those outstanding and those to come.

    The engine provides three callbacks. `fail` removes a call from the engine's own tables, cancels
    an attempt in flight, and calls `end`. `time_out` handles a call whose timer (`wait_until`)
    fires before its deadline. `expired` returns the error for a call whose deadline has passed.

    `try_s` is the timeout of an attempt of an idempotent call, in seconds. `resent` counts retried
    attempts, `dropped` ignored messages by reason. A hot path may inline `take_on`, `sent` and
    `answer`.
    """

    __slots__ = (
        "_expired",
        "_fail",
        "_time_out",
        "closed",
        "dropped",
        "observer",
        "resent",
        "slots",
        "sweep",
        "try_s",
    )

    def __init__(
        self,
        slots: int,
        observer: CallObserver[CallT],
        *,
        fail: Callable[[CallT, CallError, float], None],
        time_out: Callable[[CallT, float], None],
        expired: Callable[[CallT, float], CallError],
        try_s: float | None = None,
    ) -> None:
        super().__init__()
        self.slots = slots
        self.observer = observer
        self.try_s = inf if try_s is None else try_s
        self.sweep = Sweep()
        self.closed = False
        self.resent = 0
        self.dropped: Counter[str] = Counter()
        self._fail = fail
        self._time_out = time_out
        self._expired = expired

    def next_at(self) -> float:
        """Return the next instant at which `woken` must run (`inf`: never)."""
        at, flush_at = self.sweep.at, self.observer.flush_at
        return flush_at if flush_at < at else at

    # --- new calls --------------------------------------------------------------------------------
    def refuse(
        self, token: Any, service: str, deadline: float, out: list[Effect], now: float
    ) -> bool:
        """Refuse a call that cannot be accepted; return whether it was refused.

        Raises `LocalViolation` if a call with this token is outstanding.
        """
        if token in self:
            raise LocalViolation(f"the token {token!r} belongs to a call that is still outstanding")
        if len(self) < self.slots and deadline > now and not self.closed:
            return False
        error = self._why_not(service, deadline, now)
        if error is None:
            return False
        self.turn_down(token, service, error, out, now)
        return True

    def _why_not(self, service: str, deadline: float, now: float) -> CallError | None:
        """Return the error for a call that cannot be accepted, or None."""
        if self.closed:
            return Cancelled("the client is closed", may_have_executed=False)
        if deadline <= now:
            what = f"the call to {service!r}" if service else "the call"
            text = f"the deadline of {what} passed before it was made"
            return CallTimeout(text, may_have_executed=False)
        if len(self) >= self.slots and now >= self.sweep.at:
            self.check_due(now)  # reclaims the slots of calls whose deadline has passed
        if len(self) >= self.slots:
            text = f"all {self.slots} slots of this client are in use by outstanding calls"
            return Overloaded(text, may_have_executed=False)
        return None

    def turn_down(
        self, token: Any, service: str, error: CallError, out: list[Effect], now: float
    ) -> None:
        """Fail a call that is not accepted."""
        out.append(Fail(token, error))
        self.observer.refused(encode_name(service), error, now)

    def take_on(self, call: CallT) -> None:
        """Add an accepted call."""
        self[call.token] = call
        if call.due_at < self.sweep.at:
            self.sweep.at = call.due_at
        self.observer.accepted(call)

    # --- attempts ---------------------------------------------------------------------------------
    def sent(
        self, call: CallT, out: list[Effect], now: float, kind: str = "sent", **facts: Any
    ) -> None:
        """Count an attempt, and start its timer: the attempt timeout if the call is idempotent, or
        else the deadline. `kind` is that of the remark."""
        call.tries += 1
        at = call.deadline
        if call.idempotent and now + self.try_s < at:
            at = now + self.try_s
        call.due_at = at
        if at < self.sweep.at:
            self.sweep.at = at
        observer = self.observer
        if observer.keeps_journal:  # hot
            observer.sent(call, now)
        if observer.makes_notes or (call.trace and is_sampled(call.trace)):
            self.remark(kind, call, out, **facts)

    def wait_until(self, call: CallT, at: float) -> None:
        """Set the timer of a call to `at`, or to its deadline if that is earlier."""
        if at > call.deadline:
            at = call.deadline
        call.due_at = at
        self.sweep.arm(at)

    def take_back(self, call: CallT, reason: str, now: float) -> None:
        """Count an attempt that is abandoned for a retry."""
        self.resent += 1
        self.observer.taken_back(call, reason, now)

    def drop(self, why: str, now: float) -> None:
        """Count an ignored message."""
        self.dropped[why] += 1
        self.observer.dropped(why, now)

    # --- ends -------------------------------------------------------------------------------------
    def answer(
        self, call: CallT, body: Sequence[bytes], attempts: int, out: list[Effect], now: float
    ) -> None:
        """Answer a call, which the engine has removed from its own tables."""
        token = call.token
        del self[token]
        reply = _new(Reply, (body, _OK, attempts, now - call.submitted_at))
        out.append(Deliver(token, reply))
        observer = self.observer
        if observer.keeps_journal:  # hot
            observer.answered(call, body, now)
        if observer.makes_notes:
            self.remark("replied", call, out, elapsed_s=reply.elapsed)

    def end(self, call: CallT, error: CallError, out: list[Effect], now: float) -> None:
        """Fail a call, which the engine has removed from its own tables."""
        del self[call.token]
        # Hot paths of protocols without ids leave it out; then only a recorder sets it.
        error.request_id = getattr(call, "call_id", b"").hex()
        error.attempts = call.attempts
        error.may_have_executed = call.may_have_run
        out.append(Fail(call.token, error))
        self.observer.failed(call, error, now)
        self.remark("failed", call, out, error=type(error).__name__, reason=str(error))

    def cancelled(self, event: Cancel, now: float) -> None:
        """Fail a call that its caller has cancelled."""
        call = self.get(event.token)
        if call is not None:  # else it has just ended
            self._fail(call, Cancelled("the caller cancelled the call"), now)

    def close(self, now: float) -> None:
        """Fail all calls, and refuse new ones."""
        self.closed = True
        for call in list(self.values()):
            self._fail(call, Cancelled("the client was closed"), now)
        self.sweep.at = inf

    def abandon_all(self, error: CallError, now: float) -> None:
        """Journal that all calls failed with `error`, after an exception inside the engine, which
        must not be used any more."""
        for call in self.values():
            self.observer.failed(call, error, now)

    # --- time -------------------------------------------------------------------------------------
    def woken(self, _event: Wake, now: float) -> None:
        """Handle due calls, and flush the journal if it is time to."""
        if now >= self.observer.flush_at:
            self.observer.flush_open_spans(self, now)
        if now >= self.sweep.at:
            self.check_due(now)

    def check_due(self, now: float) -> None:
        """Handle every call whose timer has fired."""
        due = self.sweep.due(self.values(), now)
        # A short budget goes to calls with the fewest attempts, then to the oldest.
        due.sort(key=attrgetter("tries", "submitted_at"))
        for call in due:
            if now >= call.deadline:
                self._fail(call, self._expired(call, now), now)
            else:
                self._time_out(call, now)

    def remark(self, kind: str, call: CallT, out: list[Effect], **facts: Any) -> None:
        """Make a note about a call, if notes are wanted or its trace is sampled."""
        if self.observer.makes_notes or is_sampled(call.trace):
            out.append(Note(kind, call.facts() | facts))


def times(n: int) -> str:
    """Return a number of times in words."""
    return "once" if n == 1 else f"{n} times"
