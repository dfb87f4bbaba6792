"""The client over SP, a REQ endpoint: calls go in, each comes back once, as a reply or an error.

    HELD ──► SENT ──► answered
      ▲        │
      └────────┘   its channel was lost, or no reply came in time: to the next channel

and out of both states: failed, timed out, cancelled. There is no broker: the client has a channel
to each service or device that it dialled, or that dialled it, and gives each request to one of
them, in turn (`channels.py`). A try that comes to nothing is repeated elsewhere, under the same
request id, so that a late reply to an earlier try serves as well. A call is HELD while no channel
takes it, because there is none or all push back. One that has lost channel after channel rests
between its tries, since it may be what they die of; others get through meanwhile.

Shells keep the connections; this engine only hears of them.

Source: sp-request-reply-01, "REQ endpoint" and "End-to-end functionality".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf
from typing import Any, Final

from requite.chronicle import NO_INSTANCE, Chronicle
from requite.core.budget import TimedBudget
from requite.core.calling import CallingEngine
from requite.core.machine import Handlers
from requite.engine import (
    Deliver,
    DeliverAll,
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
    Submit,
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
    place_of,
)
from requite.protocols.scalability.recorders import ClientRecorder
from requite.protocols.scalability.wire import BOTTOM, IDS, TAG_SIZE, pack_tag, request_tag
from requite.request import Reply, Status

_OK: Final = Status.OK
_new: Final = tuple.__new__  # half the price of calling a NamedTuple's class
_GOLDEN: Final = 0.6180339887498949  # its multiples spread evenly between whole numbers


class ScalabilityClient(CallingEngine[PendingCall]):
    """A client of whoever its shell is connected to. An `Ask` is answered as a `Submit` is; a body
    of several frames, or an idempotency key, is a `LocalViolation`.

    `first_id` is the first request id, 0 to 2**31 - 1: it MUST be random per start. So should
    `origin`, by which journals know the client; `chronicle` takes down what happens to calls.
    """

    def __init__(
        self,
        policy: ReqPolicy | None = None,
        *,
        first_id: int,
        origin: bytes = NO_INSTANCE,
        chronicle: Chronicle | None = None,
    ) -> None:
        self._policy = policy = policy or ReqPolicy()
        super().__init__(
            policy.slots,
            recorder=None if chronicle is None else ClientRecorder(chronicle, origin),
            notes=policy.notes,
        )
        resend_s = policy.retry.attempt_timeout
        self._resend_s = inf if resend_s is None else resend_s
        self._next_id = first_id % IDS
        self._budget = TimedBudget(policy.retry)
        self._earned_id = self._next_id  # the budget has heard of all calls before
        self._channels = Channels()
        self._pending: dict[bytes, PendingCall] = {}  # by tag, those that were sent
        self._held: dict[PendingCall, None] = {}  # a set that keeps its order
        self._malformed = self._stray = 0
        self._in_bulk = False  # in `handle_all`

    def _handlers(self) -> Handlers:
        return {**super()._handlers(), Ask: self._asked}

    def handle_all(self, events: Sequence[Input], now: float) -> Iterable[Effect]:
        """See `requite.engine.BulkEngine.handle_all`."""
        self._in_bulk = True
        try:
            self._submit_all(events, now)
        finally:
            self._in_bulk = False
        return self._said(now)

    def snapshot(self) -> ReqSnapshot:
        """Return the sizes of all tables."""
        channels, held = self._channels, len(self._held)
        return ReqSnapshot(
            len(channels),
            channels.blocked,
            held,
            len(self._calls) - held,
            self._resent,
            self._malformed,
            self._stray,
            self._stopped,
        )

    # --- from the user ----------------------------------------------------------------------------
    def _submitted(self, event: Submit, now: float) -> None:
        self._submit_all((event,), now)

    def _submit_all(self, events: Iterable[Input], now: float) -> None:
        """Take calls, and make the first try of each.

        With `_received` this is where the time of a call goes. Having the usual case in one piece,
        not a call per step, saved 0.9 us of 2.7; one effect for a turn's requests, 0.6 of the rest
        (CPython 3.11, 64 calls in flight).
        """
        calls, pending, held, sweep = self._calls, self._pending, self._held, self._sweep
        channels, slots, recorder, notes = self._channels, self._slots, self._recorder, self._notes
        outgoing: dict[Peer, list[tuple[bytes, bytes]]] = {}
        peer: Peer | None = None
        try:
            for event in events:
                if event.__class__ is not Submit:
                    self._inputs[event.__class__](event, now)
                    continue
                token, service, frames, deadline, idempotent, key, _partials = event
                if len(frames) != 1 or key:
                    raise LocalViolation("SP carries one frame, and no idempotency key")
                call = PendingCall()
                call.token = token
                call.body = body = frames[0]
                call.service = service
                call.deadline = due_at = deadline
                call.idempotent = idempotent
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
                    self._begin(call, self._policy.hold, now)
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
                messages.append((tag, body))
                if recorder is not None:
                    recorder.accepted(call)
                    recorder.sent(call, now)
                if notes:
                    self._note("sent", call)
        finally:  # what is on the books of this engine has to leave
            for peer, messages in outgoing.items():
                if len(messages) == 1:
                    self._out.append(_new(Send, (peer, messages[0])))
                else:
                    self._out.append(_new(SendAll, (peer, messages)))

    def _asked(self, event: Ask, now: float) -> None:
        call = PendingCall()
        call.token, call.body, call.deadline, call.idempotent, resend_s, hold, call.service = event
        call.resend_s = inf if resend_s is None or not call.idempotent else resend_s
        call.submitted_at = now
        self._begin(call, hold, now)

    def _begin(self, call: PendingCall, hold: bool, now: float) -> None:
        """Send a new call, hold it, or turn it down."""
        call.tag = b""
        call.tries = call.losses = 0
        if self._maybe_refuse(call.token, call.service, call.deadline, now):
            return
        channel = None if self._held else self._channels.next()
        if channel is None and not hold:
            error = failures.pushback(len(self._channels))
            self._turn_down(call.token, call.service, error, now)
            return
        self._take_on(call)
        if channel is None:
            self._hold(call)
        else:
            self._transmit(call, channel, now)

    # --- the life of a try ------------------------------------------------------------------------
    def _hold(self, call: PendingCall) -> None:
        """Let a call wait for a channel."""
        call.peer = None
        self._held[call] = None
        self._wait_until(call, call.deadline)

    def _transmit(self, call: PendingCall, channel: Channel, now: float) -> None:
        """Make a try."""
        if not call.tag:
            call.tag = self._new_tag()
            self._pending[call.tag] = call
        call.tries += 1
        call.peer = channel.peer
        self._wait_until(call, min(now + call.resend_s, call.deadline))
        self._out.append(Send(channel.peer, (call.tag, call.body)))
        if self._recorder is not None:
            self._recorder.sent(call, now)
        if self._notes:
            self._note("sent" if call.tries == 1 else "resent", call)

    def _new_tag(self) -> bytes:
        """Return the tag of the next request id that is free: a call may outlive 2**31 others."""
        while True:
            tag = request_tag(self._next_id)
            self._next_id = (self._next_id + 1) % IDS
            if tag not in self._pending:
                return tag

    def _received(self, event: Received, now: float) -> None:
        pop, calls, held = self._pending.pop, self._calls, self._held
        is_watched = self._recorder is not None or self._notes
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
            if is_watched:
                self._tell_reply(call, reply, now)
        if self._in_bulk:
            self._out.append(DeliverAll(pairs))
        else:
            self._out += [_new(Deliver, pair) for pair in pairs]

    def _tell_reply(self, call: PendingCall, reply: Reply, now: float) -> None:
        if self._recorder is not None:
            self._recorder.answered(call, len(reply.frames[0]), now)
        if self._notes:
            self._note("replied", call, elapsed_s=reply.elapsed)

    def _ignore(self, payload: bytes, now: float) -> None:
        """Count a reply to nothing that is outstanding."""
        if len(payload) < TAG_SIZE or not payload[0] & BOTTOM:
            self._malformed += 1
            why = "malformed replies"
        else:
            self._stray += 1
            why = "late, repeated or stray replies"
        if self._recorder is not None:
            self._recorder.dropped(why, now)

    def _forget(self, call: PendingCall) -> None:
        super()._forget(call)
        self._pending.pop(call.tag, None)
        if call.peer is None:
            del self._held[call]

    def _expired(self, call: PendingCall, now: float) -> CallError:
        return failures.expired(call, now)

    # --- channels ---------------------------------------------------------------------------------
    def _joined(self, event: PeerJoined, now: float) -> None:
        self._channels.join(event.peer, place_of(event.place))
        self._release(now)

    def _lost(self, event: PeerLost, now: float) -> None:
        self._channels.leave(event.peer)
        for call in [call for call in self._calls.values() if call.peer is event.peer]:
            self._interrupt(call, event.reason or "it was closed", now)
        self._release(now)

    def _blocked(self, event: PeerBlocked, _now: float) -> None:
        self._channels.block(event.peer)

    def _writable(self, event: PeerWritable, now: float) -> None:
        self._channels.unblock(event.peer)
        self._release(now)

    def _attend(self, now: float) -> None:
        self._release(now)

    def _release(self, now: float) -> None:
        """Let a portion of what is held go; the next one follows in the next turn."""
        self._attend_at = inf
        size = 0
        while self._held:
            call = next(iter(self._held))
            if now >= call.deadline:  # its timer is late (I15)
                self._fail(call, self._expired(call, now), now)
                continue
            channel = self._channels.next()
            if channel is None:
                return
            del self._held[call]
            self._transmit(call, channel, now)
            size += len(call.body)
            if size >= PORTION_SIZE:
                self._attend_at = now
                return

    def _interrupt(self, call: PendingCall, reason: str, now: float) -> None:
        """Hold a call whose channel has gone for another one, let it rest, or give it up."""
        call.losses += 1
        call.loss = reason
        if not call.idempotent or self._is_last(call):
            self._fail(call, failures.lost(call, reason), now)
            return
        self._take_back(call, f"its connection was lost: {reason}", now)
        if call.losses < LOSSES_BEFORE_REST:
            self._hold(call)
        else:
            self._rest(call, now)

    def _rest(self, call: PendingCall, now: float) -> None:
        """Let a call wait that has lost too many channels.

        Those that were lost together are set apart, by their ids: they would die together again,
        of the one that is to blame, if they went out together.
        """
        share = int.from_bytes(call.tag, "big") * _GOLDEN % 1
        longest = min(call.resend_s, RESEND_S_DEFAULT)
        pause = min(REST_S * 2.0 ** min(call.losses - LOSSES_BEFORE_REST, 30), longest)
        call.peer = RESTING
        self._wait_until(call, min(now + pause * (1 + share), call.deadline))

    def _try_again(self, call: PendingCall, now: float) -> None:
        """Make the next try of a call that has rested."""
        channel = None if self._held else self._channels.next()
        if channel is None:
            self._hold(call)
        else:
            self._transmit(call, channel, now)

    def _is_last(self, call: PendingCall) -> bool:
        """Whether there cannot be another try."""
        return call.tries >= self._policy.retry.attempts

    # --- time -------------------------------------------------------------------------------------
    def _time_out(self, call: PendingCall, now: float) -> None:
        if call.peer is RESTING:
            self._try_again(call, now)
        elif self._is_last(call):
            self._fail(call, failures.silent(call), now)
        else:
            self._resend(call, now)

    def _resend(self, call: PendingCall, now: float) -> None:
        """Try a call again that has waited long enough, if the budget allows."""
        self._budget.earn((self._next_id - self._earned_id) % IDS)
        self._earned_id = self._next_id
        is_first = call.tries - 1 == call.losses  # that one is free
        if not (is_first or self._budget.maybe_spend(now)):
            self._wait_until(call, min(self._budget.again_at, call.deadline))
            return
        self._take_back(call, f"no reply within {call.resend_s:g} s", now)
        channel = None if self._held else self._channels.next_but(call.peer)
        if channel is None:
            self._hold(call)
        else:
            self._transmit(call, channel, now)

    def _note(self, kind: str, call: PendingCall, **facts: Any) -> None:
        super()._note(kind, call, service=call.service, **facts)
