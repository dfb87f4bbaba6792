"""Back-pressure for clients whose dialect has no negative reply: the broker stops reading.

MDP 0.1 and 0.2 have no negative reply. Where a client of MDP 0.3 gets OVERLOADED, the broker
accepts a request of these dialects beyond the limit, and stops reading from its client until there
is room:

| limit | the broker reads from a client again |
|---|---|
| `client_pending_max` | when fewer requests of the client are pending |
| `client_pending_bytes_max` | when the client's pending requests take fewer bytes |
| `pending_bytes_max` | when all pending requests take fewer bytes; first come, first served |
| `queue_max` | when the queue is shorter; first come, first served |
| `client_services_max` | when fewer of the services that the client has named have no worker |
| `services_max` | when it forgets a service, or the client's requests at new services have ended |
| the quota of a principal | when its principal is within the quota; first come, first served |

Management requests (`mmi.`) are paced, for clients of each dialect. A turn answers one of them per
client. If the same read contained more messages, these wait in the client's `backlog`, and the
broker does not read from the client for about a millisecond. Requests that are refused because of a
quota or a missing right are paced in the same way: refusing costs about as much as serving, so a
principal that floods the broker would delay the requests of others. The clients that wait for
requests which read whole tables take turns; and so do those of each principal, for all others.
Heartbeats, and cancellations of requests that have ended, are paced beyond 16 in one read.

Clients that are read from again fill each free slot of a queue. So while a client waits for a
queue, a client of MDP 0.3 without a request in that queue is not refused: it may have one request
there, and since clients take turns, it is served soon.

One read can name thousands of new services. So a client has at most 16 requests at services beyond
`services_max`, and one beyond `client_services_max`; the rest of the read waits in its `backlog`.
Likewise a client has at most one request beyond the quota of its principal; when that happens,
all clients of the principal that cannot be told are not read from, and new peers of it neither,
unless they have announced features (they can be told), or the principal may serve (the requests may
wait for a worker).

Nothing is dropped, and the broker holds at most what the limits allow plus one read per client.
With `tell_old_clients`, these clients get negative replies, and are always read from.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection
from typing import Any, Final, TypeAlias

from requite.core.timers import Timers
from requite.engine import Effect, Peer, ResumeReading, StopReading, Warn
from requite.principal import Principal
from requite.protocols.majordomo.directory import TOO_MANY, Directory
from requite.protocols.majordomo.management import Management
from requite.protocols.majordomo.parties import Client, Load, PendingRequest, Service
from requite.protocols.majordomo.policy import BrokerPolicy
from requite.protocols.majordomo.quotas import Usage

Limit: TypeAlias = Client | Load | Service | Directory | Management | Usage | Principal
"""The exceeded limit: requests of a client, bytes of all requests, requests in a service's queue,
services, management requests in one read, the quota of a principal, or its refused requests in one
read."""

# Clients that wait for one limit are read from again in portions, so that the requests of the first
# ones can reach the limit before the others are read.
_PACE_S: Final = 0.001
_EXTRA_MAX: Final = 16  # requests of one client at services beyond the limit
_PORTION: Final = 64  # the divisor: 1/64 of the waiting clients, plus one


class Pushback:
    """Stops reading from clients, and resumes. Effects go to `out`.

    `unread` are the clients that are not read from, and `held` the new peers; the hot path checks
    whether these are empty. The broker's timers use this object as the key of the timer that calls
    `due`.
    """

    def __init__(
        self,
        policy: BrokerPolicy,
        directory: Directory,
        load: Load,
        timers: Timers[Any],
        out: list[Effect],
    ) -> None:
        self._policy = policy
        self._directory = directory
        self._load = load
        self._timers = timers
        self._out = out
        self.unread: dict[Client, None] = {}
        self.ready: dict[Client, None] = {}  # unread clients whose backlog can be handled
        self._lines: dict[Limit, dict[Client, None]] = {}  # waiting clients, in order
        self._extra: dict[Client, dict[PendingRequest, None]] = {}  # at services beyond the limit
        self.held: dict[Usage, OrderedDict[Peer, None]] = {}  # new peers
        self._paced: dict[Client, Management | Principal] = {}  # within one turn

    def can_tell(self, client: Client) -> bool:
        """Whether a client can get a negative reply."""
        return client.dialect.has_ids or self._policy.tell_old_clients

    def is_waited_for(self, service: Service) -> bool:
        """Whether a client is unread because the queue of a service is full."""
        return service in self._lines

    # --- a limit is reached ---------------------------------------------------------------------
    def stop(self, client: Client, limit: Limit, why: str) -> None:
        """Stop reading from a client, until there is room below `limit`."""
        if client not in self.unread:
            self.unread[client] = None
            who = f"an MDP {client.dialect.version} client ({client.address.hex()})"
            text = f"stopped reading from {who}: {why}"
            self._out += (Warn("pushback", text), StopReading(client.peer))
        client.limits[limit] = None
        if limit is not client:
            self._lines.setdefault(limit, {})[client] = None

    def watch(self, client: Client) -> None:
        """Stop reading from a client, too, when another one of its principal exceeds the quota, if
        it cannot be told: each would send one more request."""
        if client.usage is not None and not self.can_tell(client):
            client.usage.untold[client] = None

    def hold(self, peer: Peer, usage: Usage | None, features: Collection[str]) -> None:
        """Do not read from a new peer while others of its principal wait for the quota: its first
        request would be one more beyond it. One that may be a worker is read from: without it, the
        requests that fill the quota may have no worker. So is one that has announced features, as
        clients of MDP 0.3 do: it can be told."""
        if usage is None or usage not in self._lines or features:
            return
        if not usage.principal.may_serve:
            self.held.setdefault(usage, OrderedDict())[peer] = None
            self._out.append(StopReading(peer))

    def _let_in(self, usage: Usage, now: float) -> None:
        """Read from the next new peer that is held, if nobody waits and there is room."""
        if usage in self._lines:
            return
        if not self._has_room(usage, now):
            self._wake_for_rate(usage, now)
            return
        held = self.held[usage]
        self._out.append(ResumeReading(held.popitem(last=False)[0]))
        if held:
            self._wake_by(now + _PACE_S)
        else:
            del self.held[usage]

    def introduced(self, peer: Peer) -> None:
        """Read from a new peer whose first message has arrived with its handshake."""
        if self.lost(peer):
            self._out.append(ResumeReading(peer))

    def lost(self, peer: Peer) -> bool:
        """Remove a new peer that has left; return whether it was held."""
        for usage, held in self.held.items():
            if held.pop(peer, self) is None:
                if not held:
                    del self.held[usage]
                return True
        return False

    def stop_for(self, client: Client, usage: Usage, why: str, now: float) -> None:
        """Stop reading from a client until its principal is within its quota again, and from all
        others of that principal that cannot be told."""
        self.stop(client, usage, why)
        for other in usage.untold:
            if usage not in other.limits:
                self.stop(other, usage, why)
        self._wake_by(now + _PACE_S)

    def stop_naming(self, pending: PendingRequest) -> None:
        """Stop reading from a client that has named a service beyond the limit."""
        self._extra.setdefault(pending.client, {})[pending] = None
        self.stop(pending.client, self._directory, TOO_MANY)

    def is_far_beyond(self, client: Client) -> bool:
        """Whether the rest of what was read from a client must wait: it has the maximum of requests
        at services beyond a limit or beyond a quota, or has just had a costly answer or a
        refusal."""
        return (
            client in self._paced
            or client.usage in client.limits
            or len(self._extra.get(client, ())) >= _EXTRA_MAX
            or client.named > self._policy.client_services_max
        )

    # --- pace -----------------------------------------------------------------------------------
    def pace(self, client: Client, limit: Management | Principal) -> None:
        """Delay the messages after a management request, or after a refused request (`pause`)."""
        self._paced[client] = limit
        client.limits.setdefault(limit)

    def pause(self, client: Client, now: float) -> None:
        """Stop reading from a paced client for a moment, if its backlog is not empty."""
        limit = self._paced.pop(client, None)
        if limit is None:
            return
        if not client.backlog:
            self._leave(client, limit)
            return
        self.stop(client, limit, "it pipelines management requests, or requests that are refused")
        self._wake_by(now + _PACE_S)

    # --- resuming -------------------------------------------------------------------------------
    def settled(self, pending: PendingRequest, now: float) -> None:
        """Handle the end of a request, which may make room."""
        client = pending.client
        extra = self._extra.get(client)
        if extra is not None and pending in extra:
            del extra[pending]
            self._directory.retire(pending.service, now)
            if not extra:
                self._release(client, self._directory)
        if (
            client in client.limits
            and len(client.pending) < self._policy.client_pending_max
            and client.size < self._policy.client_pending_bytes_max
            and client.named < self._policy.client_services_max
        ):
            self._release(client, client)
        self.make_room(self._load, now)
        if client.usage is not None:
            self.make_room(client.usage, now)

    def make_room(self, limit: Load | Service | Directory | Usage, now: float) -> None:
        """Handle room for bytes, in a queue, or for a service: resume the first waiting client."""
        line = self._lines.get(limit)
        if not (line or limit in self.held) or not self._has_room(limit, now):
            return
        if line:
            self._release(next(iter(line)), limit)
        if line or limit in self.held:
            self._wake_by(now + _PACE_S)

    def due(self, now: float) -> None:
        """Resume further waiting clients while there is room."""
        for limit, line in [*self._lines.items()]:
            if self._has_room(limit, now):
                for client in [*line][: 1 + len(line) // _PORTION]:
                    self._release(client, limit)
                if line:
                    self._wake_by(now + _PACE_S)
            elif isinstance(limit, Usage):
                self._wake_for_rate(limit, now)
        for usage in [*self.held]:
            self._let_in(usage, now)

    def _wake_for_rate(self, usage: Usage, now: float) -> None:
        """Call `due` when the rate of a principal allows a request. Other limits make room when a
        request ends."""
        if wait_s := usage.wait_s(now):
            self._wake_by(now + max(_PACE_S, wait_s))

    def _wake_by(self, at: float) -> None:
        """Call `due` at that instant, or before: clients wait there for different limits."""
        planned = self._timers.at(self)
        if planned is None or at < planned:
            self._timers.set(self, at)

    def _has_room(self, limit: Limit, now: float) -> bool:
        if isinstance(limit, Usage):
            return limit.has_room(now)
        if isinstance(limit, Service):
            return limit.queue.length < self._policy.queue_max
        if isinstance(limit, Load):
            return limit.size < self._policy.pending_bytes_max
        if isinstance(limit, Management | Principal):
            return True
        return not self._directory.is_over_full

    def _release(self, client: Client, limit: Limit) -> None:
        if limit not in client.limits:
            return
        self._leave(client, limit)
        if client.limits:
            return
        if client.backlog:
            self.ready[client] = None
        else:
            self.resume(client)

    def resume(self, client: Client) -> None:
        """Read from a client again."""
        del self.unread[client]
        self._out.append(ResumeReading(client.peer))

    def _leave(self, client: Client, limit: Limit) -> None:
        del client.limits[limit]
        if limit is self._directory:
            del self._extra[client]
        line = self._lines.get(limit, {})
        if line.pop(client, self) is None and not line:
            del self._lines[limit]

    def review(self, now: float) -> None:
        """Handle changed quotas and rights: clients that wait may have room, and new peers that
        are held may be workers."""
        for usage in [each for each in self.held if each.principal.may_serve]:
            self._out.extend(map(ResumeReading, self.held.pop(usage)))
        if self.held or any(isinstance(limit, Usage) for limit in self._lines):
            self._wake_by(now)

    # --- ends -----------------------------------------------------------------------------------
    def resume_all(self) -> None:
        """Resume all clients: the draining broker refuses new requests."""
        for client in [*self.unread]:
            for limit in [*client.limits]:
                self._release(client, limit)
        for held in self.held.values():
            self._out.extend(map(ResumeReading, held))
        self.held.clear()
        self._timers.clear(self)

    def forget(self, client: Client, now: float) -> None:
        """Remove a client that has left."""
        if client.usage is not None:
            client.usage.untold.pop(client, None)
        if self.unread.pop(client, self) is self:
            return
        self.ready.pop(client, None)
        client.backlog = ()
        for pending in self._extra.get(client, ()):
            self._directory.retire(pending.service, now)
        for limit in [*client.limits]:
            self._leave(client, limit)
        if not (self._lines or self.held):
            self._timers.clear(self)
