"""Model two: each request goes to all servers at once, and the first reply wins.

Requests are numbered, since each live server replies; all replies after the first are dropped. A
server that connects while a call waits gets the request too. No failure detection is needed: the
fastest live server answers. The price is that all servers do all the work, so requests should be
cheap, and must be idempotent.

Servers with back-pressure are skipped until they accept messages again.

Source: Guide, "Model Two - Brutal Shotgun Massacre".
"""

from __future__ import annotations

from math import inf

from requite.chronicle import NO_INSTANCE, Chronicle
from requite.core.calls import MALFORMED, STRAY
from requite.engine import (
    Message,
    Peer,
    PeerBlocked,
    PeerJoined,
    PeerLost,
    PeerWritable,
    Received,
    Submit,
    Warn,
)
from requite.errors import LocalViolation, RemoteViolation
from requite.protocols.freelance import wire
from requite.protocols.freelance.calls import PendingCall
from requite.protocols.freelance.client_base import FreelanceClient
from requite.protocols.freelance.policy import ClientPolicy


class ShotgunClient(FreelanceClient):
    """A client of model two."""

    def __init__(
        self,
        policy: ClientPolicy | None = None,
        *,
        origin: bytes = NO_INSTANCE,
        chronicle: Chronicle | None = None,
    ) -> None:
        super().__init__(policy, origin=origin, chronicle=chronicle)
        self.calls.try_s = inf  # all servers are asked at once: only the deadline counts
        self._open: dict[Peer, bool] = {}  # by connection: whether it takes requests

    # --- calls ------------------------------------------------------------------------------------
    def _submitted(self, asked: Submit, now: float) -> None:
        if not asked.idempotent:
            raise LocalViolation(
                "the shotgun model sends each request to all servers: calls must be idempotent"
            )
        super()._submitted(asked, now)

    def _maybe_send(self, call: PendingCall, now: float) -> bool:
        """Send a call to all servers that have not had it."""
        for peer, is_open in self._open.items():
            if is_open and peer not in call.peers and not self._has_had_enough(call):
                self._name(call)
                self._transmit(call, peer, wire.sequenced(call.control, call.frames), now)
        if call.peers:
            self.calls.wait_until(call, call.deadline)
        return bool(call.peers)

    def _has_had_enough(self, call: PendingCall) -> bool:
        """Whether the limit of attempts is reached: a request must not kill servers for ever."""
        return call.tries >= self._retry.attempts * self._policy.servers

    def _time_out(self, call: PendingCall, now: float) -> None:
        raise AssertionError("the shotgun has no attempt timeouts")

    # --- from servers -----------------------------------------------------------------------------
    def _received(self, event: Received, now: float) -> None:
        if event.peer in self._open:
            for message in event.messages:
                self._take(message, now)

    def _take(self, message: Message, now: float) -> None:
        try:
            reply = wire.decode_sequenced_reply(message)
        except RemoteViolation as violation:
            self.calls.drop(MALFORMED, now)
            self._out.append(Warn("malformed", f"dropped a message: {violation}"))
            return
        call = self._pending.get(reply.control)
        if call is None:
            self.calls.drop(STRAY, now)  # mostly replies of slower servers
        else:
            # One volley is an attempt at all servers.
            volleys = -(-call.tries // self._policy.servers)
            self._answer(call, reply.body, volleys, now)

    # --- connections ------------------------------------------------------------------------------
    def _joined(self, event: PeerJoined, now: float) -> None:
        self._open[event.peer] = True
        self._release(now)
        for call in self.calls.values():
            if now < call.deadline:  # I15: else its timer is late
                self._maybe_send(call, now)

    def _lost(self, event: PeerLost, now: float) -> None:
        if self._open.pop(event.peer, None) is None:
            return
        reason = event.reason or "it closed the connection"
        for call in [call for call in self.calls.values() if event.peer in call.peers]:
            del call.peers[event.peer]
            call.loss = reason
            if not call.peers:
                self._go_on(call, reason, now)

    def _go_on(self, call: PendingCall, reason: str, now: float) -> None:
        """Hold or fail a call that no connected server has."""
        if self._has_had_enough(call):
            self._interrupt(call, reason, now)
        else:
            self.calls.take_back(call, f"the last server was lost: {reason}", now)
            self._send_or_hold(call, now)

    def _is_last(self, call: PendingCall) -> bool:
        return self._has_had_enough(call)

    def _blocked(self, event: PeerBlocked, _now: float) -> None:
        if event.peer in self._open:
            self._open[event.peer] = False

    def _writable(self, event: PeerWritable, now: float) -> None:
        if event.peer in self._open:
            self._open[event.peer] = True
            self._release(now)

    def _connections(self) -> tuple[int, int, int]:
        blocked = sum(not is_open for is_open in self._open.values())
        return len(self._open), len(self._open), blocked
