"""Check which servers a client asks: one live server at a time, or all at once.

Only messages from a server show whether it is live; the client's engine is not asked.
"""

from __future__ import annotations

from typing import Any, Final

from requite.errors import CallError
from requite.protocols.freelance.policy import LIVES_WHILE_PRESSED
from requite.protocols.freelance.wire import Model
from requite.request import Reply
from requite.sim.kernel.checkers.attempts import LockStep
from requite.sim.kernel.history import Call, Checker, History
from requite.sim.kernel.hub import Hub

_SLACK_S: Final = 0.001
# The host re-arms its timer only for a larger difference.
_TIMER_SLACK_S: Final = 0.005


class OnlyTheLiving(Checker):
    """Model three sends only to servers heard recently; models two and three only to servers
    without back-pressure."""

    invariant = "live"
    sentence = "a server that is silent for several intervals is asked nothing (10/FLP)"

    def __init__(self, history: History) -> None:
        super().__init__(history)
        self._pressed: set[Any] = set()  # connections with back-pressure since they were heard
        self._frozen_s: dict[Any, float] = {}  # how long the client had been frozen by then

    def channel_up(self, hub: Hub, peer: Any) -> None:
        """Record that a connection accepts requests."""
        self._frozen_s.setdefault(peer, hub.process.frozen_s)

    def channel_down(self, _hub: Hub, peer: Any) -> None:
        """Record back-pressure."""
        self._pressed.add(peer)

    def batch_came(self, hub: Hub, peer: Any) -> None:
        """Record that a server was heard."""
        if peer in hub.open:
            self._pressed.discard(peer)
        self._frozen_s[peer] = hub.process.frozen_s

    def call_sent(self, hub: Hub, peer: Any, _call: Call) -> None:
        """Check that a request goes to a live server."""
        model = self.knobs.model
        if peer not in hub.open and model is not Model.FAILOVER:
            self.violate(f"{hub} asks {hub.names[peer]}, which applies back-pressure")
        silent_s = self._silent_s(hub, peer)
        if model is Model.AGENT and silent_s > self._most_s(peer):
            self.violate(f"{hub} asks {hub.names[peer]}, silent for {silent_s:.2f} s")

    def _silent_s(self, hub: Hub, peer: Any) -> float:
        """Return for how long a server has been silent, minus the time that the client was
        frozen."""
        stood_still_s: float = hub.process.frozen_s - self._frozen_s[peer]
        return self.now - hub.heard_at[peer] - stood_still_s

    def _most_s(self, peer: Any) -> float:
        knobs, factor = self.knobs, LIVES_WHILE_PRESSED if peer in self._pressed else 1
        most_s: float = knobs.ttl_s * factor + knobs.pace.timer_late_s + _TIMER_SLACK_S
        return most_s


class Faithful(Checker):
    """Model three stays with its server until that server fails, is silent or pushes back."""

    invariant = "faithful"
    sentence = "the server that has been live for longest is asked (Guide, flcliapi)"

    def __init__(self, history: History) -> None:
        super().__init__(history)
        self._asked: dict[Hub, Any] = {}
        self._tried: dict[int, Any] = {}
        self._was_down: set[Any] = set()

    def call_sent(self, hub: Hub, peer: Any, call: Call) -> None:
        """Check which server gets a new call."""
        if self.knobs.model is not Model.AGENT:
            return
        before = self._asked.get(hub)
        if call.number not in self._tried:
            if before in hub.open and before is not peer and not self._is_silent(hub, before):
                was, now = hub.names[before], hub.names[peer]
                self.violate(f"{hub} asks {now} instead of {was}, which is live")
            self._asked[hub] = peer
        self._tried[call.number] = peer

    def batch_came(self, hub: Hub, peer: Any) -> None:
        """Forget the preferred server if it was silent until now."""
        if self._asked.get(hub) is peer and self._is_silent(hub, peer):
            del self._asked[hub]

    def channel_down(self, hub: Hub, peer: Any) -> None:
        """Forget the preferred server if it applies back-pressure."""
        self._was_down.add(peer)
        if self._asked.get(hub) is peer:
            del self._asked[hub]

    def channel_up(self, hub: Hub, peer: Any) -> None:
        """Forget the preferred server when another one may be preferred again."""
        if peer in self._was_down:
            self._asked.pop(hub, None)

    def _is_silent(self, hub: Hub, peer: Any) -> bool:
        return self.now - hub.heard_at[peer] >= float(self.knobs.ttl_s) - _SLACK_S


class MovesOn(Checker):
    """When model three loses a server, its calls move to a live server at once, or end."""

    invariant = "moves-on"
    sentence = "what was lost with its server goes to the next one at once"

    def __init__(self, history: History) -> None:
        super().__init__(history)
        self._tried: dict[Call, Any] = {}
        self._lost: dict[Hub, dict[Call, None]] = {}

    def call_sent(self, hub: Hub, peer: Any, call: Call) -> None:
        """Record an attempt."""
        if self.knobs.model is Model.AGENT:
            self._tried[call] = peer
            self._lost.get(hub, {}).pop(call, None)

    def channel_lost(self, hub: Hub, peer: Any) -> None:
        """Record the calls whose attempt is lost."""
        lost = [call for call, tried in self._tried.items() if tried is peer]
        self._lost.setdefault(hub, {}).update(dict.fromkeys(lost))

    def hub_ended(self, hub: Hub) -> None:
        """Forget the lost calls of a client that ended."""
        self._lost.pop(hub, None)

    def ended(self, call: Call, _outcome: Reply | CallError) -> None:
        """Forget a call."""
        self._tried.pop(call, None)
        for lost in self._lost.values():
            lost.pop(call, None)

    def rested(self, hub: Hub) -> None:
        """Check, after each input, that no lost call waits while a server is live."""
        lost = self._lost.get(hub)
        if not lost or hub.snapshot().live == 0:
            return
        takers = [peer for peer in hub.open if self.now - hub.heard_at[peer] < self.knobs.ping_s]
        for call in [call for call in lost if takers]:
            del lost[call]
            if call in hub.ending:
                continue
            taker = hub.names[takers[0]]
            self.violate(f"{call} has lost its server and waits, but {taker} is live")


class OneAtATime(LockStep):
    """Model one has at most one request in flight per connection, even if the call gave up."""

    invariant = "lanes"
    sentence = (
        "replies of REP sockets cannot be told apart: one request at a time (Guide, flclient1)"
    )

    def call_sent(self, hub: Hub, peer: Any, call: Call) -> None:
        """Check that no request is in flight on the connection."""
        if self.knobs.model is Model.FAILOVER:
            super().call_sent(hub, peer, call)


class AllAtOnce(Checker):
    """Model two sends each new call to all connected servers."""

    invariant = "volley"
    sentence = "a request goes to all servers at once (Guide, flclient2)"

    def __init__(self, history: History) -> None:
        super().__init__(history)
        self._volleys: dict[Call, dict[Any, None]] = {}

    def call_sent(self, hub: Hub, peer: Any, call: Call) -> None:
        """Record a server that gets the call."""
        if self.knobs.model is Model.SHOTGUN and call.sent <= len(self.knobs.servers):
            self._volleys.setdefault(call, {})[peer] = None

    def rested(self, hub: Hub) -> None:
        """Check that the first volley reached every server."""
        for call, asked in self._volleys.items():
            if call.client != hub.name:
                continue
            left_out = [peer for peer in hub.open if peer not in asked]
            if left_out and call.sent == len(asked) and call.sent < call.tries_max:
                self.violate(f"{call} is not sent to {hub.names[left_out[0]]}, which is connected")
        self._volleys.clear()
