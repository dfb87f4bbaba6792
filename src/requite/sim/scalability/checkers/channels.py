"""Over which channels requests go: I8 and back-pressure (sp-request-reply-01, "REQ endpoint")."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from requite.sim.checkers.fairness import SENTENCE, Turns
from requite.sim.history import Call, Checker, History
from requite.sim.scalability.watch import Hub
from requite.sim.scalability.workload import call_in

# By how many rounds two channels that were there all the time may differ, if they have weights:
# one in which the first has had its share and the other has not, at either end.
_ROUNDS_APART_MAX: Final = 2.0 + 1e-9


class OnlyTheWilling(Checker):
    """Requests go to channels that take them, and of these to the best priority there is."""

    invariant = "pushback"
    sentence = "a request is sent only over a channel that does not push back"

    def __init__(self, history: History) -> None:
        super().__init__(history)
        self._up: dict[Hub, dict[Any, None]] = {}

    def hub_ended(self, hub: Hub) -> None:
        """Forget a life."""
        self._up.pop(hub, None)

    def channel_up(self, hub: Hub, peer: Any) -> None:
        """Note that a channel takes requests."""
        self._up.setdefault(hub, {})[peer] = None

    def channel_down(self, hub: Hub, peer: Any) -> None:
        """Note that it takes none."""
        self._up.get(hub, {}).pop(peer, None)

    def request_sent(self, hub: Hub, peer: Any, _payload: bytes) -> None:
        """Check where a request goes."""
        up = self._up.get(hub, {})
        if peer not in up:
            self.violate(f"{hub} sends a request to {hub.names[peer]}, which pushes back")
        for other in up:
            if hub.places[other].priority < hub.places[peer].priority:
                chosen, better = hub.names[peer], hub.names[other]
                self.violate(f"{hub} sends a request to {chosen}, though {better} comes first")

    def gave_up(self, hub: Hub) -> None:
        """Check that what a device drops is nothing that anybody takes."""
        for peer in self._up.get(hub, {}):
            self.violate(f"{hub} drops what waits, though {hub.names[peer]} takes it")

    def sent_in_vain(self, hub: Hub, peer: Any, _payload: bytes) -> None:
        """Report what goes nowhere."""
        self.violate(f"{hub} sends something to {hub.names.get(peer)}, which has gone")


class _Rounds:
    """The turns of channels with weights, while the same ones take requests."""

    def __init__(self) -> None:
        self._had: dict[Any, float] = {}  # rounds: turns by weight
        self._lost: dict[Any, float] = {}  # those that it may have lost

    def is_there(self, peer: Any, there: bool) -> None:
        """Count anew, among others than before."""
        self._had.pop(peer, None)
        if there:
            self._had[peer] = 0.0
        self.begin_anew()

    def begin_anew(self) -> None:
        """Count anew."""
        self._had = dict.fromkeys(self._had, 0.0)
        self._lost = dict.fromkeys(self._had, 0.0)

    def serve(self, peer: Any, weight: int, instead_of: Any) -> Any:
        """Note a turn; return who is too far behind."""
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
    """Channels of one priority that take requests are used in turn, by their weights.

    A channel that has not answered in time loses its turn to the one that is tried next.
    """

    invariant = "I8"
    sentence = SENTENCE

    def __init__(self, history: History) -> None:
        super().__init__(history)
        self._turns: dict[tuple[Hub, int], Turns[Any]] = {}  # by priority
        self._rounds: dict[tuple[Hub, int], _Rounds] = {}
        self._tried: dict[Call, Any] = {}  # the channel over which a client sent it last

    def hub_ended(self, hub: Hub) -> None:
        """Forget a life."""
        self._turns = {key: turns for key, turns in self._turns.items() if key[0] is not hub}
        self._rounds = {key: each for key, each in self._rounds.items() if key[0] is not hub}

    def turns_unknown(self, hub: Hub) -> None:
        """Begin anew: requests were sent, and nobody knows in which order."""
        for (whose, priority), turns in self._turns.items():
            if whose is hub:
                turns.begin_anew()
                self._rounds[whose, priority].begin_anew()

    def channel_up(self, hub: Hub, peer: Any) -> None:
        """Note that a channel takes requests."""
        self._is_there(hub, peer, there=True)

    def channel_down(self, hub: Hub, peer: Any) -> None:
        """Note that it takes none."""
        self._is_there(hub, peer, there=False)

    def _is_there(self, hub: Hub, peer: Any, *, there: bool) -> None:
        key = hub, hub.places[peer].priority
        self._turns.setdefault(key, Turns()).is_there(peer, there)
        self._rounds.setdefault(key, _Rounds()).is_there(peer, there)

    def request_sent(self, hub: Hub, peer: Any, payload: bytes) -> None:
        """Check that a turn passes nobody over."""
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
                self.violate(f"{hub} serves {served} again, while {waits} waits for its turn")

    def _try(self, hub: Hub, peer: Any, payload: bytes) -> Any:
        """Note over which channel a client sends a call; return that of the try before."""
        call = call_in(self.history, payload) if hub.kind == "client" else None
        if call is None:
            return None
        before, self._tried[call] = self._tried.get(call), peer
        return before

    def _weights(self, hub: Hub, priority: int) -> Iterator[int]:
        return (place.weight for place in hub.places.values() if place.priority == priority)
