"""Model three: each request goes to one live server, and all servers are pinged.

Each connected server gets a PING at once and after each silent interval. A server that is silent
for several intervals counts as dead, and its calls move to another one. Any message from a server
revives it. Calls go to the server that has been live for longest, so clients change servers only
when they must, and do not fail back.

The engine is tickless: `deadline` is the next instant at which something is due. After a pause of
this process, unread PONGs are late too, so all servers get the lost time added.

Sources: 10/FLP, "Overall Operation", "Server Reliability"; Guide, `flcliapi`.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import Any, Final

from requite.chronicle import NO_INSTANCE, Chronicle
from requite.core.calls import MALFORMED, STRAY
from requite.core.liveness import HeartbeatPolicy, Liveness, absence_s
from requite.core.machine import Handlers
from requite.engine import (
    Drain,
    Message,
    Peer,
    PeerBlocked,
    PeerJoined,
    PeerLost,
    PeerWritable,
    Received,
    Send,
    Wake,
    Warn,
)
from requite.errors import RemoteViolation
from requite.protocols.freelance import failures, wire
from requite.protocols.freelance.calls import PendingCall
from requite.protocols.freelance.client_base import FreelanceClient
from requite.protocols.freelance.policy import LIVES_WHILE_PRESSED, ClientPolicy

_PING: Final = (wire.PING,)


class Server:
    """A connected server.

    `identity` is the one it announced: its public endpoint. `is_open`: its connection accepts
    messages (no back-pressure).
    """

    __slots__ = ("identity", "is_open", "liveness", "peer")

    def __init__(self, peer: Peer, identity: bytes, ping: HeartbeatPolicy, now: float) -> None:
        self.peer = peer
        self.identity = identity
        self.liveness = Liveness(ping, now)
        self.is_open = True

    def __str__(self) -> str:
        return self.identity.decode("utf-8", "replace") or "a server without a name"


class AgentClient(FreelanceClient):
    """A client of model three, which speaks 10/FLP."""

    def __init__(
        self,
        policy: ClientPolicy | None = None,
        *,
        origin: bytes = NO_INSTANCE,
        chronicle: Chronicle | None = None,
    ) -> None:
        super().__init__(policy, origin=origin, chronicle=chronicle)
        self._servers: dict[Peer, Server] = {}
        self._live: dict[Peer, Server] = {}  # the first one gets requests
        self._attend_at = inf  # when a server must be pinged or declared dead

    def _handlers(self) -> Handlers:
        return {**super()._handlers(), Wake: self._woken}

    def deadline(self) -> float | None:
        """See `requite.engine.Engine.deadline`."""
        at = min(self.calls.next_at(), self._attend_at)
        return None if at == inf else at

    # --- calls ------------------------------------------------------------------------------------
    def _maybe_send(self, call: PendingCall, now: float) -> bool:
        server = self._choose(call)
        if server is None:
            return False
        self._name(call)
        call.peers.clear()
        self._transmit(call, server.peer, (call.control, *call.frames), now)
        return True

    def _choose(self, call: PendingCall) -> Server | None:
        """Return the first live server without back-pressure, preferably one that has not had the
        call."""
        open_ones = [server for server in self._live.values() if server.is_open]
        return next(
            (server for server in open_ones if server.peer not in call.peers),
            open_ones[0] if open_ones else None,
        )

    def _time_out(self, call: PendingCall, now: float) -> None:
        """Retry at another server, although the current one may be alive and busy."""
        if self._is_last(call):
            each = f"with {self._retry.attempt_timeout:g} s each"
            self._fail(call, failures.unanswered(call, each), now)
        elif self._may_spend(call, now):
            self.calls.take_back(call, f"no reply within {self._retry.attempt_timeout:g} s", now)
            self._send_or_hold(call, now)

    # --- from servers -----------------------------------------------------------------------------
    def _received(self, event: Received, now: float) -> None:
        server = self._servers.get(event.peer)
        if server is None:
            return
        server.liveness.heard_at = now
        for message in event.messages:
            self._take(message, now)
        if event.peer not in self._live:
            self._revive(server, now)

    def _take(self, message: Message, now: float) -> None:
        try:
            command = wire.decode_flp_reply(message)
        except RemoteViolation as violation:
            self.calls.drop(MALFORMED, now)
            self._out.append(Warn("malformed", f"dropped a message: {violation}"))
            return
        if isinstance(command, wire.Pong):
            return
        call = self._pending.get(command.control)
        if call is None:
            self.calls.drop(STRAY, now)
        else:
            self._answer(call, command.body, call.tries, now)

    # --- liveness ---------------------------------------------------------------------------------
    def _joined(self, event: PeerJoined, now: float) -> None:
        """Add a server; it counts as live until it has been silent for too long."""
        server = Server(event.peer, event.identity, self._policy.ping, now)
        self._servers[event.peer] = server
        self._out.append(Send(event.peer, _PING))
        self._plan()
        self._revive(server, now)

    def _revive(self, server: Server, now: float) -> None:
        self._live[server.peer] = server
        self._note("server-live", server)
        self._release(now)

    def _lost(self, event: PeerLost, now: float) -> None:
        server = self._servers.pop(event.peer, None)
        if server is None:
            return
        self._retire(server, event.reason or "it closed the connection", now)
        self._plan()

    def _retire(self, server: Server, reason: str, now: float) -> None:
        """Move the calls of a dead server to others."""
        if self._live.pop(server.peer, None) is not None:
            self._note("server-gone", server, reason=reason)
        for call in [call for call in self.calls.values() if server.peer in call.peers]:
            del call.peers[server.peer]
            if call not in self._held:
                self._interrupt(call, f"{server}: {reason}", now)

    def _blocked(self, event: PeerBlocked, _now: float) -> None:
        if server := self._servers.get(event.peer):
            server.is_open = False
            server.liveness.silence_s = LIVES_WHILE_PRESSED * self._policy.ping.silence_s

    def _writable(self, event: PeerWritable, now: float) -> None:
        if server := self._servers.get(event.peer):
            server.is_open = True
            server.liveness.silence_s = self._policy.ping.silence_s
            server.liveness.heard_at = now  # our ping was queued behind a large body
            self._release(now)

    def _connections(self) -> tuple[int, int, int]:
        blocked = sum(not server.is_open for server in self._servers.values())
        return len(self._servers), len(self._live), blocked

    # --- time -------------------------------------------------------------------------------------
    def _woken(self, event: Wake, now: float) -> None:
        self.calls.woken(event, now)
        if now >= self._attend_at:
            self._attend(now)

    def _drained(self, event: Drain, now: float) -> None:
        super()._drained(event, now)
        self._attend_at = inf

    def _attend(self, now: float) -> None:
        """Ping servers that were silent for an interval; retire those silent for several."""
        if away_s := absence_s(self._attend_at, now, self._policy.ping.interval_s):
            for server in self._servers.values():
                server.liveness.excuse(away_s, now)
        for server in list(self._servers.values()):
            liveness = server.liveness
            if server.peer in self._live and now >= liveness.gone_at():
                self._retire(server, f"it was silent for {now - liveness.heard_at:.2f} s", now)
            if now >= liveness.ask_at():
                liveness.asked_at = now
                if server.is_open:
                    self._out.append(Send(server.peer, _PING))
        self._plan()

    def _plan(self) -> None:
        """Compute the next instant at which `_attend` must run."""
        self._attend_at = inf if self._stopped else min(self._instants(), default=inf)

    def _instants(self) -> Iterator[float]:
        for server in self._servers.values():
            yield server.liveness.ask_at()
            if server.peer in self._live:
                yield server.liveness.gone_at()

    def _note(self, kind: str, server: Server, **facts: Any) -> None:
        if self.calls.observer.makes_notes:
            self.calls.observer.remark(kind, {"server": str(server)} | facts, self._out)
