"""The Majordomo client: calls go in, each comes back exactly once as a reply or as an error.

`client_engine` makes the engine for a dialect. `MajordomoClient` speaks MDP 0.3: one connection
carries all calls, each under its request id. Clients of MDP 0.1 and 0.2 are in `lanes.py`; what
both have in common, the life of a call, is in `client_base.py`.

The broker may be away when a call is made, and may come back later: calls are held until there is a
connection, and what it had not answered when it went is sent again where that is safe. While calls
are outstanding a silent broker is asked for a sign of life, and counts as gone if none comes.

Sources: docs/protocols/mdp-0.3.md, section "The client's side" (rule ids in brackets); 18/MDP,
section "MDP/Client"; Guide, "Client-side Reliability" and "Heartbeating".
"""

from __future__ import annotations

from math import inf
from typing import Final

from requite.chronicle import NO_INSTANCE, Chronicle
from requite.core.liveness import Liveness, absence_s
from requite.core.machine import Handlers
from requite.engine import (
    Connect,
    Disconnect,
    Peer,
    PeerBlocked,
    PeerJoined,
    PeerLost,
    PeerWritable,
    Received,
    Rng,
    Send,
    Wake,
    Warn,
)
from requite.errors import CallError, CallTimeout, RemoteViolation, TransportError
from requite.protocols.majordomo.calls import HELD, SENT, ClientPolicy, PendingCall
from requite.protocols.majordomo.client_base import ClientEngine
from requite.protocols.majordomo.lanes import LaneClient
from requite.protocols.majordomo.wire import (
    NOT_IDEMPOTENT,
    ClientCancel,
    ClientFinal,
    ClientHeartbeat,
    ClientPartial,
    Dialect,
    ToClient,
    timeout_ms,
)
from requite.request import Status

_PERHAPS_ANOTHER_DIALECT: Final = (
    "the broker has sent no message of MDP 0.3, nor answered a heartbeat; if it speaks 0.2 (RFC 18)"
    " or 0.1 (RFC 7) only, name that dialect: --dialect on the command line, dialect= in Python, or"
    " ?dialect= in the URL"
)


def client_engine(
    dialect: Dialect,
    policy: ClientPolicy | None = None,
    *,
    rng: Rng,
    first_sequence: int,
    origin: bytes = NO_INSTANCE,
    chronicle: Chronicle | None = None,
) -> ClientEngine:
    """Make the engine of a client that speaks `dialect`.

    `rng` gives the jitter of back-offs. `first_sequence` should be random per start: a reply to a
    former life of the client then meets no call of this one. So should `origin`, by which journals
    know the client; `chronicle` takes down what happens to calls.
    """
    kind = MajordomoClient if dialect.has_ids else LaneClient
    return kind(
        dialect,
        policy or ClientPolicy(),
        rng=rng,
        first_sequence=first_sequence,
        origin=origin,
        chronicle=chronicle,
    )


