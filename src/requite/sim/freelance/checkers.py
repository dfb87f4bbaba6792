"""Check calls in every model: I11, I13, I15, and that no call is lost without a reason."""

from __future__ import annotations

from functools import cached_property
from math import inf
from typing import Any, Final

from requite.protocols.freelance.wire import Model
from requite.sim.freelance.words import PING, PONG
from requite.sim.kernel.checkers.attempts import Attempts, SentInTime
from requite.sim.kernel.history import Call, Checker, History
from requite.sim.kernel.hub import Hub

_SLACK_S: Final = 0.001


class SentOnce(Attempts):
    """A client retries only idempotent requests, within the limit, and for a reason.

    Reasons: the connection was lost, the server was silent for too long, or the attempt timed out.
    The shotgun model needs none, but no server gets a request twice over the same connection.
    """

    def __init__(self, history: History) -> None:
        super().__init__(history)
        self._last: dict[int, tuple[float, Any]] = {}  # when, and over which connection
        self._had: dict[int, set[Any]] = {}
        self._revived: dict[Any, float] = {}  # when one was heard again after silence

    @cached_property
    def _attempt_s(self) -> dict[str, float | None]:
        return {client.name: client.attempt_s for client in self.knobs.clients}

    @cached_property
    def _may_be_silent_s(self) -> float:
        ttl_s: float = self.knobs.ttl_s
        return ttl_s if self.knobs.model is Model.AGENT else inf

    def batch_came(self, hub: Hub, peer: Any) -> None:
        """Record when a silent server is heard again."""
        if self.now - hub.heard_at[peer] >= self._may_be_silent_s - _SLACK_S:
            self._revived[peer] = self.now

    def call_sent(self, hub: Hub, peer: Any, call: Call) -> None:
        """Check each attempt of a client."""
        super().call_sent(hub, peer, call)
        if self.knobs.model is Model.SHOTGUN:
            had = self._had.setdefault(call.number, set())
            if peer in had:
                self.violate(f"{call} is sent to {hub.names[peer]} twice")
            had.add(peer)
        elif call.sent > 1:
            self._check_reason(call, hub)
        self._last[call.number] = self.now, peer

    def _check_reason(self, call: Call, hub: Hub) -> None:
        sent_at, peer = self._last[call.number]
        waited_s = self.now - sent_at
        silent_s = self.now - hub.heard_at.get(peer, -inf)
        was_silent = silent_s >= self._may_be_silent_s - _SLACK_S
        was_gone = was_silent or self._revived.get(peer, -inf) >= sent_at
        if not was_gone and waited_s < (self._attempt_s[hub.name] or inf) - _SLACK_S:
            self.violate(f"{call} is sent again after {waited_s:.4f} s, but its server is alive")


class NeverInVain(SentInTime):
    """Clients send no request that has ended, and send only over open connections; servers start
    only requests whose connection is still open."""

    def request_taken(self, hub: Hub, peer: Any, message: list[bytes]) -> None:
        """Check that the client of a started request is connected."""
        if peer not in hub.places:
            self.violate(f"{hub} starts {message[:2]!r} of a client that has disconnected")

    def sent_in_vain(self, hub: Hub, _peer: Any, message: list[bytes]) -> None:
        """Report a message to a lost connection."""
        self.violate(f"{hub} sends {message[:2]!r} over a lost connection")


class PongAtOnce(Checker):
    """A server answers each ping before the next input, and sends no other pongs."""

    invariant = "pong"
    sentence = "a server MUST answer PING with PONG (10/FLP)"

    def __init__(self, history: History) -> None:
        super().__init__(history)
        self._owed: dict[tuple[Hub, Any], int] = {}

    def request_came(self, hub: Hub, peer: Any, message: list[bytes]) -> None:
        """Record a ping."""
        if self.knobs.model is Model.AGENT and tuple(message) == PING:
            self._owed[hub, peer] = self._owed.get((hub, peer), 0) + 1

    def reply_sent(self, hub: Hub, peer: Any, message: list[bytes]) -> None:
        """Record a pong."""
        if tuple(message) == PONG:
            self._owed[hub, peer] = self._owed.get((hub, peer), 0) - 1

    def rested(self, hub: Hub) -> None:
        """Check, after each input, that every ping has its pong."""
        for (whose, peer), owed in self._owed.items():
            if whose is hub and owed and not hub.snapshot().stopped:
                self.violate(f"{hub} owes {owed} pongs to {hub.names.get(peer)}")
        self._owed.clear()
