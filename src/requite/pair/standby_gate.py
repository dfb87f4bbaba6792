"""The broker of a pair: its engine, behind a gate that is open while this server may serve.

    shut ──the pair says: serve──► open ──the pair says: no more──► shut
                                   ▲  │
             it may go on serving  │  │ the process stood still, and does not know yet
                                   │  ▼
                                  kept ──somebody else serves──► shut

As long as the other server is alive nobody is let in (`lets_in`): clients and workers of every
dialect, ours and others', then find the gate closed before they have said anything. They lose
nothing by that and go on to the other address at once. When the other one has fallen silent they
are let in and listened to. The first request of a client is the vote that makes this server active
(Guide, "High-availability Pair"), and is the first one that is served.
Workers may wait inside for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum
from typing import Any, Final, Protocol

from requite.engine import (
    Disconnect,
    Drain,
    Effect,
    Input,
    Message,
    Peer,
    PeerJoined,
    PeerLost,
    Received,
    Send,
    Wake,
)
from requite.errors import PairFailed, RemoteViolation
from requite.protocols.binarystar.table import TABLE, Event, State
from requite.protocols.binarystar.view import PairView
from requite.protocols.majordomo import foreign
from requite.protocols.majordomo.broker import MajordomoBroker
from requite.protocols.majordomo.dialects import Role, detect
from requite.protocols.majordomo.management import Snapshot
from requite.protocols.majordomo.parties import Client, Newcomer
from requite.protocols.majordomo.wire import (
    MMI_PREFIX,
    ClientFinal,
    ClientRequest,
    Dialect,
    WorkerHeartbeat,
)
from requite.request import Status

NOT_ACTIVE: Final = "this broker is the passive one of a pair: the other one serves"
# More than a broker is sent while it asks the other server whether it may go on.
_KEPT_MAX: Final = 5_000
# It stood still. It is told that it may not serve before its side of the pair has had its turn.
_UNSURE: Final = (State.ACTIVE, State.SUSPENDED)
# A worker that waits inside says READY and then only that it lives.
_HEARD_MAX: Final = 16


class Partner(Protocol):
    """What the broker asks of its side of the pair (`requite.pair.Pair`)."""

    @property
    def serves(self) -> bool:
        """Whether this server may answer clients; asked for each input."""

    @property
    def view(self) -> PairView:
        """What is known of both servers."""

    def vote(self) -> bool:
        """Note that a client asks; return whether this server may answer it. May raise
        `PairFailed`."""


class _Mode(Enum):
    SHUT = "shut"
    OPEN = "open"
    KEPT = "kept"  # what comes is kept until it is known whether to go on


class _Guest:
    """A peer that is let in while the gate is closed, and what it has said."""

    __slots__ = ("heard", "joined")

    def __init__(self, joined: PeerJoined) -> None:
        self.joined = joined
        self.heard: list[Message] = []


class StandbyGate:
    """A `MajordomoBroker` that serves while its partner says so: an engine around an engine.

    Whenever the partner's answer may have changed, feed it a `Wake`.
    """

    def __init__(self, broker: MajordomoBroker, partner: Partner) -> None:
        self._broker = broker
        self._partner = partner
        self._mode = _Mode.SHUT
        self._guests: dict[Peer, _Guest] = {}
        self._kept: list[Input] = []

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
        if self._partner.view.state in _UNSURE and len(self._kept) < _KEPT_MAX:
            return self._keep(event, now)
        return [*self._shut(now), *self._listen(event, now)]

    def deadline(self) -> float | None:
        """See `requite.engine.Engine.deadline`."""
        return None if self._mode is _Mode.KEPT else self._broker.deadline()

    def snapshot(self) -> Snapshot:
        """Return the broker's tables."""
        return self._broker.snapshot()

    def lets_in(self) -> bool:
        """Tell whether a new connection is taken: not as long as it could only be refused."""
        if self._partner.serves or self._mode is _Mode.KEPT:
            return True
        view = self._partner.view
        return view.peer_is_silent and (view.state, Event.CLIENT_VOTE) in TABLE

    # --- the moves --------------------------------------------------------------------------------
    def _open(self, now: float) -> list[Effect]:
        """Serve: first those who are inside already, in the order in which they came."""
        self._mode = _Mode.OPEN
        guests, self._guests = self._guests, {}
        kept, self._kept = self._kept, []
        inputs: list[Input] = [Wake(), *kept]
        for peer, guest in guests.items():
            inputs += (guest.joined, Received(peer, guest.heard))
        return list(self._broker.handle(inputs, now))

    def _shut(self, now: float) -> list[Effect]:
        """Serve nobody any more: all that was pending is the other server's business now."""
        self._mode = _Mode.SHUT
        kept, self._kept = self._kept, []
        strangers = [event.peer for event in kept if event.__class__ is PeerJoined]
        goodbyes = [Disconnect(peer, NOT_ACTIVE) for peer in strangers]
        return [*self._broker.step_down(NOT_ACTIVE, now), *goodbyes]

    def _keep(self, event: Input, now: float) -> Iterable[Effect]:
        self._mode = _Mode.KEPT
        if event.__class__ is Drain:
            return self._broker.handle((event,), now)
        if event.__class__ is not Wake:
            self._kept.append(event)
        is_asked = event.__class__ is Received and self._is_client(event.peer, event.messages)
        return self._open(now) if is_asked and self._vote() else ()

    def _vote(self) -> bool:
        try:
            return self._partner.vote()
        except PairFailed:  # whoever runs the broker is told by the pair itself
            return False

    def _is_client(self, peer: Peer, messages: Sequence[Message]) -> bool:
        """Whether a client has said something, be it the first thing it says."""
        party = self._broker.parties.get(peer)
        if party is not None and not isinstance(party, Newcomer):
            return isinstance(party, Client)
        found = detect(messages[0]) if messages else None
        return found is not None and found[0] is Role.CLIENT

    # --- while the gate is closed -----------------------------------------------------------------
    def _listen(self, event: Input, now: float) -> Iterable[Effect]:
        """Take note of who is inside, and of what is said."""
        match event:
            case Received(peer, messages):
                return self._heard(peer, messages, now)
            case PeerJoined(peer) if self.lets_in():
                self._guests[peer] = _Guest(event)
            case PeerJoined(peer):  # the other one was heard while hands were shaken
                return [Disconnect(peer, NOT_ACTIVE)]
            case PeerLost(peer):
                self._guests.pop(peer, None)
            case Drain():
                goodbyes = [Disconnect(peer, NOT_ACTIVE) for peer in self._guests]
                self._guests.clear()
                return [*goodbyes, *self._broker.handle((event,), now)]
            case Wake():
                return [*self._send_home(), *self._broker.handle((event,), now)]
        return ()

    def _send_home(self) -> Iterable[Effect]:
        """Send those away who were let in while the other server was silent, once it is not: they
        might only find out with a request that it is not served here."""
        if self.lets_in():
            return ()
        guests, self._guests = self._guests, {}
        return [Disconnect(peer, NOT_ACTIVE) for peer in guests]

    def _heard(self, peer: Peer, messages: Sequence[Message], now: float) -> Iterable[Effect]:
        guest = self._guests.get(peer)
        if guest is None or not messages:
            return ()
        is_first = not guest.heard
        said = [*guest.heard, *messages]
        guest.heard = said[:_HEARD_MAX]
        found = detect(said[0])
        if found is None:
            return self._send_away(peer, foreign.describe(said[0]))
        role, dialect = found
        if role is Role.WORKER:
            return self._reassure(peer, dialect) if is_first else ()
        return self._heard_client(guest, dialect, said, now)

    def _reassure(self, peer: Peer, dialect: Dialect) -> list[Effect]:
        """Tell a worker, once, that it was heard. It stays as long as its own patience lasts, and
        comes back without a pause, since it was answered: so it is here, or on its way, when the
        first client asks."""
        interval_ms = self._broker.policy.heartbeat.interval_ms
        return [Send(peer, dialect.encode(WorkerHeartbeat(interval_ms)))]

    def _heard_client(
        self, guest: _Guest, dialect: Dialect, said: Sequence[Message], now: float
    ) -> Iterable[Effect]:
        """Count its first requests as a vote: all of them are served then, or given back."""
        peer = guest.joined.peer
        try:
            commands = [dialect.decode_from_client(message) for message in said]
        except RemoteViolation as violation:
            return self._send_away(peer, str(violation))
        requests = [each for each in commands if isinstance(each, ClientRequest)]
        if not requests:
            return ()
        if any(map(_is_vote, requests)) and self._vote():
            guest.heard = [*said]
            return self._open(now)
        return [*_refusals(peer, dialect, requests), *self._send_away(peer, NOT_ACTIVE)]

    def _send_away(self, peer: Peer, reason: str) -> list[Effect]:
        self._guests.pop(peer, None)
        return [Disconnect(peer, reason)]


def _is_vote(request: ClientRequest) -> bool:
    """Whether an application wants something. An operator who looks at a broker does not; who asks
    for the workers of a service is about to send it a request."""
    return not request.service.startswith(MMI_PREFIX) or request.service == b"mmi.service"


def _refusals(peer: Peer, dialect: Dialect, requests: Iterable[ClientRequest]) -> Iterable[Effect]:
    """Give requests back where the dialect has words for it: they have not run ([client-drain])."""
    if not dialect.has_ids:
        return
    body, status = [NOT_ACTIVE.encode()], Status.SHUTTING_DOWN
    for request in requests:
        final = ClientFinal(request.service, body, request.request_id, status, 0)
        yield Send(peer, dialect.encode(final))


def as_facts(view: PairView) -> dict[str, Any]:
    """Return a view as `mmi.pair` and `mmi.stats` show it."""
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
