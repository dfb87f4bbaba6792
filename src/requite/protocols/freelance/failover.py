"""Model one: a request goes to one server, and after a timeout to the next.

This is the Lazy Pirate with several addresses. Servers are plain REP sockets, whose replies do not
identify their requests. So each connection is a lane (`requite.core.lanes`), and is closed when its
request is abandoned (I2). There may be several lanes to a server; the shell reconnects them.

Each of several servers is tried once; a single server as often as `retry` says. A server that did
not answer moves to the end of the line, so that other calls do not wait for it too. If a call's
next server is not connected, the call waits for it for the length of an attempt. After that it goes
to the first server that connects, even one that has had it, until its deadline.

Source: Guide, "Model One - Simple Retry and Failover".
"""

from __future__ import annotations

from typing import Any

from requite.chronicle import NO_INSTANCE, Chronicle
from requite.core.calls import STRAY
from requite.core.lanes import Lanes
from requite.engine import (
    Cause,
    Disconnect,
    Peer,
    PeerBlocked,
    PeerJoined,
    PeerLost,
    PeerWritable,
    Received,
)
from requite.errors import CallError
from requite.protocols.freelance import failures
from requite.protocols.freelance.calls import PendingCall
from requite.protocols.freelance.client_base import FreelanceClient
from requite.protocols.freelance.policy import ClientPolicy


class FailoverClient(FreelanceClient):
    """A client of model one. `PeerJoined.place` identifies the server; any value will do."""

    def __init__(
        self,
        policy: ClientPolicy | None = None,
        *,
        origin: bytes = NO_INSTANCE,
        chronicle: Chronicle | None = None,
    ) -> None:
        super().__init__(policy, origin=origin, chronicle=chronicle)
        # The lanes to each server, by place, in the order in which servers are tried.
        self._line: dict[Any, Lanes[PendingCall]] = {}
        self._places: dict[Peer, Any] = {}  # of all lanes

    # --- calls ------------------------------------------------------------------------------------
    def _maybe_send(self, call: PendingCall, now: float) -> bool:
        for place, lanes in self._line.items():
            if lanes.idle and not self._has_had(call, place):
                self._occupy(place, call, now)
                return True
        return False

    def _has_had(self, call: PendingCall, place: Any) -> bool:
        """Whether a server has had the call; always False for a single server."""
        return self._policy.servers > 1 and place in call.tried

    def _occupy(self, place: Any, call: PendingCall, now: float) -> None:
        peer = self._line[place].occupy(call)
        call.tried[place] = None
        call.peers.clear()
        self._transmit(call, peer, call.frames, now)

    def _time_out(self, call: PendingCall, now: float) -> None:
        """Retry at the next server, or fail a call that no server has answered."""
        if call in self._held:
            self._take_any(call, now)
        elif self._is_last(call):
            self._fail(call, failures.unanswered(call, self._each()), now)
        elif call.tries == 1 or self._may_spend(call, now):
            self._recall(call)
            self.calls.take_back(call, f"no reply within {self._retry.attempt_timeout:g} s", now)
            self._go_on(call, now)

    def _take_any(self, call: PendingCall, now: float) -> None:
        """Send a call that has waited long enough for its next server to any server."""
        call.tried.clear()
        if self._maybe_send(call, now):
            self._held.pop(call)
        else:
            self._hold(call, call.deadline)

    def _each(self) -> str:
        return f"with {self._retry.attempt_timeout:g} s for each server"

    def _go_on(self, call: PendingCall, now: float) -> None:
        """Send to the next server, or wait for it."""
        if not self._maybe_send(call, now):
            self._hold(call, now + (self._retry.attempt_timeout or 0.0))

    def _is_last(self, call: PendingCall) -> bool:
        is_through = 1 < self._policy.servers <= call.tries
        return is_through or super()._is_last(call)

    def _fail(self, call: PendingCall, error: CallError, now: float) -> None:
        self._recall(call)
        super()._fail(call, error, now)

    def _recall(self, call: PendingCall) -> None:
        """Close the lane of an abandoned attempt; move its server to the end of the line."""
        for peer in call.peers:
            place = self._places.pop(peer)
            self._line[place].drop(peer)
            self._line[place] = self._line.pop(place)
            self._out.append(Disconnect(peer, "its request was given up", Cause.DONE))
        call.peers.clear()

    # --- from servers -----------------------------------------------------------------------------
    def _received(self, event: Received, now: float) -> None:
        if event.peer not in self._places or not event.messages:
            return
        call = self._lanes_with(event.peer).vacate(event.peer)
        strays = len(event.messages) - (call is not None)
        if call is not None:
            call.peers.clear()
            self._answer(call, event.messages[0], call.tries, now)
        # Only after the whole batch: none of it can answer a request that is sent now.
        if strays:
            self._distrust(event.peer, strays, now)
        else:
            self._offer(event.peer, now)

    def _distrust(self, peer: Peer, strays: int, now: float) -> None:
        """Close a lane with more replies than requests: further ones would be taken for replies to
        later requests (I2)."""
        for _ in range(strays):
            self.calls.drop(STRAY, now)
        self._drop(peer)
        why = "received a reply on a connection without a request"
        self._out.append(Disconnect(peer, why, Cause.FAULTY))

    # --- lanes ------------------------------------------------------------------------------------
    def _joined(self, event: PeerJoined, now: float) -> None:
        self._places[event.peer] = event.place
        self._line.setdefault(event.place, Lanes()).join(event.peer)
        self._offer(event.peer, now)

    def _lanes_with(self, peer: Peer) -> Lanes[PendingCall]:
        return self._line[self._places[peer]]

    def _offer(self, peer: Peer, now: float) -> None:
        """Use a lane for a held call, if the lane is free."""
        if self._lanes_with(peer).rest(peer):
            self._release(now)

    def _drop(self, peer: Peer) -> PendingCall | None:
        return self._line[self._places.pop(peer)].drop(peer)

    def _lost(self, event: PeerLost, now: float) -> None:
        call = self._drop(event.peer) if event.peer in self._places else None
        if call is None:
            return
        call.peers.clear()
        self._interrupt(call, event.reason or "it closed the connection", now)

    def _send_or_hold(self, call: PendingCall, now: float) -> None:
        """Send a new call to the first server, a retried one to the next."""
        if call.tries and now < call.deadline:
            self._go_on(call, now)
        else:
            super()._send_or_hold(call, now)

    def _blocked(self, event: PeerBlocked, _now: float) -> None:
        if event.peer in self._places:
            self._lanes_with(event.peer).block(event.peer)

    def _writable(self, event: PeerWritable, now: float) -> None:
        if event.peer in self._places:
            self._lanes_with(event.peer).unblock(event.peer)
            self._offer(event.peer, now)

    def _connections(self) -> tuple[int, int, int]:
        blocked = sum(len(lanes.blocked) for lanes in self._line.values())
        return len(self._places), len(self._places), blocked
