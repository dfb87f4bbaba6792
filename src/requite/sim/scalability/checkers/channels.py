"""Check the choice of channels: I8 and back-pressure (sp-request-reply-01, "REQ endpoint")."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from requite.sim.kernel.checkers.turns import SENTENCE, Turns
from requite.sim.kernel.history import Call, Checker, History
from requite.sim.kernel.hub import Hub

# How many rounds two weighted channels that were ready all the time may differ: one at each end, in
# which the first has had its share and the other has not.
_ROUNDS_APART_MAX: Final = 2.0 + 1e-9


class OnlyTheWilling(Checker):
    """Requests go to channels without back-pressure, and among these to the best priority."""

    invariant = "pushback"
    sentence = "a request is sent only over a channel that does not push back"

    def __init__(self, history: History) -> None:
        super().__init__(history)
        self._up: dict[Hub, dict[Any, None]] = {}

    def hub_ended(self, hub: Hub) -> None:
        """Forget a process that ended."""
        self._up.pop(hub, None)

    def channel_up(self, hub: Hub, peer: Any) -> None:
        """Record that a channel accepts requests."""
        self._up.setdefault(hub, {})[peer] = None

    def channel_down(self, hub: Hub, peer: Any) -> None:
        """Record back-pressure."""
        self._up.get(hub, {}).pop(peer, None)

    def request_sent(self, hub: Hub, peer: Any, _payload: bytes) -> None:
        """Check the channel of a request."""
        up = self._up.get(hub, {})
        if peer not in up:
            self.violate(f"{hub} sends a request to {hub.names[peer]}, which applies back-pressure")
        for other in up:
            if hub.places[other].priority < hub.places[peer].priority:
                chosen, better = hub.names[peer], hub.names[other]
                self.violate(f"{hub} sends a request to {chosen}, but {better} has priority")

    def gave_up(self, hub: Hub) -> None:
        """Check that no channel accepts the requests that a device drops."""
        for peer in self._up.get(hub, {}):
            self.violate(f"{hub} drops its queue, but {hub.names[peer]} accepts requests")

    def sent_in_vain(self, hub: Hub, peer: Any, _payload: bytes) -> None:
        """Report a message to a lost channel."""
        self.violate(f"{hub} sends a message to {hub.names.get(peer)}, whose channel is lost")


class _Rounds:
    """The turns of weighted channels, while the set of ready channels is the same."""

    def __init__(self) -> None:
        self._had: dict[Any, float] = {}  # rounds: turns by weight
        self._lost: dict[Any, float] = {}  # those that it may have lost

    def is_there(self, peer: Any, there: bool) -> None:
        """Restart the count when the set of ready channels changes."""
        self._had.pop(peer, None)
        if there:
            self._had[peer] = 0.0
        self.begin_anew()

    def begin_anew(self) -> None:
        """Restart the count."""
        self._had = dict.fromkeys(self._had, 0.0)
        self._lost = dict.fromkeys(self._had, 0.0)

    def serve(self, peer: Any, weight: int, instead_of: Any) -> Any:
        """Record a turn; return a channel that is too far behind, if there is one."""
        if peer not in self._had:
            return None
        self._had[peer] += 1 / weight
        if instead_of in self._lost:
            self._lost[instead_of] += 1.0
        for other, had in self._had.items():
            if self._had[peer] - had - self._lost[other] > _ROUNDS_APART_MAX:
                return other
        return None


class FairChannels(Checker):
    """Ready channels of one priority are used in turn, by their weights.

    A channel that did not reply in time loses its turn to the next one.
    """

    invariant = "I8"
    sentence = SENTENCE

    def __init__(self, history: History) -> None:
        super().__init__(history)
        self._turns: dict[tuple[Hub, int], Turns[Any]] = {}  # by priority
        self._rounds: dict[tuple[Hub, int], _Rounds] = {}
        self._tried: dict[Call, Any] = {}  # the channel of the latest attempt

    def hub_ended(self, hub: Hub) -> None:
        """Forget a process that ended."""
        self._turns = {key: turns for key, turns in self._turns.items() if key[0] is not hub}
        self._rounds = {key: each for key, each in self._rounds.items() if key[0] is not hub}

    def turns_unknown(self, hub: Hub) -> None:
        """Restart the count: requests were sent in an unknown order."""
        for (whose, priority), turns in self._turns.items():
            if whose is hub:
                turns.begin_anew()
                self._rounds[whose, priority].begin_anew()

    def channel_up(self, hub: Hub, peer: Any) -> None:
        """Record that a channel accepts requests."""
        self._is_there(hub, peer, there=True)

    def channel_down(self, hub: Hub, peer: Any) -> None:
        """Record back-pressure."""
        self._is_there(hub, peer, there=False)

    def _is_there(self, hub: Hub, peer: Any, *, there: bool) -> None:
        key = hub, hub.places[peer].priority
        self._turns.setdefault(key, Turns()).is_there(peer, there)
        self._rounds.setdefault(key, _Rounds()).is_there(peer, there)

    def request_sent(self, hub: Hub, peer: Any, payload: bytes) -> None:
        """Check that a turn passes no other peer over."""
        place = hub.places[peer]
        key = hub, place.priority
        if key not in self._turns:
            return
        before = self._try(hub, peer, payload)
        behind = self._rounds[key].serve(peer, place.weight, before)
        passed_over = self._turns[key].serve(peer, before)
        is_strict = set(self._weights(hub, place.priority)) == {1}
        for other in (behind, passed_over):
            if other is not None and (other is behind or is_strict):
                served, waits = hub.names[peer], hub.names[other]
                self.violate(f"{hub} serves {served} again, but it is the turn of {waits}")

    def _try(self, hub: Hub, peer: Any, payload: bytes) -> Any:
        """Record the channel of a client's call; return the channel of the previous attempt."""
        call = hub.call_of(payload) if hub.kind == "client" else None
        if call is None:
            return None
        before, self._tried[call] = self._tried.get(call), peer
        return before

    def _weights(self, hub: Hub, priority: int) -> Iterator[int]:
        return (place.weight for place in hub.places.values() if place.priority == priority)