class MajordomoClient(ClientEngine):
    """A client with one connection and many outstanding calls (MDP 0.3)."""

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
        super().__init__(
            dialect,
            policy,
            rng=rng,
            first_sequence=first_sequence,
            origin=origin,
            chronicle=chronicle,
        )
        self._told_share = 1 - policy.hold_back  # of the time of a call: what the broker is told of
        self._peer: Peer | None = None
        self._dialling = False
        self._leaving = False  # the broker is shutting down: what is SENT is still awaited
        self._liveness = Liveness(policy.heartbeat, 0.0)
        self._beat_at = inf  # when to look at the heartbeat again; inf: no calls, no heartbeats
        self._pressed = False  # the broker has not taken yet what it was sent
        self._has_heard = False  # a message of this dialect, from any broker
        self._was_silent = False  # some broker, for as long as a living one may be

    def _handlers(self) -> Handlers:
        return {
            **super()._handlers(),
            PeerBlocked: self._blocked,
            PeerWritable: self._writable,
        }

    def deadline(self) -> float | None:
        """See `requite.engine.Engine.deadline`."""
        at = self.calls.next_at()
        if self._redial.at < at:
            at = self._redial.at
        if self._beat_at < at:
            at = self._beat_at
        return None if at == inf else at

    # --- the hot path -----------------------------------------------------------------------------
    def _transmit(self, call: PendingCall, now: float) -> None:
        peer = self._peer
        if peer is None:
            self._dial(now)
            return
        if self._leaving:
            return
        message = self._dialect.client_request(
            call.name,
            call.frames,
            call.request_id,
            timeout_ms((call.deadline - now) * self._told_share),
            0 if call.idempotent else NOT_IDEMPOTENT,
            call.idempotency_key,
            call.call_id,
        )
        self._out.append(Send(peer, message))
        self._sent(call, now)
        self._liveness.spoke_at = now
        if self._beat_at == inf:
            self._start_beating(now)

    def _received(self, event: Received, now: float) -> None:
        peer, messages = event.peer, event.messages
        if peer is not self._peer:
            return  # the rest of a connection that was given up
        decode = self._dialect.decode_to_client
        free = self._slots.free
        try:
            for message in messages:
                command = decode(message)
                if isinstance(command, ClientFinal) and not command.status:
                    call = free(command.request_id)
                    if call is not None:  # else [client-stray]
                        body = command.body if call.joined is None else call.joined + command.body
                        tries = call.tries - 1 + (command.attempts or 1)
                        self.calls.answer(call, body, tries, self._out, now)
                else:
                    self._received_other(command, now)
        except RemoteViolation as violation:
            self._out.append(Warn("malformed", f"the broker broke the protocol: {violation}"))
            self._hang_up(f"it broke the protocol: {violation}", now)
            return
        self._liveness.heard_at = now
        self._has_heard = True
        if self._leaving:
            self._maybe_leave(now)
        else:
            self._redial.fruitless = 0

    def _received_other(self, command: ToClient, now: float) -> None:
        if isinstance(command, ClientHeartbeat):
            return  # that it came is all it says
        call = self._slots.get(command.request_id)
        if call is None:  # [client-stray]
            return
        if isinstance(command, ClientPartial):
            self._match_partial(call, command, now)
        elif command.status == Status.SHUTTING_DOWN:
            self._leaving = True
            self._take_back(call, command, now)
        else:
            self._take_refusal(call, command, now)

    def _match_partial(self, call: PendingCall, partial: ClientPartial, now: float) -> None:
        if partial.part_index != call.partials:  # [client-partials]
            raise RemoteViolation(
                f"partial {partial.part_index} of a reply came where {call.partials} was due"
            )
        self._take_partial(call, partial.body, now)

    def _fail(self, call: PendingCall, error: CallError, now: float) -> None:
        is_silence = isinstance(error, CallTimeout | TransportError) and call.tries > 0
        if is_silence and self._was_silent and not self._has_heard:
            error = type(error)(f"{error}; {_PERHAPS_ANOTHER_DIALECT}")
            error.says_what_to_do = True
        super()._fail(call, error, now)

    # --- the connection ---------------------------------------------------------------------------
    def _recall(self, call: PendingCall, now: float) -> None:
        self._out.append(Send(self._peer, self._dialect.encode(ClientCancel(call.request_id))))
        self._liveness.spoke_at = now
        if self._leaving:
            self.calls.sweep.arm(now)  # it may have been the last one that is awaited here

    def _joined(self, event: PeerJoined, now: float) -> None:
        if self._stopped or self._peer is not None:
            self._out.append(Disconnect(event.peer, "this connection is not needed"))
            return
        self._dialling = False
        self._redial.joined(now)
        self._peer = event.peer
        self._liveness = Liveness(self._policy.heartbeat, now)
        self._pressed = False
        for call in self.calls.values():
            if call.state is HELD and now < call.deadline:  # I15: else its timer is late
                self._transmit(call, now)

    def _lost(self, event: PeerLost, now: float) -> None:
        if event.peer is self._peer and not self._stopped:
            self._go_without(event.reason or "it was closed", now)

    def _maybe_leave(self, now: float) -> None:
        """Leave a broker that is shutting down, once it owes no answer ([client-drain])."""
        if not any(call.state is SENT for call in self.calls.values()):
            self._redial.turned_away()
            self._hang_up("the broker is shutting down", now)

    def _hang_up(self, reason: str, now: float) -> None:
        """Leave a broker that is gone, or out of its mind."""
        self._out.append(Disconnect(self._peer, reason))
        self._go_without(reason, now)

    def _go_without(self, reason: str, now: float) -> None:
        """Be without a connection; get another."""
        self._peer = None
        self._leaving = False
        self._beat_at = inf
        for call in list(self.calls.values()):
            if call.state is SENT:
                self._interrupt(call, reason, now)
        self._dial(now)

    def _dial(self, now: float) -> None:
        """Connect, now or when it is time to."""
        if not self._dialling:
            self._redial.plan(now)
            if self._redial.is_due(now):
                self._connect(now)

    def _connect(self, now: float) -> None:
        if not self._dialling and self._peer is None:
            self._dialling = True
            self._out.append(Connect())

    def _close(self) -> None:
        if self._peer is not None:
            self._out.append(Disconnect(self._peer, "the client was closed"))
        self._peer = None
        self._dialling = self._leaving = False
        self._beat_at = inf

    def _connections(self) -> tuple[int, int]:
        return int(self._peer is not None), int(self._dialling)

    # --- heartbeats, while calls are outstanding ([client-heartbeat]) -----------------------------
    def _woken(self, event: Wake, now: float) -> None:
        if now >= self._beat_at:
            self._beat(now)
        super()._woken(event, now)
        if self._leaving:
            self._maybe_leave(now)

    def _start_beating(self, now: float) -> None:
        """Begin to watch the broker, which was free to be silent until now."""
        self._liveness.heard_at = self._liveness.asked_at = now
        self._beat_at = now + self._liveness.interval_s

    def _ask_at(self) -> float:
        """Return when to ask the broker for a sign of life.

        That is an interval after we last spoke, or after we last heard of it, whichever is earlier:
        who sends requests all the time would else never ask, and take a busy broker's silence for
        its end.
        """
        return min(self._liveness.speak_at(), self._liveness.ask_at())

    def _blocked(self, event: PeerBlocked, _now: float) -> None:
        self._pressed |= event.peer is self._peer

    def _writable(self, event: PeerWritable, now: float) -> None:
        if event.peer is self._peer:
            self._pressed = False
            self._liveness.heard_at = now

    def _beat(self, now: float) -> None:
        if not self.calls:
            self._beat_at = inf
            return
        liveness = self._liveness
        liveness.excuse(absence_s(self._beat_at, now, liveness.interval_s), now)
        if self._pressed:  # our question is behind a large body: no answer can be expected yet
            liveness.heard_at = now
        if now >= liveness.gone_at():
            self._was_silent = True
            silent_s = now - liveness.heard_at
            self._hang_up(f"nothing came from the broker for {silent_s:.2f} s", now)
            return
        if now >= self._ask_at():
            heartbeat = self._dialect.encode(ClientHeartbeat(self._policy.heartbeat.interval_ms))
            self._out.append(Send(self._peer, heartbeat))
            liveness.spoke_at = liveness.asked_at = now
        self._beat_at = min(liveness.gone_at(), self._ask_at())
