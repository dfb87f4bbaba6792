"""The broker of a pair: an engine wrapped by a gate that is open while this server may serve.

    shut ──this server serves──► open ──it does not serve any more──► shut
                                 ▲  │
           it still may serve    │  │ the process was paused; the pair checks
                                 │  ▼
                                held ──the other server serves──► shut

While the other server is alive, the gate accepts no connections (`lets_in`): clients and workers of
every dialect fail before they have sent anything, and try the other address at once. When the other
server is silent, connections are accepted and their messages buffered. A client's first request is
the vote that makes this server active (Guide, "High-availability Pair"), and is the first to be
served. Workers may wait behind the gate for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum
from typing import Any, Final, Protocol

from requite.engine import (
    Cause,
    Disconnect,
    Drain,
    Effect,
    Input,
    Message,
    Peer,
    PeerJoined,
    PeerLost,
    Received,
    RightsChanged,
    Send,
    Wake,
)
from requite.errors import PairFailed, RemoteViolation
from requite.principal import Principal
from requite.protocols.binarystar.table import TABLE, Event, State
from requite.protocols.binarystar.view import PairView
from requite.protocols.majordomo import foreign
from requite.protocols.majordomo.broker import MajordomoBroker
from requite.protocols.majordomo.dialects import PeerRole, detect
from requite.protocols.majordomo.management import Snapshot
from requite.protocols.majordomo.parties import Client, Newcomer, size_of
from requite.protocols.majordomo.permissions import lacks_to_call
from requite.protocols.majordomo.wire import (
    MMI_PREFIX,
    ClientFinal,
    ClientRequest,
    Dialect,
    WorkerHeartbeat,
)
from requite.request import Status

NOT_ACTIVE: Final = "this broker is the passive server of a pair; the other server is active"
# More inputs than arrive while the pair checks whether this broker may still serve.
_HELD_MAX: Final = 5_000
# After a pause the gate may run before its side of the pair, which is then still ACTIVE.
_UNSURE: Final = (State.ACTIVE, State.SUSPENDED)
# A waiting worker sends READY and then only heartbeats.
_MESSAGES_MAX: Final = 16
_MESSAGES_SIZE_MAX: Final = 16 << 10


class Partner(Protocol):
    """The interface of the broker's side of the pair (`requite.pair.Pair`)."""

    @property
    def serves(self) -> bool:
        """Whether this server may answer clients; read for each input."""

    @property
    def view(self) -> PairView:
        """This server's view of the pair."""

    def vote(self) -> bool:
        """Report a client's request; return whether this server may answer it. May raise
        `PairFailed`."""


class _Mode(Enum):
    SHUT = "shut"
    OPEN = "open"
    HELD = "held"  # inputs are held until the pair knows whether this server may serve


class _Guest:
    """A peer that connected while the gate is shut, and its buffered messages."""

    __slots__ = ("joined", "messages")

    def __init__(self, joined: PeerJoined) -> None:
        self.joined = joined
        self.messages: list[Message] = []


