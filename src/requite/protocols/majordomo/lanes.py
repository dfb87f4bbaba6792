"""A client of MDP 0.1 and 0.2, whose replies do not identify requests.

These dialects have no request id: their dialogue is "strictly synchronous" (18/MDP, "MDP/Client").
So each connection is a lane (`requite.core.lanes`), and a client with several calls opens several,
up to `connections_max`; further calls wait for a lane. When an attempt in flight times out or is
cancelled, its lane is closed (I2). That is the Guide's Lazy Pirate: close, reconnect, resend.

These dialects have no heartbeats between client and broker either: a dead broker is noticed only by
a lost connection or a timeout.

Sources: 7/MDP and 18/MDP, "MDP/Client"; Guide, "Client-side Reliability (Lazy Pirate Pattern)".
"""

from __future__ import annotations

from math import inf

from requite.chronicle import NO_INSTANCE, Chronicle
from requite.core.lanes import Lanes
from requite.engine import (
    Cause,
    Connect,
    Disconnect,
    Peer,
    PeerJoined,
    PeerLost,
    Received,
    Rng,
    Send,
    Warn,
)
from requite.errors import CallError, RemoteViolation
from requite.protocols.majordomo.calls import HELD, ClientPolicy, PendingCall
from requite.protocols.majordomo.client_base import ClientEngine
from requite.protocols.majordomo.wire import (
    ClientFinal,
    ClientPartial,
    ClientRequest,
    Dialect,
    ToClient,
)


class LaneClient(ClientEngine):
    """A client with several connections, and one outstanding call on each (MDP 0.1 and 0.2)."""

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
        self._lanes: Lanes[PendingCall] = Lanes(policy.connections_max)
        self._waiting: dict[PendingCall, None] = {}  # HELD calls, in the order of submission

    # --- calls and lanes --------------------------------------------------------------------------
    def _transmit(self, call: PendingCall, now: float) -> None:
        if self._lanes.idle:
            self._occupy(call, now)
        else:
            self._waiting[call] = None
            self._connect(now)

    def _occupy(self, call: PendingCall, now: float) -> None:
        call.peer = peer = self._lanes.occupy(call)
        message = self._dialect.encode(ClientRequest(call.name, [*call.frames]))
        self._out.append(Send(peer, message))
        self._sent(call, now)

    def _release(self, peer: Peer, now: float) -> None:
        """Send the call that has waited longest on a free lane, if any waits."""
        self._lanes.rest(peer)
        while self._waiting:
            call = next(iter(self._waiting))
            del self._waiting[call]
            if now < call.deadline:  # I15: else its timer is late
                self._occupy(call, now)
                return

    def _recall(self, call: PendingCall, now: float) -> None:
        self._lanes.drop(call.peer)
        self._out.append(Disconnect(call.peer, "its request was given up", Cause.DONE))
        self._connect(now)

    def _fail(self, call: PendingCall, error: CallError, now: float) -> None:
        self._waiting.pop(call, None)
        super()._fail(call, error, now)

    # --- from the broker --------------------------------------------------------------------------
    def _received(self, event: Received, now: float) -> None:
        peer, messages = event.peer, event.messages
        if peer not in self._lanes:
            return  # of a closed lane
        decode = self._dialect.decode_to_client
        try:
            for message in messages:
                self._match(peer, decode(message), now)
        except RemoteViolation as violation:
            reason = f"the broker broke the protocol: {violation}"
            self._out += (Warn("malformed", reason), Disconnect(peer, reason, Cause.FAULTY))
            self._connection_lost(peer, reason, now)
            return
        self._redial.fruitless = 0
        # Only after the whole batch: none of it can answer a request that is sent now.
        if self._lanes.calls[peer] is None and peer not in self._lanes.idle:
            self._release(peer, now)

    def _match(self, peer: Peer, command: ToClient, now: float) -> None:
        call = self._lanes.calls[peer]
        assert isinstance(command, ClientFinal | ClientPartial)  # dialects without ids have no more
        if call is None or command.service != call.name:
            wanted = "no request" if call is None else f"a request to {call.service!r}"
            text = (
                f"received a reply from {command.service!r} on a connection with {wanted} in flight"
            )
            self._out.append(Warn("stray reply", text))
        elif isinstance(command, ClientPartial):
            self._take_partial(call, command.body, now)
        else:
            self._lanes.vacate(peer)
            self._slots.free(call.request_id)
            body = command.body if call.joined is None else call.joined + command.body
            self.calls.answer(call, body, call.tries, self._out, now)

    # --- connections ------------------------------------------------------------------------------
    def _joined(self, event: PeerJoined, now: float) -> None:
        if self._stopped or not self._lanes.join(event.peer):
            self._out.append(Disconnect(event.peer, "this connection is not needed", Cause.DONE))
            return
        self._redial.joined(now)
        self._release(event.peer, now)

    def _lost(self, event: PeerLost, now: float) -> None:
        if event.peer in self._lanes:
            self._connection_lost(event.peer, event.reason or "it was closed", now)

    def _connection_lost(self, peer: Peer, reason: str, now: float) -> None:
        """Handle a closed lane: retry or fail its call; connect again, now or after a back-off."""
        call = self._lanes.drop(peer)
        if call is not None:
            self._interrupt(call, reason, now)
            if call.state is HELD:
                self._wait_in_order(call)
        self._redial.plan(now)
        if self._redial.is_due(now):
            self._connect(now)

    def _wait_in_order(self, call: PendingCall) -> None:
        """Put a retried call back into the waiting calls, in order of submission."""
        self._waiting[call] = None
        self._waiting = {held: None for held in self.calls.values() if held in self._waiting}

    def _connect(self, now: float) -> None:
        """Open as many lanes as calls wait for, but at least one."""
        if self._redial.at < inf:  # backing off
            return
        wanted = self._lanes.wanted(max(len(self._waiting), 0 if self._lanes else 1))
        self._out += (Connect() for _ in range(wanted))

    def _close(self) -> None:
        self._out += (Disconnect(peer, "the client was closed", Cause.DONE) for peer in self._lanes)
        self._lanes.clear()

    def _connections(self) -> tuple[int, int]:
        return len(self._lanes), self._lanes.dialling
