"""Whether the requests of a client are within its rights and its quota, and whose call ids it uses.

Decisions that are not "yes" are journaled. `permissions.py` has the rights, `quotas.py` the limits;
`clients.py` answers the requests. Source: docs/protocols/mdp-0.3.md, "Rights" (rule ids in
brackets).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from requite.chronicle import ORIGIN_SIZE, Kind
from requite.principal import INSIDE, Principal
from requite.protocols.majordomo.parties import Client, PendingRequest, size_of
from requite.protocols.majordomo.permissions import lacks_to_act, lacks_to_call
from requite.protocols.majordomo.quotas import Usage, usage_for
from requite.protocols.majordomo.recorders import BrokerObserver
from requite.protocols.majordomo.wire import ClientRequest

_ORIGINS_MAX: Final = 4096  # of one principal
_ACTS_MAX: Final = 1 << 16


class Authorizer:
    """Decides about requests of clients.

    `principal_named` returns the present rights of a user by its name; None without an access file.
    `usages`: what principals with a quota use.
    """

    def __init__(self, observer: BrokerObserver) -> None:
        self.principal_named: Callable[[str], Principal] | None = None
        self._observer = observer
        self.usages: dict[Principal, Usage] = {}
        self._origin_owners: dict[bytes, bytes] = {}  # of call ids, by origin
        self._origins: dict[bytes, OrderedDict[bytes, None]] = {}  # by owner, the oldest use first
        self._acts: set[tuple[bytes, bytes]] = set()  # journaled: who acts for whom

    def introduce(self, client: Client) -> None:
        """Begin to count what a new client uses, if its principal has a quota."""
        client.usage = usage_for(self.usages, client.principal)

    # --- rights ---------------------------------------------------------------------------------
    def lacks(self, client: Client, command: ClientRequest) -> str:
        """Return which right a client lacks for a request; "" if none."""
        return lacks_to_call(client.principal, command.service, command.body)

    def lacks_for(
        self, client: Client, user: bytes, service: bytes, body: Sequence[bytes], now: float
    ) -> str:
        """Return which right is missing to the client or to the user for whom it makes a request;
        "" if none, which is journaled once ([for-right], [for-users]).

        A part of the broker's process needs no right: a Titanic sends the stored requests of their
        owners, who may have lost the right since.
        """
        who = client.principal
        if self.principal_named is None:
            if who is INSIDE:
                return ""
            return "the broker has no access file, so it knows no users to make requests for"
        if who is not INSIDE and (denied := lacks_to_act(who, user, service)):
            return denied
        owner = self.principal_named(user.decode(errors="replace"))
        if service not in owner.allowed and (denied := lacks_to_call(owner, service, body)):
            if owner.is_revoked and who is not INSIDE:
                return f"the broker's access file has no user {owner.name!r}, for whom {who} asks"
            return denied
        if who is not INSIDE:
            self._admit(client, user, now)
        return ""

    def user_of(self, client: Client, user: bytes) -> Principal:
        """Return for whom a client makes a request: the user that it names, or itself."""
        if not user or self.principal_named is None:
            return client.principal
        return self.principal_named(user.decode(errors="replace"))

    def _admit(self, client: Client, user: bytes, now: float) -> None:
        """Journal that a client may act for a user, if that is news ([for-journaled])."""
        act = client.principal_name, user
        if act not in self._acts:
            if len(self._acts) >= _ACTS_MAX:
                self._acts.clear()
            self._acts.add(act)
            self._observer.access(Kind.ADMITTED, client.principal, "act", user, now)

    def lacks_still(self, pending: PendingRequest, now: float) -> str:
        """Return which right is missing now for a request that was accepted, and journal it."""
        client, name = pending.client, pending.service.name
        user = pending.principal
        if user == client.principal_name or client.principal is INSIDE:
            if denied := lacks_to_call(client.principal, name, pending.body):
                self.deny(client, "call", name, denied, now)
        elif denied := self.lacks_for(client, user, name, pending.body, now):
            self.deny(client, "act", user, denied, now)
        return denied

    def deny(self, client: Client, verb: str, name: bytes, reason: str, now: float) -> None:
        """Journal that a client was denied something."""
        self._observer.access(Kind.DENIED, client.principal, verb, name, now, reason)

    # --- quotas ---------------------------------------------------------------------------------
    def exceeds(self, client: Client, usage: Usage, name: bytes, now: float) -> str:
        """Return which limit forbids one more request for the service `name`; "" if none. Cheap
        only if `usage` has no room."""
        if why := usage.admit(name, now):
            self._tell_quota(client, usage, name, why, now)
        return why

    def spend(self, client: Client, name: bytes, now: float) -> str:
        """Count a request that is answered at once; return why the rate forbids it, or ""."""
        usage = client.usage
        if usage is None or not (why := usage.spend(now)):
            return ""
        self._tell_quota(client, usage, name, why, now)
        return why

    def _tell_quota(self, client: Client, usage: Usage, name: bytes, why: str, now: float) -> None:
        if usage.is_news(now):
            self.deny(client, "quota", name, why, now)

    def review(self, clients: Iterable[Client]) -> None:
        """Apply changed quotas, and journal anew who acts for whom."""
        self._acts.clear()
        for usage in self.usages.values():
            usage.renew()
        for client in clients:
            self._apply_quota(client)
        for principal in [each for each in self.usages if each.is_revoked]:
            del self.usages[principal]

    def _apply_quota(self, client: Client) -> None:
        """Begin to count what a client uses, if its principal has got a quota."""
        usage = usage_for(self.usages, client.principal)
        if client.usage is None and usage is not None:
            client.usage = usage
            usage.named += client.named
            usage.room -= len(client.pending)
            usage.size += client.size
            for pending in client.pending.values():
                if pending.joined is not None:
                    usage.joined += size_of(pending.joined)
        if client.usage is not None and client.usage.groups_max:
            for pending in client.pending.values():
                client.usage.join_group(pending.service.name)

    # --- call ids -------------------------------------------------------------------------------
    def own_call_id(self, client: Client, request_id: int, call_id: bytes, now: float) -> bytes:
        """Return a request's call id, or a new one if it is of another owner ([call-id-owner])."""
        origin, name = call_id[:ORIGIN_SIZE], client.principal_name
        owner = self._origin_owners.setdefault(origin, name)
        if owner != name:
            why = f"the call ids {origin.hex()} belong to {owner.decode(errors='replace')}"
            self.deny(client, "call id", b"", why, now)
            return client.origin + request_id.to_bytes(8, "big")
        origins = self._origins.setdefault(name, OrderedDict())
        origins[origin] = None
        origins.move_to_end(origin)
        if len(origins) > _ORIGINS_MAX:  # an owner pushes out none but its own
            del self._origin_owners[origins.popitem(last=False)[0]]
        client.known_origin = origin
        self._observer.access(
            Kind.ADMITTED, client.principal, "call id", b"", now, f"call ids {origin.hex()}"
        )
        return call_id
