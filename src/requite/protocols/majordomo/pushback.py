"""Clients that are not read from, because a limit is reached and their dialect cannot say so.

MDP 0.1 and 0.2 have no negative reply. Where a client of MDP 0.3 gets OVERLOADED, the broker
accepts a request of these dialects beyond the limit, and stops reading from its client until there
is room:

| limit | the broker reads from a client again |
|---|---|
| `client_pending_max` | when fewer requests of the client are pending |
| `queue_max` | when the queue is shorter, in the order in which it stopped reading from clients |
| `services_max` | when it forgets a service, or the client's requests at new services have ended |

Clients that are read from again fill each place in a queue that becomes free. So while a client
waits for a queue, one of MDP 0.3 that has nothing in that queue is not refused: it may have one
request there, and since clients take turns it is served soon.

One read can name thousands of new services. So a client has at most 16 requests at services beyond
the limit; the rest of the read waits in its `backlog`.

So nothing is dropped, and the broker holds at most what the limits allow and, of each such client,
what one read brings. With `tell_old_clients` these clients can be told, and are read from always.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

from requite.core.timers import Timers
from requite.engine import Effect, ResumeReading, StopReading, Warn
from requite.protocols.majordomo.directory import TOO_MANY, Directory
from requite.protocols.majordomo.parties import Client, PendingRequest, Service
from requite.protocols.majordomo.policy import BrokerPolicy

Limit: TypeAlias = Client | Service | Directory
"""What there is too much of: requests of a client, requests in the queue of a service, services."""

# Clients that wait for one limit are read from again in portions, so that what the first ones bring
# can reach the limit before the others are read.
_PACE_S: Final = 0.001
_EXTRA_MAX: Final = 16  # requests of one client at services beyond the limit
_PORTION: Final = 64  # a part of those that wait, and one


class Pushback:
    """Stops reading from clients, and resumes. Effects go to `out`.

    `unread` are the clients that are not read from; the hot path asks whether there are any. The
    broker's timers wake it under its own name.
    """

    def __init__(
        self,
        policy: BrokerPolicy,
        directory: Directory,
        timers: Timers[Any],
        out: list[Effect],
    ) -> None:
        self._policy = policy
        self._directory = directory
        self._timers = timers
        self._out = out
        self.unread: dict[Client, None] = {}
        self.ready: dict[Client, None] = {}  # those of them whose backlog can be handled
        self._lines: dict[Limit, dict[Client, None]] = {}  # those that wait, the first one longest
        self._extra: dict[Client, dict[PendingRequest, None]] = {}  # at services beyond the limit

    def can_tell(self, client: Client) -> bool:
        """Whether a client can be told that its request is refused."""
        return client.dialect.has_ids or self._policy.tell_old_clients

    def is_waited_for(self, service: Service) -> bool:
        """Whether a client is not read from because the queue of a service is full."""
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

    def stop_naming(self, pending: PendingRequest) -> None:
        """Stop reading from a client that has named a service beyond the limit."""
        self._extra.setdefault(pending.client, {})[pending] = None
        self.stop(pending.client, self._directory, TOO_MANY)

    def is_far_beyond(self, client: Client) -> bool:
        """Whether a client has named so many services beyond the limit that the rest must wait."""
        return len(self._extra.get(client, ())) >= _EXTRA_MAX

    # --- there is room again --------------------------------------------------------------------
    def settled(self, pending: PendingRequest, now: float) -> None:
        """Note that a request has ended."""
        client = pending.client
        extra = self._extra.get(client)
        if extra is not None and pending in extra:
            del extra[pending]
            self._directory.retire(pending.service, now)
            if not extra:
                self._release(client, self._directory)
        if client in client.limits and len(client.pending) < self._policy.client_pending_max:
            self._release(client, client)

    def make_room(self, limit: Service | Directory, now: float) -> None:
        """Note that a request has left a queue, or a service was forgotten."""
        line = self._lines.get(limit)
        if line and self._has_room(limit):
            self._release(next(iter(line)), limit)
            if line and self not in self._timers:
                self._timers.set(self, now + _PACE_S)

    def due(self, now: float) -> None:
        """Read from more of those that wait where there is still room."""
        for limit, line in [*self._lines.items()]:
            if self._has_room(limit):
                for client in [*line][: 1 + len(line) // _PORTION]:
                    self._release(client, limit)
                if line:
                    self._timers.set(self, now + _PACE_S)

    def _has_room(self, limit: Limit) -> bool:
        if isinstance(limit, Service):
            return limit.queue.length < self._policy.queue_max
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
        if limit is not client:
            line = self._lines[limit]
            del line[client]
            if not line:
                del self._lines[limit]

    # --- ends -----------------------------------------------------------------------------------
    def resume_all(self) -> None:
        """Read from all again: the broker drains, and refuses what comes."""
        for client in [*self.unread]:
            for limit in [*client.limits]:
                self._release(client, limit)
        self._timers.clear(self)

    def forget(self, client: Client, now: float) -> None:
        """Forget a client that has left."""
        if self.unread.pop(client, self) is self:
            return
        self.ready.pop(client, None)
        client.backlog.clear()
        for pending in self._extra.get(client, ()):
            self._directory.retire(pending.service, now)
        for limit in [*client.limits]:
            self._leave(client, limit)
        if not self._lines:
            self._timers.clear(self)
