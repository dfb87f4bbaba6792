"""The Majordomo client: each call ends exactly once, with a reply or an error.

`client_engine` makes the engine for a dialect. `MajordomoClient` speaks MDP 0.3: one connection
carries all calls, each under its request id. Clients of MDP 0.1 and 0.2 are in `lanes.py`; the
common life of a call is in `client_base.py`.

Calls are held while there is no connection to the broker. When a connection is lost, unanswered
requests are resent if that is safe. While calls are outstanding, a silent broker is pinged, and
counts as dead if it does not answer.

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
    Cause,
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
    KNOWS_USERS,
    NOT_IDEMPOTENT,
    TAKES_TRACES,
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
    "the broker has sent no message of MDP 0.3, not even a heartbeat; if it supports only 0.2"
    " (RFC 18) or 0.1 (RFC 7), set that dialect: --dialect on the command line, dialect= in"
    " Python, or ?dialect= in the URL"
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
    """Return the engine of a client for `dialect`.

    `rng` returns the jitter of back-offs. `first_sequence` should be random per start, so that
    replies to an earlier process match no call. `origin` identifies the client in journals and
    should be random per start; `chronicle` journals calls.
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
        self._timeout_share = 1 - policy.hold_back  # of a call's time: the timeout for the broker
        self._peer: Peer | None = None
        self._dialling = False
        self._leaving = False  # the broker is shutting down; SENT calls are still awaited
        self._liveness = Liveness(policy.heartbeat, 0.0)
        self._beat_at = inf  # the next heartbeat check; inf while no calls are outstanding
        self._pressed = False  # back-pressure of the broker
        self._takes_traces = False  # the broker ([trace])
        self._knows_users = False  # the broker ([for-users])
        self._has_heard = False  # a message of this dialect, from any broker
        self._was_silent = False  # some broker counted as dead

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
            timeout_ms((call.deadline - now) * self._timeout_share),
            0 if call.idempotent else NOT_IDEMPOTENT,
            call.idempotency_key,
            call.call_id,
            call.principal if self._knows_users else b"",
            call.trace if self._takes_traces else b"",
        )
        self._out.append(Send(peer, message))
        self._sent(call, now)
        self._liveness.spoke_at = now
        if self._beat_at == inf:
            self._start_beating(now)

    def _received(self, event: Received, now: float) -> None:
        peer, messages = event.peer, event.messages
        if peer is not self._peer:
            return  # of an earlier connection
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
            self._drop_connection(f"it broke the protocol: {violation}", Cause.FAULTY, now)
            return
        self._liveness.heard_at = now
        self._has_heard = True
        if self._leaving:
            self._maybe_leave(now)
        else:
            self._redial.fruitless = 0

    def _received_other(self, command: ToClient, now: float) -> None:
        if isinstance(command, ClientHeartbeat):
            return  # a sign of life, nothing more
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
                f"received partial reply {partial.part_index} where {call.partials} was expected"
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
            self.calls.sweep.arm(now)  # it may have been the last awaited call

    def _joined(self, event: PeerJoined, now: float) -> None:
        if self._stopped or self._peer is not None:
            self._out.append(Disconnect(event.peer, "this connection is not needed", Cause.DONE))
            return
        self._dialling = False
        self._redial.joined(now)
        self._peer = event.peer
        self._takes_traces = TAKES_TRACES in event.features
        self._knows_users = KNOWS_USERS in event.features
        self._liveness = Liveness(self._policy.heartbeat, now)
        self._pressed = False
        for call in self.calls.values():
            if call.state is HELD and now < call.deadline:  # I15: else its timer is late
                self._transmit(call, now)

    def _lost(self, event: PeerLost, now: float) -> None:
        if event.peer is self._peer and not self._stopped:
            self._connection_lost(event.reason or "it was closed", now)

    def _maybe_leave(self, now: float) -> None:
        """Leave a broker that is shutting down once it owes no answer ([client-drain])."""
        if not any(call.state is SENT for call in self.calls.values()):
            self._redial.turned_away()
            self._drop_connection("the broker is shutting down", Cause.DONE, now)

    def _drop_connection(self, reason: str, cause: Cause, now: float) -> None:
        """Disconnect from the broker, and reconnect."""
        self._out.append(Disconnect(self._peer, reason, cause))
        self._connection_lost(reason, now)

    def _connection_lost(self, reason: str, now: float) -> None:
        """Handle the loss of the connection; reconnect."""
        self._peer = None
        self._leaving = False
        self._beat_at = inf
        for call in list(self.calls.values()):
            if call.state is SENT:
                self._interrupt(call, reason, now)
        self._dial(now)

    def _dial(self, now: float) -> None:
        """Connect now, or after a back-off."""
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
            self._out.append(Disconnect(self._peer, "the client was closed", Cause.DONE))
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
        """Start to check the broker's liveness: without calls it may be silent."""
        self._liveness.heard_at = self._liveness.asked_at = now
        self._beat_at = now + self._liveness.interval_s

    def _ask_at(self) -> float:
        """Return when to ping the broker.

        That is an interval after the last message in either direction, whichever is earlier: a
        client that sends requests continuously would otherwise never ping, and take a busy broker's
        silence for its death.
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
        if self._pressed:  # our ping is queued behind a large body
            liveness.heard_at = now
        if now >= liveness.gone_at():
            self._was_silent = True
            silent_s = now - liveness.heard_at
            why = f"nothing came from the broker for {silent_s:.2f} s"
            self._drop_connection(why, Cause.SILENT, now)
            return
        if now >= self._ask_at():
            heartbeat = self._dialect.encode(ClientHeartbeat(self._policy.heartbeat.interval_ms))
            self._out.append(Send(self._peer, heartbeat))
            liveness.spoke_at = liveness.asked_at = now
        self._beat_at = min(liveness.gone_at(), self._ask_at())