class StandbyGate:
    """An engine around a `MajordomoBroker` that serves while `partner.serves`.

    Feed it a `Wake` whenever that may have changed.
    """

    def __init__(self, broker: MajordomoBroker, partner: Partner) -> None:
        self._broker = broker
        self._partner = partner
        self._mode = _Mode.SHUT
        self._guests: dict[Peer, _Guest] = {}
        self._held: list[Input] = []

    # --- the engine's contract --------------------------------------------------------------------
    def handle(self, events: Sequence[Input], now: float) -> Iterable[Effect]:
        """See `requite.engine.Engine.handle`."""
        return [effect for event in events for effect in self._take(event, now)]

    def _take(self, event: Input, now: float) -> Iterable[Effect]:
        if self._partner.serves:
            if self._mode is _Mode.OPEN:
                return self._broker.handle((event,), now)
            return [*self._open(now), *self._broker.handle((event,), now)]
        if self._mode is _Mode.SHUT:
            return self._listen(event, now)
        if self._partner.view.state in _UNSURE and len(self._held) < _HELD_MAX:
            return self._hold(event, now)
        return [*self._shut(now), *self._listen(event, now)]

    def deadline(self) -> float | None:
        """See `requite.engine.Engine.deadline`."""
        return None if self._mode is _Mode.HELD else self._broker.deadline()

    def snapshot(self) -> Snapshot:
        """Return the broker's tables."""
        return self._broker.snapshot()

    def lets_in(self) -> bool:
        """Return whether to accept new connections: not while they could only be refused."""
        if self._partner.serves or self._mode is _Mode.HELD:
            return True
        view = self._partner.view
        return view.peer_is_silent and (view.state, Event.CLIENT_VOTE) in TABLE

    # --- transitions ------------------------------------------------------------------------------
    def _open(self, now: float) -> list[Effect]:
        """Open the gate: feed the broker held inputs, then the guests in order of arrival."""
        self._mode = _Mode.OPEN
        guests, self._guests = self._guests, {}
        held, self._held = self._held, []
        inputs: list[Input] = [Wake(), *held]
        for peer, guest in guests.items():
            inputs += (guest.joined, Received(peer, guest.messages))
        return list(self._broker.handle(inputs, now))

    def _shut(self, now: float) -> list[Effect]:
        """Shut the gate: drop all pending requests, which clients retry at the other server. Held
        changes of rights and quotas count."""
        self._mode = _Mode.SHUT
        held, self._held = self._held, []
        strangers = [event.peer for event in held if event.__class__ is PeerJoined]
        goodbyes = [Disconnect(peer, NOT_ACTIVE, Cause.DONE) for peer in strangers]
        changes = [event for event in held if event.__class__ is RightsChanged]
        last = self._broker.step_down(NOT_ACTIVE, now)
        return [*last, *goodbyes, *self._broker.handle(changes, now)]

    def _hold(self, event: Input, now: float) -> Iterable[Effect]:
        self._mode = _Mode.HELD
        if event.__class__ is Drain:
            return self._broker.handle((event,), now)
        if event.__class__ is not Wake:
            self._held.append(event)
        is_asked = event.__class__ is Received and self._is_client(event.peer, event.messages)
        return self._open(now) if is_asked and self._vote() else ()

    def _vote(self) -> bool:
        try:
            return self._partner.vote()
        except PairFailed:  # the pair reports it to the operator
            return False

    def _is_client(self, peer: Peer, messages: Sequence[Message]) -> bool:
        """Whether a peer is a client, by its table entry or its first message."""
        party = self._broker.parties.get(peer)
        if party is not None and not isinstance(party, Newcomer):
            return isinstance(party, Client)
        found = detect(messages[0]) if messages else None
        return found is not None and found[0] is PeerRole.CLIENT

    # --- while the gate is shut -------------------------------------------------------------------
    def _listen(self, event: Input, now: float) -> Iterable[Effect]:
        """Handle an input while the gate is shut."""
        match event:
            case Received(peer, messages):
                return self._heard(peer, messages, now)
            case PeerJoined(peer) if self.lets_in():
                self._guests[peer] = _Guest(event)
            case PeerJoined(peer):  # the other server was heard during the handshake
                return [Disconnect(peer, NOT_ACTIVE, Cause.DONE)]
            case PeerLost(peer):
                self._guests.pop(peer, None)
            case Drain():
                goodbyes = [Disconnect(peer, NOT_ACTIVE, Cause.DONE) for peer in self._guests]
                self._guests.clear()
                return [*goodbyes, *self._broker.handle((event,), now)]
            case RightsChanged():
                return self._broker.handle((event,), now)
            case Wake():
                return [*self._dismiss_guests(), *self._broker.handle((event,), now)]
        return ()

    def _dismiss_guests(self) -> Iterable[Effect]:
        """Disconnect all guests once the other server is heard again: otherwise they would learn
        only with a request that this server does not serve."""
        if self.lets_in():
            return ()
        guests, self._guests = self._guests, {}
        return [Disconnect(peer, NOT_ACTIVE, Cause.DONE) for peer in guests]

    def _heard(self, peer: Peer, messages: Sequence[Message], now: float) -> Iterable[Effect]:
        guest = self._guests.get(peer)
        if guest is None or not messages:
            return ()
        is_first = not guest.messages
        said = [*guest.messages, *messages]
        guest.messages = said[:_MESSAGES_MAX]
        found = detect(said[0])
        if found is None:
            return self._send_away(peer, foreign.describe(said[0]), Cause.FAULTY)
        role, dialect = found
        if role is PeerRole.WORKER:
            if sum(map(size_of, guest.messages)) > _MESSAGES_SIZE_MAX:
                why = "a worker sent large messages before any request"
                return self._send_away(peer, why, Cause.FAULTY)
            return self._reassure(peer, dialect) if is_first else ()
        return self._heard_client(guest, dialect, said, now)

    def _reassure(self, peer: Peer, dialect: Dialect) -> list[Effect]:
        """Send a worker one heartbeat. It stays until its own timeout, and then reconnects without
        back-off, since it was answered: so it is available when the first client calls."""
        interval_ms = self._broker.policy.heartbeat.interval_ms
        return [Send(peer, dialect.encode(WorkerHeartbeat(interval_ms)))]

    def _heard_client(
        self, guest: _Guest, dialect: Dialect, said: Sequence[Message], now: float
    ) -> Iterable[Effect]:
        """Count a client's first requests as a vote; then serve or refuse them all."""
        peer = guest.joined.peer
        try:
            commands = [dialect.decode_from_client(message) for message in said]
        except RemoteViolation as violation:
            return self._send_away(peer, str(violation), Cause.FAULTY)
        requests = [each for each in commands if isinstance(each, ClientRequest)]
        if not requests:
            return ()
        principal = guest.joined.principal
        if any(_is_vote(each, principal) for each in requests) and self._vote():
            guest.messages = [*said]
            return self._open(now)
        return [*_refusals(peer, dialect, requests), *self._send_away(peer, NOT_ACTIVE, Cause.DONE)]

    def _send_away(self, peer: Peer, reason: str, cause: Cause) -> list[Effect]:
        self._guests.pop(peer, None)
        return [Disconnect(peer, reason, cause)]


