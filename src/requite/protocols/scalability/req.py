"""The client over SP, a REQ endpoint: each call ends once, with a reply or an error.

    HELD ──► SENT ──► answered
      ▲        │
      └────────┘   channel lost, or attempt timed out: to the next channel

A call in either state may also fail, time out or be cancelled. There is no broker: the client has a
channel to each worker or device that it dialled, or that dialled it, and sends each request to one
of them, round robin (`channels.py`). A retry goes to another channel with the same request id, so a
late reply to an earlier attempt is accepted too. A call is HELD while no channel accepts it,
because there is none or all have back-pressure. A call that has lost several channels in a row
backs off between attempts, since its request may be the cause; other calls proceed meanwhile.

The shell maintains the connections.

Source: sp-request-reply-01, "REQ endpoint" and "End-to-end functionality".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf
from typing import Any, ClassVar, Final

from requite.chronicle import NO_INSTANCE, Chronicle
from requite.core.budget import TimedBudget
from requite.core.calls import MALFORMED, STRAY, Calls
from requite.core.machine import Handlers, Machine
from requite.core.recording import call_observer
from requite.engine import (
    Cancel,
    Cause,
    Deliver,
    DeliverAll,
    Disconnect,
    Drain,
    Effect,
    Input,
    Peer,
    PeerBlocked,
    PeerJoined,
    PeerLost,
    PeerWritable,
    Received,
    Send,
    SendAll,
    Stopped,
    Submit,
    Wake,
)
from requite.errors import CallError, LocalViolation
from requite.protocols.scalability import failures
from requite.protocols.scalability.calls import RESTING, Ask, PendingCall, ReqSnapshot
from requite.protocols.scalability.channels import PORTION_SIZE, Channel, Channels
from requite.protocols.scalability.policy import (
    LOSSES_BEFORE_REST,
    RESEND_S_DEFAULT,
    REST_S,
    ReqPolicy,
    pipe_options,
)
from requite.protocols.scalability.wire import BOTTOM, IDS, TAG_SIZE, pack_tag, request_tag
from requite.request import Reply, Status

_OK: Final = Status.OK
_new: Final = tuple.__new__  # half the cost of calling a NamedTuple's class
_GOLDEN: Final = 0.6180339887498949  # its multiples spread evenly between whole numbers


class ScalabilityClient(Machine):
    """A client of all peers of its shell. An `Ask` is answered like a `Submit`; a body of several
    frames, or an idempotency key, is a `LocalViolation`.

    `first_id` is the first request id, 0 to 2**31 - 1: it MUST be random per start. `origin`
    identifies the client in journals and should be random per start. `chronicle` journals calls.
    """

    _kind: ClassVar = "a client"

    def __init__(
        self,
        policy: ReqPolicy | None = None,
        *,
        first_id: int,
        origin: bytes = NO_INSTANCE,
        chronicle: Chronicle | None = None,
    ) -> None:
        self._policy = policy = policy or ReqPolicy()
        self.calls: Calls[PendingCall] = Calls(
            policy.slots,
            call_observer(chronicle, origin, notes=policy.notes),
            fail=self._fail,
            time_out=self._time_out,
            expired=failures.expired,
        )
        super().__init__()
        resend_s = policy.retry.attempt_timeout
        self._resend_s = inf if resend_s is None else resend_s
        self._next_id = first_id % IDS
        self._budget = TimedBudget(policy.retry)
        self._earned_id = self._next_id  # the budget has counted all calls before it
        self._channels = Channels()
        self._pending: dict[bytes, PendingCall] = {}  # by tag, those that were sent
        self._held: dict[PendingCall, None] = {}  # a set that keeps its order
        self._release_at = inf  # when to send the next portion of held calls

    def _handlers(self) -> Handlers:
        return {
            Ask: self._asked,
            Received: self._received,
            Cancel: self.calls.cancelled,
            Wake: self._woken,
            PeerJoined: self._joined,
            PeerLost: self._lost,
            PeerBlocked: self._blocked,
            PeerWritable: self._writable,
            Drain: self._drained,
        }

    def deadline(self) -> float | None:
        """See `requite.engine.Engine.deadline`."""
        at = self.calls.next_at()
        if self._release_at < at:
            at = self._release_at
        return None if at == inf else at

    def snapshot(self) -> ReqSnapshot:
        """Return the sizes of all tables."""
        channels, held = self._channels, len(self._held)
        return ReqSnapshot(
            len(channels),
            channels.blocked,
            held,
            len(self.calls) - held,
            self.calls.resent,
            self.calls.dropped[MALFORMED],
            self.calls.dropped[STRAY],
            self._stopped,
        )

    # --- from the user ----------------------------------------------------------------------------
    def handle(self, events: Sequence[Input], now: float) -> Iterable[Effect]:
        """See `requite.engine.Engine.handle`.

        This and `_received` take most of the time of a call. Inlining the usual case saved 0.9 us
        of 2.7; one effect for all requests of a batch, 0.6 us of the rest (CPython 3.11, 64 calls
        in flight).
        """
        calls, pending, held, channels = self.calls, self._pending, self._held, self._channels
        sweep, slots, observer = calls.sweep, calls.slots, calls.observer
        keeps_journal, makes_notes = observer.keeps_journal, observer.makes_notes
        outgoing: dict[Peer, list[tuple[bytes, bytes]]] = {}
        peer: Peer | None = None
        refused: LocalViolation | None = None
        for event in events:
            if event.__class__ is not Submit:
                if outgoing:  # keep the order per peer
                    self._put_out(outgoing)
                    peer = None
                violation = self._feed(event, now)
                refused = refused or violation
                continue
            frames = event.frames
            if len(frames) != 1 or event.idempotency_key:
                text = "SP carries one frame, and no idempotency keys"
                refused = refused or LocalViolation(text)
                continue
            call = PendingCall()
            call.token = token = event.token
            call.frames = frames
            call.service = event.service
            call.deadline = call.due_at = deadline = due_at = event.deadline
            call.idempotent = idempotent = event.idempotent
            call.trace = event.trace
            call.submitted_at = now
            resend_s = call.resend_s = self._resend_s if idempotent else inf
            if (
                held
                or token in calls
                or deadline <= now
                or len(calls) >= slots
                or self._stopped
                or (channel := channels.sole or channels.next()) is None
            ):
                if outgoing:
                    self._put_out(outgoing)
                    peer = None
                try:
                    self._begin(call, self._policy.hold, now)
                except LocalViolation as violation:
                    refused = refused or violation
                continue
            calls[token] = call
            request_id = self._next_id
            self._next_id = request_id + 1 if request_id < IDS - 1 else 0
            call.tag = tag = pack_tag(IDS | request_id)
            if tag in pending:
                tag = call.tag = self._new_tag()
            pending[tag] = call
            if now + resend_s < due_at:
                due_at = now + resend_s
            call.due_at = due_at
            if due_at < sweep.at:
                sweep.at = due_at
            call.tries = 1
            call.losses = 0
            if peer is not channel.peer:
                peer = channel.peer
                messages = outgoing.setdefault(peer, [])
            call.peer = peer
            messages.append((tag, frames[0]))
            if keeps_journal:
                call.call_id = b""
                observer.accepted(call)
                observer.sent(call, now)
            if makes_notes or call.trace:
                calls.remark("sent", call, self._out)
        if outgoing:
            self._put_out(outgoing)
        if refused is not None:
            raise refused
        out = self._out
        if out:
            self._out = []
        return out

    def _put_out(self, outgoing: dict[Peer, list[tuple[bytes, bytes]]]) -> None:
        """Emit the collected requests."""
        for peer, messages in outgoing.items():
            if len(messages) == 1:
                self._out.append(Send(peer, messages[0]))
            else:
                self._out.append(SendAll(peer, messages))
        outgoing.clear()

    def _asked(self, event: Ask, now: float) -> None:
        call = PendingCall()
        call.token, body, call.deadline, call.idempotent, resend_s, hold, call.service = event
        call.frames = (body,)
        call.due_at = call.deadline
        call.resend_s = inf if resend_s is None or not call.idempotent else resend_s
        call.trace = b""
        call.submitted_at = now
        self._begin(call, hold, now)

    def _begin(self, call: PendingCall, hold: bool, now: float) -> None:
        """Send, hold or refuse a new call."""
        call.call_id = call.tag = b""
        call.tries = call.losses = 0
        if self.calls.refuse(call.token, call.service, call.deadline, self._out, now):
            return
        channel = None if self._held else self._channels.next()
        if channel is None and not hold:
            error = failures.pushback(len(self._channels))
            self.calls.turn_down(call.token, call.service, error, self._out, now)
            return
        self.calls.take_on(call)
        if channel is None:
            self._hold(call)
        else:
            self._transmit(call, channel, now)

    # --- attempts ---------------------------------------------------------------------------------
    def _hold(self, call: PendingCall) -> None:
        """Hold a call until a channel accepts it."""
        call.peer = None
        self._held[call] = None
        self.calls.wait_until(call, call.deadline)

    def _transmit(self, call: PendingCall, channel: Channel, now: float) -> None:
        """Send the request of a call."""
        if not call.tag:
            call.tag = self._new_tag()
            self._pending[call.tag] = call
        call.peer = channel.peer
        self._out.append(Send(channel.peer, (call.tag, call.frames[0])))
        self.calls.sent(call, self._out, now, "resent" if call.tries else "sent")
        self.calls.wait_until(call, now + call.resend_s)

    def _new_tag(self) -> bytes:
        """Return the tag of the next free request id: a call may outlive 2**31 others."""
        while True:
            tag = request_tag(self._next_id)
            self._next_id = (self._next_id + 1) % IDS
            if tag not in self._pending:
                return tag

    def _received(self, event: Received, now: float) -> None:
        pop, calls, held = self._pending.pop, self.calls, self._held
        observer = calls.observer
        keeps_journal, makes_notes = observer.keeps_journal, observer.makes_notes
        pairs: list[tuple[Any, Reply]] = []
        for (payload,) in event.messages:
            call = pop(payload[:4], None)
            if call is None:
                self._ignore(payload, now)
                continue
            token = call.token
            del calls[token]
            if call.peer is None:
                del held[call]
            reply = _new(Reply, ((payload[4:],), _OK, call.tries, now - call.submitted_at))
            pairs.append((token, reply))
            if keeps_journal:
                observer.answered(call, reply.frames, now)
            if makes_notes:
                calls.remark("replied", call, self._out, elapsed_s=reply.elapsed)
        if len(pairs) == 1:
            self._out.append(Deliver(*pairs[0]))
        elif pairs:
            self._out.append(DeliverAll(pairs))

    def _ignore(self, payload: bytes, now: float) -> None:
        """Count a reply that matches no outstanding call."""
        is_malformed = len(payload) < TAG_SIZE or not payload[0] & BOTTOM
        self.calls.drop(MALFORMED if is_malformed else STRAY, now)

    def _fail(self, call: PendingCall, error: CallError, now: float) -> None:
        self._forget(call)
        self.calls.end(call, error, self._out, now)

    def _forget(self, call: PendingCall) -> None:
        """Remove a call from all tables except `calls`."""
        self._pending.pop(call.tag, None)
        if call.peer is None:
            del self._held[call]

    def _drained(self, _event: Drain, now: float) -> None:
        if not self._stopped:
            self._stopped = True
            self.calls.close(now)
            self._release_at = inf
            self._out.append(Stopped())

    # --- channels ---------------------------------------------------------------------------------
    def _joined(self, event: PeerJoined, now: float) -> None:
        if self._stopped:
            self._out.append(Disconnect(event.peer, "the client is closed", Cause.DONE))
            return
        self._channels.join(event.peer, pipe_options(event.place))
        self._release(now)

    def _lost(self, event: PeerLost, now: float) -> None:
        self._channels.leave(event.peer)
        for call in [call for call in self.calls.values() if call.peer is event.peer]:
            self._interrupt(call, event.reason or "it was closed", now)
        self._release(now)

    def _blocked(self, event: PeerBlocked, _now: float) -> None:
        self._channels.block(event.peer)

    def _writable(self, event: PeerWritable, now: float) -> None:
        self._channels.unblock(event.peer)
        self._release(now)

    def _release(self, now: float) -> None:
        """Send a portion of the held calls; the next portion follows in the next turn."""
        self._release_at = inf
        size = 0
        while self._held:
            call = next(iter(self._held))
            if now >= call.deadline:  # its timer is late (I15)
                self._fail(call, failures.expired(call, now), now)
                continue
            channel = self._channels.next()
            if channel is None:
                return
            del self._held[call]
            self._transmit(call, channel, now)
            size += len(call.frames[0])
            if size >= PORTION_SIZE:
                self._release_at = now
                return

    def _interrupt(self, call: PendingCall, reason: str, now: float) -> None:
        """Hold, back off or fail a call whose channel was lost."""
        call.losses += 1
        call.loss = reason
        if not call.idempotent or self._is_last(call):
            self._fail(call, failures.lost(call, reason), now)
            return
        self.calls.take_back(call, f"its connection was lost: {reason}", now)
        if call.losses < LOSSES_BEFORE_REST:
            self._hold(call)
        else:
            self._rest(call, now)

    def _rest(self, call: PendingCall, now: float) -> None:
        """Back off with a call that has lost several channels.

        Calls that were lost together get different pauses, by their ids: resent together, they
        would be lost again because of the same bad request.
        """
        share = int.from_bytes(call.tag, "big") * _GOLDEN % 1
        longest = min(call.resend_s, RESEND_S_DEFAULT)
        pause = min(REST_S * 2.0 ** min(call.losses - LOSSES_BEFORE_REST, 30), longest)
        call.peer = RESTING
        self.calls.wait_until(call, now + pause * (1 + share))

    def _try_again(self, call: PendingCall, now: float) -> None:
        """Send a call again after its back-off."""
        channel = None if self._held else self._channels.next()
        if channel is None:
            self._hold(call)
        else:
            self._transmit(call, channel, now)

    def _is_last(self, call: PendingCall) -> bool:
        """Whether the call cannot be retried."""
        return call.tries >= self._policy.retry.attempts

    # --- time -------------------------------------------------------------------------------------
    def _woken(self, event: Wake, now: float) -> None:
        self.calls.woken(event, now)
        if now >= self._release_at:
            self._release(now)

    def _time_out(self, call: PendingCall, now: float) -> None:
        if call.peer is RESTING:
            self._try_again(call, now)
        elif self._is_last(call):
            self._fail(call, failures.silent(call), now)
        else:
            self._resend(call, now)

    def _resend(self, call: PendingCall, now: float) -> None:
        """Resend a call whose attempt has timed out, if the budget allows."""
        self._budget.earn((self._next_id - self._earned_id) % IDS)
        self._earned_id = self._next_id
        is_first = call.tries - 1 == call.losses  # that one is free
        if not (is_first or self._budget.maybe_spend(now)):
            self.calls.wait_until(call, self._budget.again_at)
            return
        self.calls.take_back(call, f"no reply within {call.resend_s:g} s", now)
        channel = None if self._held else self._channels.next_but(call.peer)
        if channel is None:
            self._hold(call)
        else:
            self._transmit(call, channel, now)
