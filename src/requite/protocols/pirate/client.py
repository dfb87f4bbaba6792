"""The Lazy Pirate: a client that asks, waits a while, and asks again on a new connection.

    HELD ──► SENT ──► answered
      ▲        │
      └────────┘   no reply came in time, or the connection was lost

and out of both states: failed, timed out, cancelled. There is nothing on the wire that tells
replies apart, so each connection carries one request at a time, as a REQ socket does, and several
calls have several connections. When a try is given up its connection is closed: a late reply must
not be taken for the reply to the next request (I2). At the other end that is how a server, or a
queue, learns that nobody waits any more.

A request that is not idempotent is sent once. What a call's deadline leaves of it is not spent on a
server that cannot be reached: it is held until there is a connection.

Source: Guide, "Client-side Reliability (Lazy Pirate Pattern)".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import inf
from typing import Any

from requite.chronicle import NO_INSTANCE, Chronicle
from requite.engine import (
    Cancel,
    Connect,
    Deliver,
    Disconnect,
    Drain,
    Effect,
    Fail,
    Input,
    Message,
    Note,
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
from requite.errors import CallError, Cancelled, LocalViolation
from requite.protocols.pirate import calls as failures
from requite.protocols.pirate.calls import ClientSnapshot, PendingCall
from requite.protocols.pirate.policy import ClientPolicy
from requite.protocols.pirate.recorders import ClientRecorder
from requite.request import Reply, RetryBudget, Status
from requite.sweep import Sweep


class LazyPirate:
    """A client of the place its shell dials.

    `origin`, by which journals know the client, should be random per start; `chronicle` takes down
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
        self._retry = policy.retry
        self._budget = RetryBudget(policy.retry)
        self._calls: dict[Any, PendingCall] = {}  # by token, in the order of submission
        self._waiting: dict[PendingCall, None] = {}  # HELD ones, in the order of submission
        self._lanes: dict[Peer, PendingCall | None] = {}
        self._idle: dict[Peer, None] = {}
        self._dialling = 0
        self._sweep = Sweep()
        self._resent = self._stray = 0
        self._recorder = None if chronicle is None else ClientRecorder(chronicle, origin)
        self._stopped = False
        self._out: list[Effect] = []
        self._inputs: dict[type, Callable[[Any, float], None]] = {
            Submit: self._submitted,
            Received: self._received,
            Wake: self._woken,
            Cancel: self._cancelled,
            PeerJoined: self._joined,
            PeerLost: self._lost,
            PeerBlocked: _go_on,  # one request waits there at most, the caller's own object
            PeerWritable: _go_on,
            Drain: self._drained,
        }

    # --- the engine's contract --------------------------------------------------------------------
    def handle(self, event: Input, now: float) -> Iterable[Effect]:
        """See `requite.engine.Engine.handle`.

        Each `Submit` is answered exactly once: by a `Deliver` of a `Reply`, or by a `Fail`; after a
        `Cancel`, by a `Fail` with `Cancelled`. The token of a call that is still outstanding, an
        idempotency key or a wish for partial replies is a `LocalViolation`. After `Drain` every
        call fails at once with `Cancelled`, those outstanding and those to come.
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
        """See `requite.engine.Engine.deadline`."""
        at = self._sweep.at
        if self._recorder is not None and self._recorder.look_at < at:
            at = self._recorder.look_at
        return None if at == inf else at

    def snapshot(self) -> ClientSnapshot:
        """Return the sizes of all tables."""
        held = len(self._waiting)
        return ClientSnapshot(
            len(self._lanes),
            self._dialling,
            held,
            len(self._calls) - held,
            self._resent,
            self._stray,
            self._stopped,
        )

    def forsake(self, error: CallError, now: float) -> None:
        """Tell the journal that all calls have ended with `error`, because the engine was given up:
        an exception struck while it was at work. It must not be used any more."""
        if self._recorder is not None:
            for call in self._calls.values():
                self._recorder.failed(call, error, now)

    # --- from the user ----------------------------------------------------------------------------
    def _submitted(self, asked: Submit, now: float) -> None:
        if asked.token in self._calls:
            raise LocalViolation(f"a call with the token {asked.token!r} is still outstanding")
        if asked.idempotency_key or asked.partials:
            raise LocalViolation("REQ carries no idempotency key, and has one reply per request")
        error = self._why_not(asked, now)
        if error is not None:
            self._out.append(Fail(asked.token, error))
            if self._recorder is not None:
                self._recorder.refused(asked.service, error, now)
            return
        call = self._calls[asked.token] = PendingCall(asked, now)
        self._budget.earn()
        if self._recorder is not None:
            self._recorder.accepted(call)
        self._hold(call)
        self._supply(now)

    def _why_not(self, asked: Submit, now: float) -> CallError | None:
        if self._stopped:
            return failures.closed()
        if asked.deadline <= now:
            return failures.too_late()
        if len(self._calls) >= self._policy.slots:
            self._look(now)  # reclaims the slots of calls whose deadline has passed
            if len(self._calls) >= self._policy.slots:
                return failures.no_slot(self._policy.slots)
        return None

    def _cancelled(self, event: Cancel, now: float) -> None:
        call = self._calls.get(event.token)
        if call is not None:  # else its end has just crossed the cancel
            self._give_up(call, Cancelled("the call was given up by its caller"), now)

    def _drained(self, _event: Drain, now: float) -> None:
        if self._stopped:
            return
        self._stopped = True
        for call in list(self._calls.values()):
            self._fail(call, Cancelled("the client was closed"), now)
        self._out += (Disconnect(peer, "the client was closed") for peer in self._lanes)
        self._lanes.clear()
        self._idle.clear()
        self._dialling = 0
        self._sweep.at = inf
        self._out.append(Stopped())

    # --- the life of a try ------------------------------------------------------------------------
    def _hold(self, call: PendingCall) -> None:
        """Let a call wait for a connection, in the order of submission."""
        call.peer = None
        self._wait_until(call, call.asked.deadline)
        self._waiting[call] = None
        if call.tries:
            self._waiting = {each: None for each in self._calls.values() if each in self._waiting}

    def _supply(self, now: float) -> None:
        """Give idle connections to calls that wait, and open as many more as are needed."""
        while self._idle and self._waiting:
            call = next(iter(self._waiting))
            del self._waiting[call]
            if now >= call.asked.deadline:  # its timer is late (I15)
                self._fail(call, failures.expired(call, now), now)
                continue
            # The one used last is used next, so that in quiet times the same few are busy.
            self._transmit(call, self._idle.popitem()[0], now)
        room = self._policy.connections_max - len(self._lanes) - self._dialling
        for _ in range(min(len(self._waiting) - self._dialling, room)):
            self._dialling += 1
            self._out.append(Connect())

    def _transmit(self, call: PendingCall, peer: Peer, now: float) -> None:
        self._lanes[peer] = call
        call.peer = peer
        call.tries += 1
        try_s = self._retry.attempt_timeout
        if try_s is not None and call.asked.idempotent:
            self._wait_until(call, min(now + try_s, call.asked.deadline))
        self._out.append(Send(peer, call.asked.frames or (b"",)))
        if self._recorder is not None:
            self._recorder.sent(call, now)
        self._note("sent", call)

    def _received(self, event: Received, now: float) -> None:
        peer, messages = event
        if peer not in self._lanes:
            return  # the rest of a connection that was closed
        call = self._lanes[peer]
        strays = len(messages) - (call is not None)
        if call is not None and messages:
            self._lanes[peer] = None
            self._take_reply(call, messages[0], now)
        # Not before the whole batch is read: none of it can be a reply to what is sent only now.
        if strays > 0:
            self._distrust(peer, strays)
        elif self._lanes[peer] is None:
            self._idle[peer] = None
        self._supply(now)

    def _distrust(self, peer: Peer, strays: int) -> None:
        """Close a connection that brought more replies than requests: the next ones would be taken
        for replies to what was not asked yet (I2)."""
        self._stray += strays
        del self._lanes[peer]
        self._idle.pop(peer, None)
        text = "a reply came on a connection that asks nothing"
        self._out += (Warn("stray reply", text), Disconnect(peer, text))

    def _take_reply(self, call: PendingCall, frames: Message, now: float) -> None:
        del self._calls[call.asked.token]
        reply = Reply(frames, Status.OK, call.tries, now - call.submitted_at)
        self._out.append(Deliver(call.asked.token, reply))
        if self._recorder is not None:
            self._recorder.replied(call, frames, now)
        self._note("replied", call, elapsed_s=reply.elapsed)

    def _recall(self, call: PendingCall) -> None:
        """Close the connection of a try that is given up: its reply must not come."""
        if call.peer is not None:
            del self._lanes[call.peer]
            self._out.append(Disconnect(call.peer, "no reply came in time"))

    def _try_again(self, call: PendingCall, why: str, now: float) -> None:
        call.loss = why
        self._resent += 1
        if self._recorder is not None:
            self._recorder.taken_back(call, why, now)
        self._hold(call)
        self._note("retried", call, reason=why)

    # --- ends -------------------------------------------------------------------------------------
    def _give_up(self, call: PendingCall, error: CallError, now: float) -> None:
        self._recall(call)
        self._fail(call, error, now)
        self._supply(now)

    def _fail(self, call: PendingCall, error: CallError, now: float) -> None:
        error.attempts = call.tries
        error.may_have_executed = call.tries > 0
        self._waiting.pop(call, None)
        del self._calls[call.asked.token]
        self._out.append(Fail(call.asked.token, error))
        if self._recorder is not None:
            self._recorder.failed(call, error, now)
        self._note("failed", call, error=type(error).__name__, reason=str(error))

    # --- connections ------------------------------------------------------------------------------
    def _joined(self, event: PeerJoined, now: float) -> None:
        if self._stopped or len(self._lanes) >= self._policy.connections_max:
            self._out.append(Disconnect(event.peer, "this connection is not needed"))
            return
        self._dialling = max(0, self._dialling - 1)
        self._lanes[event.peer] = None
        self._idle[event.peer] = None
        self._supply(now)

    def _lost(self, event: PeerLost, now: float) -> None:
        if event.peer not in self._lanes:
            return
        call = self._lanes.pop(event.peer)
        self._idle.pop(event.peer, None)
        if call is not None:
            self._interrupt(call, event.reason or "it was closed", now)
        self._supply(now)

    def _interrupt(self, call: PendingCall, reason: str, now: float) -> None:
        """Hold a call whose connection has gone for the next one, or give it up (I11)."""
        if not call.asked.idempotent:
            why = "it may have run, and is not idempotent"
        elif call.tries >= self._retry.attempts:
            why = f"it may have run, and was sent {failures.count(call.tries)}, which is the limit"
        else:
            self._try_again(call, f"its connection was lost: {reason}", now)
            return
        self._fail(call, failures.lost(call, reason, why), now)

    # --- time -------------------------------------------------------------------------------------
    def _woken(self, _event: Wake, now: float) -> None:
        if self._recorder is not None and now >= self._recorder.look_at:
            self._recorder.look(self._calls, now)
        if now >= self._sweep.at:
            self._look(now)
            self._supply(now)

    def _wait_until(self, call: PendingCall, at: float) -> None:
        call.due_at = at
        self._sweep.arm(at)

    def _look(self, now: float) -> None:
        """Handle every call whose instant has come."""
        for call in self._sweep.due(self._calls.values(), now):
            if now >= call.asked.deadline:
                error = failures.expired(call, now)
                self._recall(call)
                self._fail(call, error, now)
            else:
                self._time_out(call, now)

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

    def _note(self, kind: str, call: PendingCall, **facts: Any) -> None:
        if self._policy.notes:
            known = {"token": call.asked.token, "attempts": call.tries}
            self._out.append(Note(kind, known | facts))


def _go_on(_event: PeerBlocked | PeerWritable, _now: float) -> None:
    """Take no notice."""
