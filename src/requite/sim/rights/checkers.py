"""Check the rights and quotas of principals: I16 to I19.

The checkers know the users of the access file as the broker has last read it, and which process has
which user. The rights of a principal are those at the moment of an event.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping
from math import inf
from typing import TYPE_CHECKING, Any, Final

from requite.chronicle import MADE_UP, ORIGIN_SIZE
from requite.principal import Quota, Verb
from requite.sim.kernel.history import Checker, History
from requite.sim.majordomo.checkers import CHECKERS
from requite.sim.majordomo.checkers.fairness import Facts, FairToWorkers

if TYPE_CHECKING:
    from requite.access.file import User
    from requite.sim.rights.knobs import MemberSpec, RightsKnobs
    from requite.sim.rights.watch import Held

_IDLE_S: Final = 3.0  # after which a principal may send a second's worth of requests
_RATE_MAX: Final = 100  # more than twice every rate


class RightsChecker(Checker):
    """Knows who has which rights now."""

    def __init__(self, history: History) -> None:
        super().__init__(history)
        self._users: Mapping[str, User] = {}

    def rights_changed(self, users: Mapping[str, User]) -> None:
        """Record the users of the access file."""
        self._users = users

    def _user_of(self, process: str) -> str:
        """Return the user of a process."""
        knobs: RightsKnobs = self.knobs
        return knobs.member(process).user

    def _may(self, process: str, verb: Verb, name: str) -> bool:
        """Whether a process has a right now."""
        user = self._users.get(self._user_of(process))
        return user is not None and user.rights.match(verb, name) is not None


class NoOneElses(RightsChecker):
    """Replies go to the principal that asked, and requests carry its name and call ids."""

    invariant = "I16"
    sentence = (
        "no reply, partial or stored reply reaches a principal other than the one that asked; a"
        " handler is told that one's name"
    )

    def __init__(self, history: History) -> None:
        super().__init__(history)
        self._owners: dict[bytes, str] = {}  # by the first half of their call ids

    def broker_started(self, _broker: Any) -> None:
        """Reset: a new broker knows no owners of call ids."""
        self._owners.clear()

    def client_told(self, client: str, asker: str) -> None:
        """Check the receiver of a reply."""
        if self._user_of(client) != self._user_of(asker):
            self.violate(f"{client} gets a reply to {asker}, which is another principal")

    def principal_named(self, worker: MemberSpec, principal: str, asker: str) -> None:
        """Check the principal that a handler is told."""
        expected = self._user_of(asker) if worker.features and asker else ""
        if principal != expected:
            self.violate(f"{worker.name} is told that {asker} is {principal!r}, not {expected!r}")

    def request_given(self, worker: str, _service: str, asker: str, call_id: bytes) -> None:
        """Check that one principal uses a call id: stored replies are found by it."""
        origin = call_id[:ORIGIN_SIZE]
        if not asker or not any(origin) or origin[0] & MADE_UP:
            return
        user = self._user_of(asker)
        owner = self._owners.setdefault(origin, user)
        if owner != user:
            self.violate(f"{worker} gets a request of {asker} under a call id of {owner}")


class OnlyByRight(RightsChecker):
    """The broker dispatches only what its client may call, to workers that may serve it."""

    invariant = "I17"
    sentence = "nobody serves a name without the right, and no request without the right runs"

    def request_given(self, worker: str, service: str, asker: str, _call_id: bytes) -> None:
        """Check a dispatch."""
        if not self._may(worker, "serve", service):
            self.violate(f"{worker} gets a request of {asker}, but may not serve {service}")
        if asker and not self._may(asker, "call", service):
            self.violate(f"a request of {asker}, which may not call {service}, goes to {worker}")


class _Use:
    """What the broker holds for one user: the sizes of its requests, by client and id.

    `accepted_at` has the times of the last requests, since the quota has changed at `changed_at`.
    `beyond`: the clients that have been granted a request beyond the quota. `denied_at`: when it
    was last denied a request, which counts towards its requests per second, too.
    """

    def __init__(self) -> None:
        self.sizes: dict[tuple[bytes, int], int] = {}
        self.beyond: set[bytes] = set()
        self.denied_at = -inf
        self.begin_anew(-inf)

    def begin_anew(self, now: float) -> None:
        """Record a change of the quota."""
        self.changed_at = now
        self.accepted_at: deque[float] = deque(maxlen=_RATE_MAX)

    def count_since(self, instant: float) -> int:
        """Return how many requests were accepted since `instant`."""
        return sum(at >= instant for at in self.accepted_at)


class WithinQuota(RightsChecker):
    """The broker holds at most its quota for each principal, and refuses nothing below it.

    A client that gets no negative replies is not read from beyond the quota: each of its
    connections may have one more request.
    """

    invariant = "I18"
    sentence = "memory held for one principal stays below its quota, whatever it sends"

    def __init__(self, history: History) -> None:
        super().__init__(history)
        self._uses: defaultdict[str, _Use] = defaultdict(_Use)
        self._owners: dict[tuple[bytes, int], str] = {}

    def broker_started(self, _broker: Any) -> None:
        """Reset: a new broker holds nothing."""
        self._uses.clear()
        self._owners.clear()

    def rights_changed(self, users: Mapping[str, User]) -> None:
        """Record the users; count the requests of those with another quota anew."""
        for name, use in self._uses.items():
            if name not in users or users[name].quota != self._quota(name):
                use.begin_anew(self.history.world.now)
        super().rights_changed(users)

    def request_held(self, held: Held) -> None:
        """Check a request that the broker accepts."""
        user = self._user_of(held.process)
        use = self._uses[user]
        limit = self._limit(user, use)
        client = held.key[0]
        if not limit:
            use.beyond.clear()
        elif held.is_told or client in use.beyond:
            self.violate(f"a request of {held.process} is accepted, but {user} has its {limit}")
        else:
            use.beyond.add(client)
        use.sizes[held.key] = held.size
        use.accepted_at.append(self.history.world.now)
        self._owners[held.key] = user

    def request_let_go(self, key: tuple[bytes, int]) -> None:
        """Record the end of a request."""
        user = self._owners.pop(key, None)
        if user is not None:
            del self._uses[user].sizes[key]

    def request_denied(self, client: str, _service: str, _is_for_user: bool) -> None:
        """Record a request that is not held, but counts."""
        self._uses[self._user_of(client)].denied_at = self.history.world.now

    def quota_reached(self, client: str, limit: str) -> None:
        """Check that a refused request would have exceeded the quota."""
        user = self._user_of(client)
        use, quota, now = self._uses[user], self._quota(user), self.history.world.now
        if limit == "requests" and len(use.sizes) < quota.requests:
            held = f"{len(use.sizes)} of {quota.requests} requests"
            self.violate(f"{client} is refused a request, but {user} has {held}")
        if limit == "bytes" and not use.sizes:
            self.violate(f"{client} is refused a request for its bytes, but {user} has none")
        idle_since = now - _IDLE_S
        has_asked = use.denied_at >= idle_since or use.count_since(idle_since) > 0
        is_idle = use.changed_at < idle_since and not has_asked
        if limit == "requests_per_s" and is_idle:
            self.violate(f"{client} is refused a request, but {user} made none for {_IDLE_S} s")

    def _limit(self, user: str, use: _Use) -> str:
        """Return the limit that a user has reached; "" if none."""
        quota = self._quota(user)
        if quota.requests and len(use.sizes) >= quota.requests:
            return f"{quota.requests} requests"
        if quota.bytes and sum(use.sizes.values()) >= quota.bytes:
            return f"{quota.bytes} bytes"
        lately = use.count_since(self.history.world.now - 1.0)
        if quota.requests_per_s and lately > 2 * quota.requests_per_s:
            return f"{quota.requests_per_s} requests per second, twice"
        return ""

    def _quota(self, user: str) -> Quota:
        found = self._users.get(user)
        return Quota() if found is None else found.quota


class UnharmedByReloads(RightsChecker):
    """Whoever keeps its rights is not denied, and keeps its connections."""

    invariant = "I19"
    sentence = "a reload under load fails no call of a principal that keeps its rights"

    def request_denied(self, client: str, service: str, is_for_user: bool) -> None:
        """Check a denied request. Nobody has the right to make one for a user."""
        if not is_for_user and self._may(client, "call", service):
            self.violate(f"{client} may call {service}, but is denied it")

    def worker_denied(self, worker: str, service: str) -> None:
        """Check a worker that is disconnected for lack of a right."""
        if self._may(worker, "serve", service):
            self.violate(f"{worker} may serve {service}, but is disconnected")

    def principal_expelled(self, process: str) -> None:
        """Check a process that is disconnected for lack of a user."""
        if self._user_of(process) in self._users:
            self.violate(f"{process} has its user, but is disconnected")


class FairByRight(FairToWorkers, RightsChecker):
    """A worker without the right to serve has no turn, even before it is disconnected."""

    def __init__(self, history: History) -> None:
        super().__init__(history)
        self._services: dict[bytes, str] = {}  # by connection of a worker

    def worker_joined(self, facts: Facts, name: str) -> None:
        """Record a worker and its service."""
        super().worker_joined(facts, name)
        self._services[facts["worker"]] = facts["service"].decode()

    def rights_changed(self, users: Mapping[str, User]) -> None:
        """Record the users; expect no dispatch to workers without the right."""
        super().rights_changed(users)
        for identity, worker in self._workers.items():
            if not self._may(worker.name, "serve", self._services[identity]):
                worker.capacity = 0
                self._look(identity)


RIGHTS_CHECKERS: Final[tuple[type[Checker], ...]] = (
    *(each for each in CHECKERS if each is not FairToWorkers),
    FairByRight,
    NoOneElses,
    OnlyByRight,
    WithinQuota,
    UnharmedByReloads,
)
