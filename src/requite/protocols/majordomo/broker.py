"""The Majordomo broker: one engine for clients and workers of MDP 0.1, 0.2 and 0.3.

A peer is a `Newcomer` until its first message reveals its role and dialect; then it is a `Client`
or a `Worker` for the rest of its connection, handled in `clients.py` or `workforce.py`. The life of
a request is in `dispatch.py`, the order of service in `queue.py`.

Sources: 18/MDP, 7/MDP, 8/MMI and docs/protocols/mdp-0.3.md (rule ids in brackets).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from requite import engine
from requite.chronicle import (
    MADE_UP,
    NO_INSTANCE,
    SWEEP_EVERY_S,
    Chronicle,
    Kind,
)
from requite.core.timers import Timers
from requite.engine import (
    Carried,
    Effect,
    Peer,
    PeerBlocked,
    PeerJoined,
    PeerLost,
    PeerWritable,
    Received,
    RightsChanged,
    Stopped,
    Wake,
)
from requite.errors import LocalViolation
from requite.principal import Principal
from requite.protocols.majordomo import foreign, management
from requite.protocols.majordomo.authorizer import Authorizer
from requite.protocols.majordomo.census import Census, take_census
from requite.protocols.majordomo.clients import Clients
from requite.protocols.majordomo.dialects import PeerRole, detect
from requite.protocols.majordomo.directory import Directory
from requite.protocols.majordomo.dispatch import Dispatcher
from requite.protocols.majordomo.operations import Operations
from requite.protocols.majordomo.parties import (
    Client,
    Load,
    Newcomer,
    Party,
    PendingRequest,
    Service,
    Worker,
)
from requite.protocols.majordomo.policy import BrokerPolicy
from requite.protocols.majordomo.pushback import Pushback
from requite.protocols.majordomo.recorders import BrokerObserver, BrokerRecorder
from requite.protocols.majordomo.refusals import Refusals
from requite.protocols.majordomo.workforce import Workforce
from requite.request import Status

_DRAIN: Final = "drain"  # the name of the timer that ends a drain
_FLUSH: Final = "flush"  # the name of the timer that journals open spans
_DRAINING: Final = "the broker is shutting down"
_ORIGINS_MAX: Final = 1 << 16


class MajordomoBroker:
    """The broker's side of MDP (18/MDP, "MDP/Client" and "MDP/Worker").

    `origin` distinguishes the call ids made by this broker, and should be random per start.
    `chronicle` journals requests and workers.
    """

    def __init__(
        self,
        policy: BrokerPolicy | None = None,
        *,
        origin: bytes = NO_INSTANCE,
        chronicle: Chronicle | None = None,
    ) -> None:
        self.policy = policy or BrokerPolicy()
        self._name: Final = origin.hex()
        self.parties: dict[Peer, Party] = {}
        # In a pair (`requite.pair`), returns its view for `mmi.pair`.
        self.standing: Callable[[], Mapping[str, Any]] | None = None
        # A server that ends with a drain is asked for one; without it, the engine just drains.
        self.drain_wanted: Callable[[], object] | None = None
        self.draining = False
        self.stopped = False
        self._out: list[Effect] = []
        self._timers: Timers[Any] = Timers()
        self._observer = (
            BrokerObserver(notes=self.policy.notes)
            if chronicle is None
            else BrokerRecorder(chronicle, notes=self.policy.notes)
        )
        self._directory = Directory(self.policy, self._timers)
        self.load = Load()
        self._pushback = Pushback(self.policy, self._directory, self.load, self._timers, self._out)
        self._refusals = refusals = Refusals(self.policy, self._observer, self._out)
        self._dispatcher = Dispatcher(
            self.policy,
            self._directory,
            self._timers,
            self._out,
            self._pushback,
            self.load,
            self._observer,
            refusals,
        )
        self._workforce = Workforce(
            self.policy,
            self.parties,
            self._directory,
            self._dispatcher,
            self._timers,
            self._out,
            self._observer,
        )
        self._operations = Operations(
            self.parties,
            self._directory,
            self._dispatcher,
            self._workforce,
            self._pushback,
            self._out,
            self._observer,
            self._drain_for_operator,
        )
        self.authorizer = Authorizer(self._observer)
        self._clients = Clients(
            self.policy,
            self.parties,
            self._directory,
            self._dispatcher,
            refusals,
            self._pushback,
            self.load,
            self.authorizer,
            management.Management(self),
            self._operations,
            self._out,
            bytes((origin[0] | MADE_UP,)) + origin[1:4],  # [call-id]
        )
        self._inputs: dict[type, Callable[[Any, float], None]] = {
            Received: self._received,
            PeerJoined: self._peer_joined,
            PeerLost: self._peer_lost,
            PeerBlocked: self._peer_blocked,
            PeerWritable: self._peer_writable,
            Wake: self._wake,
            RightsChanged: self._rights_changed,
            engine.Drain: self._drain,
        }

    # --- the engine's contract ------------------------------------------------------------------
    def handle(self, events: Sequence[engine.Input], now: float) -> Iterable[Effect]:
        """See `requite.engine.Engine.handle`."""
        refused: LocalViolation | None = None
        for event in events:
            handler = self._inputs.get(event.__class__)
            if handler is None:
                refused = refused or LocalViolation(f"a broker does not handle the input {event!r}")
                continue
            handler(event, now)
            if self._pushback.ready:
                self._clients.take_up_backlogs(now)
            if self.draining:
                self._maybe_stop()
        if refused is not None:
            raise refused
        effects = self._out.copy()
        self._out.clear()
        return effects

    def deadline(self) -> float | None:
        """See `requite.engine.Engine.deadline`."""
        return self._timers.next()

    @property
    def services(self) -> dict[bytes, Service]:
        """The known services, by name."""
        return self._directory.services

    def snapshot(self) -> management.Snapshot:
        """Return the state for `mmi.*`, dashboards and checkers."""
        return management.snapshot(
            self.services.values(),
            self.parties.values(),
            len(self._pushback.unread),
            len(self._timers),
            self.draining,
        )

    def census(self) -> Census:
        """Return the numbers for metrics. It takes some 50 ns per service and peer; `traffic_of`
        reads those of a service."""
        return take_census(
            self.services.values(),
            self.parties.values(),
            self.load,
            self._directory.forgotten,
            self._refusals.refused,
            self._observer.denied,
            len(self._pushback.unread),
            self.policy.pending_bytes_max,
            self.policy.services_max,
            self.draining,
            self._name,
        )

    def record_access(
        self, kind: Kind, principal: str, verb: str, now: float, reason: str = "", name: bytes = b""
    ) -> None:
        """Journal an access decision that was made outside of the engine."""
        self._observer.access(kind, Principal(principal), verb, name, now, reason)

    # --- peers come and go ----------------------------------------------------------------------
    def _peer_joined(self, event: PeerJoined, now: float) -> None:
        self.parties[event.peer] = Newcomer(event)
        usage = self.authorizer.usages.get(event.principal)
        self._pushback.hold(event.peer, usage, event.features)
        if self._observer.keeps_journal and _FLUSH not in self._timers:
            self._timers.set(_FLUSH, now + SWEEP_EVERY_S)

    def _peer_lost(self, event: PeerLost, now: float) -> None:
        party = self.parties.pop(event.peer, None)
        if party.__class__ is Newcomer:
            self._pushback.lost(event.peer)
        elif party.__class__ is Client:
            self._dispatcher.forget(party, now)
        elif party.__class__ is Worker:
            why = f"the worker was lost ({event.reason or 'closed'})"
            self._workforce.lost(party, why, engine.Cause.DONE, now)

    def _peer_blocked(self, event: PeerBlocked, _now: float) -> None:
        party = self.parties.get(event.peer)
        if isinstance(party, Worker):
            self._workforce.blocked(party)

    def _peer_writable(self, event: PeerWritable, now: float) -> None:
        party = self.parties.get(event.peer)
        if isinstance(party, Worker):
            self._workforce.writable(party, now)

    def _received(self, event: Received, now: float) -> None:
        peer, messages = event.peer, event.messages
        party = self.parties.get(peer)
        if party.__class__ is Newcomer:
            self._introduce(peer, party, messages, now)
        elif party.__class__ is Worker:
            self._workforce.take(party, messages, now)
        elif party.__class__ is Client:
            self._clients.take(party, messages, now, event.behind_s)
        # else: departed, or just dropped with bytes still in flight: ignored

    def _introduce(
        self, peer: Peer, newcomer: Newcomer, messages: Sequence[Carried], now: float
    ) -> None:
        """Detect a peer's role and dialect from its first message."""
        if not messages:  # the first one is incomplete
            return
        self._pushback.introduced(peer)
        found = detect(messages[0])
        if found is None:
            self._clients.expel(peer, newcomer.address, foreign.describe(messages[0]))
            return
        role, dialect = found
        handlers = self._clients if role is PeerRole.CLIENT else self._workforce
        handlers.introduce(peer, newcomer, dialect, messages, now)

    def _rights_changed(self, _event: RightsChanged, now: float) -> None:
        """End what principals may no longer do ([rights-changed])."""
        self._clients.review(now)
        self._workforce.review(now)  # dispatches the requests of lost workers again
        self._pushback.review(now)

    # --- time -----------------------------------------------------------------------------------
    def _wake(self, _event: Wake, now: float) -> None:
        if (planned_at := self._timers.next()) is not None:
            self._workforce.woken(planned_at, now)
        for name in self._timers.due(now):
            if isinstance(name, PendingRequest):
                if (worker := self._dispatcher.due(name, now)) is not None:
                    self._workforce.request_expired(worker, now)
            elif isinstance(name, Worker):
                self._workforce.due(name, now)
            elif isinstance(name, Service):
                self._directory.due(name, now)
                self._pushback.make_room(self._directory, now)
            elif name is self._pushback:
                self._pushback.due(now)
            elif name is _DRAIN:
                self._drain_due(now)
            elif name is _FLUSH:
                self.flush_open_spans(now)
                if self.parties:
                    self._timers.set(_FLUSH, now + SWEEP_EVERY_S)
            else:
                worker, dispatch_id = name
                self._dispatcher.lease_due(worker, dispatch_id, now)

    def flush_open_spans(self, now: float) -> None:
        """Journal that the pending requests were accepted."""
        clients = [each for each in self.parties.values() if isinstance(each, Client)]
        self._observer.flush_open_spans(clients, now)

    # --- drain ----------------------------------------------------------------------------------
    def step_down(self, reason: str, now: float) -> list[Effect]:
        """Disconnect all peers and drop pending requests: another broker serves from now on.

        Clients of MDP 0.3 get their requests back ([client-drain]); others only lose their
        connection. Counters continue when the broker serves again.
        """
        clients = [party for party in self.parties.values() if isinstance(party, Client)]
        for client in clients:
            if client.dialect.has_ids:
                for pending in list(client.pending.values()):
                    self._dispatcher.fail(pending, Status.SHUTTING_DOWN, reason, now)
            self._dispatcher.forget(client, now)
        self._workforce.stop()
        for party in self.parties.values():
            if isinstance(party, Worker):
                self._workforce.lost(party, reason, engine.Cause.DONE, now)
        for peer in self.parties:
            self._pushback.lost(peer)
            self._out.append(engine.Disconnect(peer, reason, engine.Cause.DONE))
        self.parties.clear()
        effects = self._out.copy()
        self._out.clear()
        return effects

    def _drain_for_operator(self, now: float) -> int:
        if self.drain_wanted is None:
            self._drain(engine.Drain(), now)
        else:
            self.drain_wanted()
        return self.load.count

    def _drain(self, _event: engine.Drain, now: float) -> None:
        if not self.draining:
            self.draining = True
            self._pushback.resume_all()
            self._workforce.refusal = _DRAINING
            self._clients.drain(_DRAINING)
            self._timers.set(_DRAIN, now + self.policy.drain_timeout_s)

    def _drain_due(self, now: float) -> None:
        for party in list(self.parties.values()):
            if isinstance(party, Client):
                status = Status.SHUTTING_DOWN if party.dialect.has_ids else Status.CANCELLED
                for pending in list(party.pending.values()):
                    self._dispatcher.fail(pending, status, _DRAINING, now)

    def _maybe_stop(self) -> None:
        """Disconnect all peers and stop once no request is pending."""
        if self.stopped or self.load.count:
            return
        self.stopped = True
        self._timers.clear(_DRAIN)
        self._timers.clear(_FLUSH)
        self._timers.clear(self._pushback)
        self._workforce.stop()
        done = engine.Cause.DONE
        self._out.extend(engine.Disconnect(peer, _DRAINING, done) for peer in self.parties)
        self.parties.clear()
        self._out.append(Stopped())
