"""The broker's clients: their messages, and whether each request is accepted.

The `Dispatcher` moves accepted requests, `Refusals` answers the others, the `Authorizer` knows
rights and quotas, and `Pushback` stops reading from clients that cannot be refused. Sources: 18/MDP
("MDP/Client"), 7/MDP, 8/MMI, docs/protocols/mdp-0.3.md (rule ids in brackets).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from math import inf
from typing import Final

from requite import engine
from requite.chronicle import NO_CALL
from requite.core.liveness import announced_s
from requite.engine import Carried, Effect, Peer, ReadFreely, ReadInTurn, Send, Warn
from requite.errors import RemoteViolation
from requite.principal import INSIDE
from requite.protocols.majordomo.authorizer import Authorizer
from requite.protocols.majordomo.directory import TOO_MANY, Directory
from requite.protocols.majordomo.dispatch import Dispatcher
from requite.protocols.majordomo.lateness import BEHIND_S_MIN
from requite.protocols.majordomo.management import DESCRIBE, FORBIDDEN, Management, describing
from requite.protocols.majordomo.operations import Operations
from requite.protocols.majordomo.parties import Client, Load, Newcomer, Party, PendingRequest
from requite.protocols.majordomo.permissions import ACTS
from requite.protocols.majordomo.policy import BrokerPolicy
from requite.protocols.majordomo.pushback import Pushback
from requite.protocols.majordomo.refusals import Refusals
from requite.protocols.majordomo.wire import (
    MMI_PREFIX,
    ClientCancel,
    ClientFinal,
    ClientHeartbeat,
    ClientRequest,
    Dialect,
)
from requite.request import Status

_POOL_SEPARATOR: Final = ord("/")  # `b"/" in name` takes 0.24 us: bytes are tried as a number first

_IDLE_MAX: Final = 16  # heartbeats, and cancellations of what has ended, in one read
# More heartbeats would cost an overloaded broker too much.
_REASSURE_EVERY_S_MIN: Final = 0.1


class Clients:
    """All clients of a broker, on one socket with its workers (`parties` is shared with it).

    `origin` begins the call ids of clients that send none. Effects go to `out`.
    """

    def __init__(
        self,
        policy: BrokerPolicy,
        parties: dict[Peer, Party],
        directory: Directory,
        dispatcher: Dispatcher,
        refusals: Refusals,
        pushback: Pushback,
        load: Load,
        authorizer: Authorizer,
        management: Management,
        operations: Operations,
        out: list[Effect],
        origin: bytes,
    ) -> None:
        self._policy = policy
        self._parties = parties
        self._directory = directory
        self._dispatcher = dispatcher
        self._refusals = refusals
        self._pushback = pushback
        self._load = load
        self._authorizer = authorizer
        self._management = management
        self._operations = operations
        self._out = out
        self._origin = origin
        self._numbers = count(1)  # of clients
        self._serial = count(1)  # request ids for dialects without
        self.refusal: str | None = None  # why no request is accepted, while draining

    def introduce(
        self,
        peer: Peer,
        newcomer: Newcomer,
        dialect: Dialect,
        messages: Sequence[Carried],
        now: float,
    ) -> None:
        """Handle the first messages of a client."""
        origin = self._origin + next(self._numbers).to_bytes(4, "big")
        client = Client(peer, newcomer, dialect, origin, self._policy.heartbeat.interval_s)
        self._authorizer.introduce(client)
        self._pushback.watch(client)
        self._parties[peer] = client
        self.take(client, messages, now)
        self._read_in_turn(client)

    def take(
        self, client: Client, messages: Sequence[Carried], now: float, behind_s: float = 0.0
    ) -> None:
        """Handle messages of a client, which has been behind for `behind_s`."""
        if not messages:
            self._reassure(client, now)
        if client.backlog:
            client.backlog = (*client.backlog, *messages)
            return
        decode = client.dialect.decode_from_client
        rest = handled = iter(messages)
        if behind_s >= BEHIND_S_MIN and client.dialect.has_ids and self.refusal is None:
            handled = self._refusals.refuse_late(client, rest, now, behind_s)
        idle = 0  # messages that have no effect, but cost as much as a request
        try:
            for message in handled:
                command = decode(message)
                if command.__class__ is ClientRequest:
                    self._request(client, command, now)
                elif command.__class__ is ClientCancel:
                    idle += not self._cancel(client, command, now)
                elif command.__class__ is ClientHeartbeat:
                    self._answer_heartbeat(client, command.interval_ms)
                    idle += 1
                if idle > _IDLE_MAX:
                    self._pushback.pace(client, client.principal)
                if client.limits and self._pushback.is_far_beyond(client):
                    client.backlog = (*client.backlog, *rest)
                    self._pushback.pause(client, now)
        except RemoteViolation as error:
            self.expel(client.peer, client.address, str(error))
            self._dispatcher.forget(client, now)

    def expel(self, peer: Peer, address: bytes, reason: str) -> None:
        """Drop a peer that broke the protocol, without effect on others (I13)."""
        self._parties.pop(peer, None)
        self._out.append(Warn("malformed", f"dropped the peer {address.hex()}: {reason}"))
        self._out.append(engine.Disconnect(peer, reason, engine.Cause.FAULTY))

    def take_up_backlogs(self, now: float) -> None:
        """Handle the backlogs of clients that had named too many services."""
        ready = self._pushback.ready
        while ready:
            client = ready.popitem()[0]
            messages, client.backlog = client.backlog, ()
            self.take(client, messages, now)
            if client in self._pushback.unread and not client.limits:
                self._pushback.resume(client)

    # --- requests -------------------------------------------------------------------------------
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
        if command.principal:
            if not self._may_act(client, command, now):
                return
        elif name not in principal.allowed and not self._may_call(client, command, now):
            return
        if name.startswith(MMI_PREFIX):
            if name == DESCRIBE and client.dialect.has_ids:
                self._request(client, describing(command), now)
                return
            if not self._is_too_fast(client, command, now):
                self._manage(client, command, now)
            return
        policy = self._policy
        if (
            self.refusal is not None
            or len(client.pending) >= policy.client_pending_max
            or client.size >= policy.client_pending_bytes_max
            or self._load.size >= policy.pending_bytes_max
        ):
            limit, why = self._limit_reached(client)
            if self.refusal is not None or self._pushback.can_tell(client):
                can_say = self.refusal is not None and client.dialect.has_ids  # [client-drain]
                status = Status.SHUTTING_DOWN if can_say else Status.OVERLOADED
                self._refusals.refuse(client, command, status, why, now)
                return
            self._pushback.stop(client, limit, why)
        usage = client.usage
        if (
            usage is not None
            and (
                usage.room <= 0
                or usage.size >= usage.bytes_max
                or (usage.groups_max and _POOL_SEPARATOR in name)
            )
            and (why := self._authorizer.exceeds(client, usage, name, now))
        ):
            if self._pushback.can_tell(client):
                self._refusals.refuse(client, command, Status.OVERLOADED, why, now)
                self._pushback.pace(client, principal)
                return
            usage.admit_anyway(now)
            self._pushback.stop_for(client, usage, why, now)
        service = self._directory.find(name)
        is_extra = False
        if service is None:
            if why := self._directory.refusal(client):
                if self._pushback.can_tell(client):
                    self._refusals.refuse(client, command, Status.OVERLOADED, why, now)
                    return
                is_extra = why is TOO_MANY
                if usage is not None and usage.exceeds_services():
                    self._pushback.stop_for(client, usage, why, now)
                elif not is_extra:
                    self._pushback.stop(client, client, why)
            service = self._directory.add(name, client, now)
        call_id = command.call_id
        if call_id == NO_CALL:
            call_id = client.origin + request_id.to_bytes(8, "big")
        owner = client.principal_name  # of the connection, also for REQUEST_FOR ([call-id-owner])
        if owner and not call_id.startswith(client.known_origin):
            call_id = self._authorizer.own_call_id(client, request_id, call_id, now)
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
            command.principal or owner,
            command.trace,
        )
        if is_extra:
            self._pushback.stop_naming(pending)
        self._dispatcher.accept(pending, now)

    def _limit_reached(self, client: Client) -> tuple[Client | Load, str]:
        """Return the limit that a client's request exceeds, and the reason."""
        policy = self._policy
        if self.refusal is not None:
            return client, self.refusal
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
        return self._load, (
            f"the pending requests of all clients take {self._load.size} bytes; the limit is "
            f"{policy.pending_bytes_max} (pending_bytes_max, --pending-bytes-max)"
        )

    def _is_too_fast(self, client: Client, command: ClientRequest, now: float) -> bool:
        """Count a request that is answered at once; whether it was refused, since it is beyond the
        quota."""
        usage = client.usage
        if usage is None or not (why := self._authorizer.spend(client, command.service, now)):
            return False
        if self._pushback.can_tell(client):
            self._refusals.refuse(client, command, Status.OVERLOADED, why, now)
            self._pushback.pace(client, client.principal)
            return True
        self._pushback.stop_for(client, usage, why, now)
        return False

    def _deny(self, client: Client, command: ClientRequest, reason: str, now: float) -> None:
        """Answer a request that the client has no right to make ([denied])."""
        name = command.service
        if name in ACTS:
            self._operations.denied(client.principal, name, reason, now)
        else:
            self._authorizer.deny(client, "call", name, reason, now)
        if client.dialect.has_ids or not name.startswith(MMI_PREFIX):
            self._refusals.refuse(client, command, Status.DENIED, reason, now)
        else:
            body = [FORBIDDEN]
            self._out.append(Send(client.peer, client.dialect.encode(ClientFinal(name, body))))
        self._pushback.pace(client, client.principal)

    def _may_call(self, client: Client, command: ClientRequest, now: float) -> bool:
        """Whether a client has the right to make a request; refuse it otherwise."""
        if denied := self._authorizer.lacks(client, command):
            if not self._is_too_fast(client, command, now):
                self._deny(client, command, denied, now)
            return False
        self._admit(client, command, now)
        return True

    def _admit(self, client: Client, command: ClientRequest, now: float) -> None:
        """Journal an operator's request to a worker, such as a Titanic ([ops-journaled])."""
        name = command.service
        if name in ACTS and not name.startswith(MMI_PREFIX):
            who = self._authorizer.user_of(client, command.principal)
            self._operations.admitted(who, name, command.body[0], now)

    def _may_act(self, client: Client, command: ClientRequest, now: float) -> bool:
        """Whether a client may make a request for the user that it names ([for-right]); refuse it
        otherwise."""
        user, name = command.principal, command.service
        denied = self._authorizer.lacks_for(client, user, name, command.body, now)
        if not denied:
            self._admit(client, command, now)
            return True
        if client.principal is INSIDE:
            if name in ACTS:
                self._operations.denied(self._authorizer.user_of(client, user), name, denied, now)
            else:
                self._authorizer.deny(client, "call", name, denied, now)
            self._refusals.refuse(client, command, Status.DENIED, denied, now)
        elif not self._is_too_fast(client, command, now):
            self._authorizer.deny(client, "act", user, denied, now)
            self._refusals.refuse(client, command, Status.DENIED, denied, now)
            self._pushback.pace(client, client.principal)
        return False

    def _manage(self, client: Client, command: ClientRequest, now: float) -> None:
        if command.service in ACTS:
            who = self._authorizer.user_of(client, command.principal)
            body = self._operations.perform(client, who, command.service, command.body, now)
        else:
            body = self._management.answer(client, command.service, command.body, now)
        is_costly = self._management.is_costly(command.service)
        self._pushback.pace(client, self._management if is_costly else client.principal)
        message = client.dialect.encode(
            ClientFinal(command.service, [body], command.request_id, Status.OK, 0)
        )
        self._out.append(Send(client.peer, message))

    # --- other messages -------------------------------------------------------------------------
    def _cancel(self, client: Client, command: ClientCancel, now: float) -> bool:
        """Cancel a request; return False if it is not pending any more."""
        pending = client.pending.get(command.request_id)
        if pending is None:
            return False
        self._dispatcher.cancel(pending, "the client cancelled the request", now)
        return True

    def _answer_heartbeat(self, client: Client, interval_ms: int) -> None:
        interval_s = announced_s(interval_ms)
        if interval_s != client.interval_s:
            client.interval_s = interval_s
            self._read_in_turn(client)
        self._heartbeat(client)

    def _heartbeat(self, client: Client) -> None:
        message = client.dialect.encode(ClientHeartbeat(self._policy.heartbeat.interval_ms))
        self._out.append(Send(client.peer, message))

    def _reassure(self, client: Client, now: float) -> None:
        """Send a heartbeat to a client whose messages wait, or arrive in part ([client-slow])."""
        if client.dialect.has_ids and now >= client.reassure_at:
            client.reassure_at = now + max(client.interval_s, _REASSURE_EVERY_S_MIN)
            self._heartbeat(client)

    def _read_in_turn(self, client: Client) -> None:
        """Read from a client in turn, and learn twice per interval of it that messages wait."""
        if self.refusal is None:
            report_s = max(client.interval_s, _REASSURE_EVERY_S_MIN) / 2
            self._out.append(ReadInTurn(client.peer, report_s, self._load.pending))

    # --- changes --------------------------------------------------------------------------------
    def review(self, now: float) -> None:
        """End what clients may no longer do, and apply changed quotas ([rights-changed])."""
        clients = [each for each in self._parties.values() if isinstance(each, Client)]
        for client in clients:
            for pending in list(client.pending.values()):
                if denied := self._authorizer.lacks_still(pending, now):
                    self._dispatcher.fail(pending, Status.DENIED, denied, now)
        self._authorizer.review(clients)
        for client in clients:
            self._pushback.watch(client)

    def drain(self, reason: str) -> None:
        """Refuse all requests from now on, also those that wait for the turn of their clients."""
        self.refusal = reason
        for party in self._parties.values():
            if isinstance(party, Client):
                self._out.append(ReadFreely(party.peer))
