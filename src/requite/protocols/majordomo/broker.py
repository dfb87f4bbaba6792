"""The Majordomo broker: one engine for clients and workers of MDP 0.1, 0.2 and 0.3.

A peer is a `Newcomer` until its first message reveals its role and dialect; then it is a `Client`
or a `Worker` for the rest of its connection. Clients are handled here, workers in `workforce.py`;
the life of a request is in `dispatch.py`, the order of service in `queue.py`.

Sources: 18/MDP, 7/MDP, 8/MMI and docs/protocols/mdp-0.3.md (rule ids in brackets).
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import count
from math import inf
from typing import Any, Final

from requite import engine
from requite.chronicle import (
    MADE_UP,
    NO_CALL,
    NO_INSTANCE,
    ORIGIN_SIZE,
    SWEEP_EVERY_S,
    Chronicle,
    Kind,
)
from requite.core.observer import observer_of
from requite.core.timers import Timers
from requite.engine import (
    Effect,
    Message,
    Peer,
    PeerBlocked,
    PeerJoined,
    PeerLost,
    PeerWritable,
    Received,
    RightsChanged,
    Send,
    Stopped,
    Wake,
    Warn,
)
from requite.errors import LocalViolation, RemoteViolation
from requite.principal import INSIDE, Principal
from requite.protocols.majordomo import foreign, management
from requite.protocols.majordomo.dialects import PeerRole, detect
from requite.protocols.majordomo.directory import TOO_MANY, Directory
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
    size_of,
)
from requite.protocols.majordomo.permissions import ACTS, lacks_to_call
from requite.protocols.majordomo.policy import BrokerPolicy
from requite.protocols.majordomo.pushback import Pushback
from requite.protocols.majordomo.quotas import Usage, usage_for
from requite.protocols.majordomo.recorders import NO_BROKER_OBSERVER, BrokerRecorder
from requite.protocols.majordomo.wire import (
    MMI_PREFIX,
    ClientCancel,
    ClientFinal,
    ClientHeartbeat,
    ClientRequest,
)
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
        self._origin = bytes((origin[0] | MADE_UP,)) + origin[1:4]  # [call-id]
        self.parties: dict[Peer, Party] = {}
        # In a pair (`requite.pair`), returns its view for `mmi.pair`.
        self.standing: Callable[[], Mapping[str, Any]] | None = None
        # With an access file, returns the present rights of a user by its name.
        self.principal_named: Callable[[str], Principal] | None = None
        self.draining = False
        self.stopped = False
        self._out: list[Effect] = []
        self._timers: Timers[Any] = Timers()
        self._serial = count(1)  # request ids for dialects without
        self._clients = count(1)
        self._usages: dict[Principal, Usage] = {}
        self._origins: OrderedDict[bytes, bytes] = OrderedDict()  # owners of call ids
        self._observer = observer_of(
            NO_BROKER_OBSERVER if chronicle is None else BrokerRecorder(chronicle),
            notes=self.policy.notes,
        )
        self._directory = Directory(self.policy, self._timers)
        self._management = management.Management(self)
        self.load = Load()
        self._pushback = Pushback(self.policy, self._directory, self.load, self._timers, self._out)
        self._dispatcher = Dispatcher(
            self.policy,
            self._directory,
            self._timers,
            self._out,
            self._pushback,
            self.load,
            self._observer,
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
            self._out,
            self._observer,
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
                self._take_up_backlogs(now)
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

    def record_access(
        self, kind: Kind, principal: str, verb: str, now: float, reason: str = ""
    ) -> None:
        """Journal an access decision of the listener."""
        self._observer.access(kind, Principal(principal), verb, b"", now, reason)

    # --- peers come and go ----------------------------------------------------------------------
    def _peer_joined(self, event: PeerJoined, now: float) -> None:
        self.parties[event.peer] = Newcomer(event)
        if self._observer.keeps_journal and _FLUSH not in self._timers:
            self._timers.set(_FLUSH, now + SWEEP_EVERY_S)

    def _peer_lost(self, event: PeerLost, now: float) -> None:
        party = self.parties.pop(event.peer, None)
        if party.__class__ is Client:
            self._dispatcher.forget(party, now)
        elif party.__class__ is Worker:
            self._workforce.lost(party, f"the worker was lost ({event.reason or 'closed'})", now)

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
            self._from_client(party, messages, now)
        # else: departed, or just dropped with bytes still in flight: ignored

    def _introduce(
        self, peer: Peer, newcomer: Newcomer, messages: Sequence[Message], now: float
    ) -> None:
        """Detect a peer's role and dialect from its first message."""
        if not messages:  # the first one is incomplete
            return
        found = detect(messages[0])
        if found is None:
            self._expel(peer, newcomer.address, foreign.describe(messages[0]))
            return
        role, dialect = found
        if role is PeerRole.CLIENT:
            origin = self._origin + next(self._clients).to_bytes(4, "big")
            client = Client(peer, newcomer, dialect, origin)
            client.usage = usage_for(self._usages, client.principal)
            self.parties[peer] = client
            self._from_client(client, messages, now)
        else:
            self._workforce.introduce(peer, newcomer, dialect, messages, now)

    def _expel(self, peer: Peer, address: bytes, reason: str) -> None:
        """Drop a peer that broke the protocol, without effect on others (I13)."""
        self.parties.pop(peer, None)
        self._out.append(Warn("malformed", f"dropped the peer {address.hex()}: {reason}"))
        self._out.append(engine.Disconnect(peer, reason))

    # --- clients --------------------------------------------------------------------------------
    def _from_client(self, client: Client, messages: Sequence[Message], now: float) -> None:
        if not messages:
            self._reassure(client, now)
        if client.backlog:
            client.backlog += messages
            return
        decode = client.dialect.decode_from_client
        rest = iter(messages)
        try:
            for message in rest:
                command = decode(message)
                if command.__class__ is ClientRequest:
                    self._request(client, command, now)
                    if client.limits and self._pushback.is_far_beyond(client):
                        client.backlog.extend(rest)
                        self._pushback.pause(client, now)
                elif command.__class__ is ClientCancel:
                    self._cancel(client, command, now)
                else:
                    self._client_heartbeat(client)
        except RemoteViolation as error:
            self._expel(client.peer, client.address, str(error))
            self._dispatcher.forget(client, now)

    def _take_up_backlogs(self, now: float) -> None:
        """Handle the backlogs of clients that had named too many services."""
        ready = self._pushback.ready
        while ready:
            client = ready.popitem()[0]
            messages, client.backlog = client.backlog, deque()
            self._from_client(client, messages, now)
            if client in self._pushback.unread and not client.limits:
                self._pushback.resume(client)

    def _request(self, client: Client, command: ClientRequest, now: float) -> None:
        name = command.service
        request_id = command.request_id
        if not client.dialect.has_ids:
            request_id = next(self._serial)
        elif request_id in client.pending:
            raise RemoteViolation(
                f"the request id {request_id} belongs to a request that is still pending"
            )  # [client-id]
        principal = client.principal
        if name not in principal.allowed and (
            denied := lacks_to_call(principal, name, command.body)
        ):
            if not self._is_too_fast(client, command, now):
                self._deny(client, command, denied, now)
            return
        if command.principal and principal is INSIDE and (lacks := self._owner_lacks(command)):
            self._observer.access(Kind.DENIED, principal, "call", name, now, lacks)
            self._dispatcher.refuse(client, command, client.denied, lacks, now)
            return
        if name.startswith(MMI_PREFIX):
            if not self._is_too_fast(client, command, now):
                self._manage(client, command, now)
            return
        policy = self.policy
        if (
            self.draining
            or len(client.pending) >= policy.client_pending_max
            or client.size >= policy.client_pending_bytes_max
            or self.load.size >= policy.pending_bytes_max
        ):
            limit, why = self._refusal(client)
            if self.draining or self._pushback.can_tell(client):
                can_say = self.draining and client.dialect.has_ids  # [client-drain]
                status = Status.SHUTTING_DOWN if can_say else Status.OVERLOADED
                self._dispatcher.refuse(client, command, status, why, now)
                return
            self._pushback.stop(client, limit, why)
        usage = client.usage
        if (
            usage is not None
            and (
                usage.room <= 0
                or usage.size >= usage.bytes_max
                or (usage.groups_max and b"/" in name)
            )
            and (why := usage.admit(name, now))
        ):
            if usage.is_news(now):
                self._observer.access(Kind.DENIED, principal, "quota", name, now, why)
            if self._pushback.can_tell(client):
                self._dispatcher.refuse(client, command, Status.OVERLOADED, why, now)
                self._pushback.pace(client, principal)
                return
            usage.admit_anyway(now)
            self._pushback.stop_for(client, usage, why, now)
        service = self._directory.find(name)
        is_extra = False
        if service is None:
            if why := self._directory.refusal(client):
                if self._pushback.can_tell(client):
                    self._dispatcher.refuse(client, command, Status.OVERLOADED, why, now)
                    return
                is_extra = why is TOO_MANY
                if client.usage is not None and client.usage.exceeds_services():
                    self._pushback.stop_for(client, client.usage, why, now)
                elif not is_extra:
                    self._pushback.stop(client, client, why)
            service = self._directory.add(name, client, now)
        call_id = command.call_id
        if call_id == NO_CALL:
            call_id = client.origin + request_id.to_bytes(8, "big")
        owner = client.principal_name
        if owner and not call_id.startswith(client.known_origin):
            call_id = self._own_call_id(client, request_id, call_id, now)
        timeout_ms = command.timeout_ms
        deadline = now + timeout_ms / 1000 if timeout_ms else inf
        pending = PendingRequest(
            client,
            service,
            request_id,
            command.body,
            deadline,
            command.flags,
            command.key,
            call_id,
            now,
            owner or command.principal,
        )
        if is_extra:
            self._pushback.stop_naming(pending)
        self._dispatcher.accept(pending, now)

    def _is_too_fast(self, client: Client, command: ClientRequest, now: float) -> bool:
        """Count a request that is answered at once; whether it was refused, since it is beyond the
        quota."""
        usage = client.usage
        if usage is None or not (why := usage.spend(now)):
            return False
        if usage.is_news(now):
            self._observer.access(Kind.DENIED, client.principal, "quota", command.service, now, why)
        if self._pushback.can_tell(client):
            self._dispatcher.refuse(client, command, Status.OVERLOADED, why, now)
            return True
        self._pushback.stop_for(client, usage, why, now)
        return False

    def _owner_lacks(self, command: ClientRequest) -> str:
        """Return which right is missing to the owner of a stored request, which Titanic sends now;
        it may have lost the right since."""
        if self.principal_named is None:
            return ""
        owner = self.principal_named(command.principal.decode(errors="replace"))
        return lacks_to_call(owner, command.service, command.body)

    def _deny(self, client: Client, command: ClientRequest, reason: str, now: float) -> None:
        """Answer a request that the client has no right to make ([denied])."""
        name = command.service
        if name in ACTS:
            self._operations.denied(client, name, reason, now)
        else:
            self._observer.access(Kind.DENIED, client.principal, "call", name, now, reason)
        if client.dialect.has_ids or not name.startswith(MMI_PREFIX):
            self._dispatcher.refuse(client, command, client.denied, reason, now)
        else:
            body = [management.FORBIDDEN]
            self._out.append(Send(client.peer, client.dialect.encode(ClientFinal(name, body))))
        self._pushback.pace(client, client.principal)

    def _own_call_id(self, client: Client, request_id: int, call_id: bytes, now: float) -> bytes:
        """Return a request's call id, or a new one if it is of another owner ([call-id-owner])."""
        origin, name = call_id[:ORIGIN_SIZE], client.principal_name
        owner = self._origins.pop(origin, name)
        self._origins[origin] = owner  # the last to be forgotten
        if len(self._origins) > _ORIGINS_MAX:
            self._origins.popitem(last=False)
        if owner != name:
            why = f"the call ids {origin.hex()} belong to {owner.decode(errors='replace')}"
            self._observer.access(Kind.DENIED, client.principal, "call id", b"", now, why)
            return client.origin + request_id.to_bytes(8, "big")
        client.known_origin = origin
        self._observer.access(
            Kind.ADMITTED, client.principal, "call id", b"", now, f"call ids {origin.hex()}"
        )
        return call_id

    def _refusal(self, client: Client) -> tuple[Client | Load, str]:
        """Return the limit that a client's request exceeds, and the reason."""
        policy = self.policy
        if self.draining:
            return client, _DRAINING
        if len(client.pending) >= policy.client_pending_max:
            return client, (
                f"the client has reached the maximum of {len(client.pending)} pending requests"
                " (client_pending_max, --client-pending-max)"
            )
        if client.size >= policy.client_pending_bytes_max:
            return client, (
                f"its pending requests take {client.size} bytes; the limit is "
                f"{policy.client_pending_bytes_max} "
                "(client_pending_bytes_max, --client-pending-bytes-max)"
            )
        return self.load, (
            f"the pending requests of all clients take {self.load.size} bytes; the limit is "
            f"{policy.pending_bytes_max} (pending_bytes_max, --pending-bytes-max)"
        )

    def _cancel(self, client: Client, command: ClientCancel, now: float) -> None:
        pending = client.pending.get(command.request_id)
        if pending is not None:
            self._dispatcher.cancel(pending, "the client cancelled the request", now)

    def _client_heartbeat(self, client: Client) -> None:
        message = client.dialect.encode(ClientHeartbeat(self.policy.heartbeat.interval_ms))
        self._out.append(Send(client.peer, message))

    def _reassure(self, client: Client, now: float) -> None:
        """Send a heartbeat to a client that is sending a large message ([client-slow])."""
        if client.dialect.has_ids and now >= client.reassure_at:
            client.reassure_at = now + self.policy.heartbeat.interval_s
            self._client_heartbeat(client)

    def _manage(self, client: Client, command: ClientRequest, now: float) -> None:
        if command.service in ACTS:
            body = self._operations.perform(client, command.service, command.body, now)
        else:
            body = self._management.answer(client, command.service, command.body, now)
        is_costly = self._management.is_costly(command.service)
        self._pushback.pace(client, self._management if is_costly else client.principal)
        message = client.dialect.encode(
            ClientFinal(command.service, [body], command.request_id, Status.OK, 0)
        )
        self._out.append(Send(client.peer, message))

    def _rights_changed(self, _event: RightsChanged, now: float) -> None:
        """End what principals may no longer do ([rights-changed])."""
        for usage in self._usages.values():
            usage.renew()
        for party in list(self.parties.values()):
            if isinstance(party, Client):
                self._dispatcher.review(party, now)
                self._apply_quota(party)
        self._workforce.review(now)  # dispatches the requests of lost workers again
        self._pushback.review(now)
        for principal in [each for each in self._usages if each.is_revoked]:
            del self._usages[principal]

    def _apply_quota(self, client: Client) -> None:
        """Begin to count what a client uses, if its principal has got a quota."""
        if client.usage is None:
            client.usage = usage_for(self._usages, client.principal)
            if client.usage is not None:
                client.usage.named += client.named
                client.usage.room -= len(client.pending)
                client.usage.size += client.size
                for pending in client.pending.values():
                    if pending.joined is not None:
                        client.usage.joined += size_of(pending.joined)
        if client.usage is not None and client.usage.groups_max:
            for pending in client.pending.values():
                client.usage.join_group(pending.service.name)

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
        clients = (each for each in self.parties.values() if isinstance(each, Client))
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
                self._workforce.lost(party, reason, now)
        self._out.extend(engine.Disconnect(peer, reason) for peer in self.parties)
        self.parties.clear()
        effects = self._out.copy()
        self._out.clear()
        return effects

    def _drain(self, _event: engine.Drain, now: float) -> None:
        if not self.draining:
            self.draining = True
            self._pushback.resume_all()
            self._workforce.refusal = _DRAINING
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
        self._out.extend(engine.Disconnect(peer, _DRAINING) for peer in self.parties)
        self.parties.clear()
        self._out.append(Stopped())