def _is_vote(request: ClientRequest, principal: Principal) -> bool:
    """Whether a request counts as a vote: one of an application that has the right to make it, not
    an operator's `mmi.` query. `mmi.service` counts: a client asks it before it sends a request."""
    name, body = request.service, request.body
    if name == b"mmi.service":
        name, body = body[0], []
    return not (name.startswith(MMI_PREFIX) or lacks_to_call(principal, name, body))


def _refusals(peer: Peer, dialect: Dialect, requests: Iterable[ClientRequest]) -> Iterable[Effect]:
    """Refuse requests, if the dialect has statuses: they have not run ([client-drain])."""
    if not dialect.has_ids:
        return
    body, status = [NOT_ACTIVE.encode()], Status.SHUTTING_DOWN
    for request in requests:
        final = ClientFinal(request.service, body, request.request_id, status, 0)
        yield Send(peer, dialect.encode(final))


def as_facts(view: PairView) -> dict[str, Any]:
    """Return a view as shown by `mmi.pair` and `mmi.stats`."""
    heard_s = view.heard_s_ago
    return {
        "role": view.role.name.lower(),
        "state": view.state.name.lower(),
        "epoch": view.epoch,
        "serves": view.serves,
        "peer": None if view.peer_state is None else view.peer_state.name.lower(),
        "peer_is_silent": view.peer_is_silent,
        "heard_s_ago": None if heard_s is None else round(heard_s, 3),
    }
