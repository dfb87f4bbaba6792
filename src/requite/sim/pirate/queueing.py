"""Check how a queue distributes requests to workers, with a model beside its engine."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, Final

from requite.protocols.pirate.policy import BACK
from requite.sim.kernel.history import Checker, History
from requite.sim.kernel.hub import Hub
from requite.sim.pirate.knobs import PirateVariant

READY: Final = (b"READY", b"\x01")
BEATS: Final = (b"HEARTBEAT", b"\x02")


class TheQueue(Checker):
    """Each request of a connected client goes to one worker, the least recently used, and its reply
    goes to that client (I2). Requests of lost clients are not dispatched (I15). No request goes to
    two workers, or to a busy one (I6). No request waits while a worker is idle ("idle")."""

    invariant = "I8"
    sentence = "requests go to the worker that was used least recently"

    def __init__(self, history: History) -> None:
        super().__init__(history)
        self._begin()

    @property
    def _is_simple(self) -> bool:
        return bool(self.knobs.crew is PirateVariant.SIMPLE)

    def _begin(self) -> None:
        self._came: dict[Any, deque[list[bytes]]] = {}  # by client, in order
        self._clients: dict[bytes, Any] = {}  # by address, which counts connections
        self._next_address = 0
        self._lost: list[list[bytes]] = []
        self._idle: dict[Any, None] = {}  # workers, least recently used first
        self._shut: dict[Any, None] = {}  # connections with back-pressure
        self._in_hand: dict[Any, tuple[Any, list[bytes], list[bytes]]] = {}
        self._said: list[tuple[Any, list[bytes]]] = []  # replies to be forwarded

    def hub_started(self, hub: Hub) -> None:
        """Reset for a queue that starts."""
        if hub.kind == "queue":
            self._begin()
            party: Any = hub.process
            self._next_address = party.first_address

    # --- connections ------------------------------------------------------------------------------
    def caller_up(self, hub: Hub, peer: Any) -> None:
        """Record a new client, or the end of its back-pressure."""
        if hub.kind != "queue":
            return
        self._shut.pop(peer, None)
        if peer not in self._came and not hub.draining:
            self._came[peer] = deque()
            address = (self._next_address & 0xFFFF_FFFF).to_bytes(4, "big")
            self._clients[b"\0" + address] = peer
            self._next_address += 1

    def channel_up(self, hub: Hub, peer: Any) -> None:
        """Record the end of a worker's back-pressure."""
        if hub.kind == "queue" and peer in self._shut:
            del self._shut[peer]
            if peer in self._idle:
                self._make_idle(peer)

    def caller_down(self, hub: Hub, peer: Any) -> None:
        """Record back-pressure of a client."""
        if hub.kind == "queue":
            self._shut[peer] = None

    def channel_down(self, hub: Hub, peer: Any) -> None:
        """Record back-pressure of a worker."""
        self.caller_down(hub, peer)

    def channel_lost(self, hub: Hub, peer: Any) -> None:
        """Forget a lost connection and its requests."""
        if hub.kind != "queue":
            return
        self._lost += self._came.pop(peer, ())
        self._idle.pop(peer, None)
        self._shut.pop(peer, None)
        self._in_hand.pop(peer, None)

    # --- requests ---------------------------------------------------------------------------------
    def request_came(self, hub: Hub, peer: Any, message: list[bytes]) -> None:
        """Record a received request."""
        if hub.kind == "queue" and not hub.draining and peer in self._came:
            self._came[peer].append(message)

    def request_sent(self, hub: Hub, peer: Any, message: Sequence[bytes]) -> None:
        """Check which worker gets which request."""
        if hub.kind != "queue" or len(message) == 1:
            return
        outer = 1 if self._is_simple else 0
        address, request = message[outer], list(message[outer + 1 :])
        self._check_worker(hub, peer)
        client = self._clients.get(address)
        waiting = self._came.get(client, ())
        if waiting and waiting[0] == request:
            waiting.popleft()
            envelope = [address, *request[: request.index(b"") + 1]]
            self._in_hand[peer] = client, envelope, request
            return
        kind, why = ("I15", "of a lost client") if request in self._lost else ("I6", "twice")
        self.history.violate(kind, f"{hub} dispatches a request {why}: {request!r}")

    def _check_worker(self, hub: Hub, peer: Any) -> None:
        name = hub.names[peer]
        if peer in self._in_hand:
            self.history.violate("I6", f"{hub} dispatches a request to {name}, which is busy")
            return
        willing = [worker for worker in self._idle if worker not in self._shut]
        if peer not in self._idle:
            self.history.violate("I6", f"{hub} dispatches a request to {name}, which is not ready")
        elif willing and willing[0] is not peer:
            first = hub.names[willing[0]]
            self.violate(f"{hub} dispatches a request to {name}, but {first} is idle for longer")
        self._idle.pop(peer, None)

    # --- replies ----------------------------------------------------------------------------------
    def reply_came(self, hub: Hub, peer: Any, message: list[bytes]) -> None:
        """Record READY or a reply of a worker."""
        if hub.kind != "queue":
            return
        said = message[1:] if self._is_simple else message
        if len(said) == 1:
            if said[0] in READY:
                self._in_hand.pop(peer, None)
                self._make_idle(peer)
            return
        client, envelope, _ = self._in_hand.get(peer, (None, None, None))
        if envelope is not None and said[: len(envelope)] == envelope and len(said) > len(envelope):
            del self._in_hand[peer]
            self._make_idle(peer)
            self._said.append((client, said[1:]))
        elif envelope is None and self._is_simple and peer not in self._idle:
            self._make_idle(peer)

    def _make_idle(self, peer: Any) -> None:
        self._idle.pop(peer, None)
        self._idle[peer] = None

    def reply_sent(self, hub: Hub, peer: Any, message: list[bytes]) -> None:
        """Check that a client gets only replies that a worker sent to it."""
        if hub.kind != "queue":
            return
        if (peer, message) in self._said:
            self._said.remove((peer, message))
        else:
            name = hub.names[peer]
            self.history.violate("I2", f"{hub} sends {name} a reply of no worker: {message!r}")

    def rested(self, hub: Hub) -> None:
        """Check, after each input, that no request waits while a worker is idle."""
        if hub.kind != "queue":
            return
        self._said.clear()
        if hub.draining:
            return
        idle = [p for p in self._idle if p not in self._shut and hub.places.get(p) == BACK]
        waiting = [p for p, came in self._came.items() if came and p not in self._shut]
        if idle and waiting:
            who = f"{hub.names[waiting[0]]} waits, but {hub.names[idle[0]]} is idle"
            self.history.violate("idle", f"at {hub} {who}")
            self._came[waiting[0]].clear()  # reported once
