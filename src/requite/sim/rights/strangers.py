"""Strangers: processes that try what they have no right to.

They follow the protocol, in every dialect, with and without the features of MDP 0.3 that concern
rights. Each connection tries one thing; what is denied must end that connection or request only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain, count, cycle
from random import Random
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from requite.chronicle import NO_CALL
from requite.engine import Effect, Engine, Received, Send
from requite.errors import RemoteViolation
from requite.framing import Framing
from requite.protocols.majordomo.dialects import PeerRole, by_version, detect
from requite.protocols.majordomo.wire import (
    ClientRequest,
    Dialect,
    Ready,
    WorkerFinal,
    WorkerHeartbeat,
    WorkerRequest,
)
from requite.sim.kernel.garbage import GarbageEngine, Messages
from requite.sim.majordomo.intruder import Intruder
from requite.sim.majordomo.parties import Stage
from requite.sim.rights.knobs import RightsKnobs
from requite.sim.rights.processes import Member, origin_of
from requite.sim.rights.watch import ASKED_BY

if TYPE_CHECKING:
    from requite.sim.kernel.stream import SimStream

OWN: Final = "strange"
"""The service that strangers may serve and call, with all names below it."""

_NAMED_P: Final = 0.2  # how often a stranger announces the identity of another process
_VERSIONS: Final = ("0.3", "0.3", "0.2", "0.1")
_RESERVED: Final = (b"titanic.request", b"titanic.reply", b"mmi.stats", b"alpha/!managers")
_MANAGEMENT: Final = ("mmi.stats", "mmi.workers", "mmi.under", "titanic.list", "titanic.reply")


class _Attack(NamedTuple):
    """What an attack needs: its randomness, its dialect, the names of others, and its own."""

    rng: Random
    dialect: Dialect
    services: Sequence[str]
    clients: Sequence[str]
    users: Sequence[str]
    name: bytes

    def request(
        self,
        service: str,
        number: int,
        size: int = 0,
        call_id: bytes = NO_CALL,
        user: str = "",
    ) -> Any:
        """Return a request of the stranger, in the name of a user if one is given."""
        body = [ASKED_BY + self.name, bytes(size)]
        timeout_ms = self.rng.choice((0, 500, 2000))
        return ClientRequest(
            service.encode(), body, number, timeout_ms, 0, b"", call_id, user.encode()
        )

    def encode(self, commands: Sequence[Any]) -> Messages:
        """Return commands as messages."""
        return [self.dialect.encode(command) for command in commands]


def _take_over(attack: _Attack) -> Messages:
    """Register for a service of others; go on as if that were granted."""
    name = attack.rng.choice(attack.services).encode()
    return attack.encode([Ready(name, 8, 500, 0), WorkerHeartbeat(500), WorkerHeartbeat(500)])


def _take_reserved_name(attack: _Attack) -> Messages:
    return attack.encode([Ready(attack.rng.choice(_RESERVED), 1, 500, 0)])


def _serve_own(attack: _Attack) -> Messages:
    return attack.encode([Ready(OWN.encode(), 4, 500, 0)])


def _trespass(attack: _Attack) -> Messages:
    """Call services of others, again and again; every other time in the name of a user."""
    names = [attack.rng.choice((*attack.services, OWN)) for _ in range(attack.rng.randint(1, 8))]
    users = cycle(chain.from_iterable(("", user) for user in attack.users))
    requests = zip(count(1), names, users, strict=False)
    return attack.encode([attack.request(name, i, user=user) for i, name, user in requests])


def _manage(attack: _Attack) -> Messages:
    return attack.encode([attack.request(name, i) for i, name in enumerate(_MANAGEMENT, start=1)])


def _reuse_call_ids(attack: _Attack) -> Messages:
    """Call with the call ids of others, whose replies a service may have stored."""
    origin = origin_of(attack.rng.choice(attack.clients))
    return attack.encode(
        [
            attack.request(name, i, call_id=origin + i.to_bytes(8, "big"))
            for i, name in enumerate((*attack.services, OWN), start=1)
        ]
    )


def _flood(attack: _Attack) -> Messages:
    """Send many requests at once, to one service."""
    name = attack.rng.choice((*attack.services, OWN))
    size = attack.rng.choice((0, 300, 3000))
    count = attack.rng.randint(10, 60)
    return attack.encode([attack.request(name, i, size) for i in range(1, count)])


def _name_services(attack: _Attack) -> Messages:
    """Send requests to services that do not exist."""
    first = attack.rng.randrange(1000)
    return attack.encode([attack.request(f"{OWN}.{first + i}", i) for i in range(1, 20)])


_ATTACKS: Final[tuple[Callable[[_Attack], Messages], ...]] = (
    _take_over,
    _take_over,
    _take_reserved_name,
    _serve_own,
    _serve_own,
    _trespass,
    _manage,
    _reuse_call_ids,
    _flood,
    _flood,
    _name_services,
)


class _StrangeEngine(GarbageEngine):
    def __init__(self, rng: Random, knobs: RightsKnobs, name: str) -> None:
        super().__init__(rng)
        self._services = knobs.services
        self._clients = [client.name for client in knobs.clients]
        self._users = [user.name for user in knobs.users]
        self._name = name.encode()

    def play(self, peer: Any) -> Messages:
        """See `GarbageEngine.play`."""
        dialect = by_version(self.rng.choice(_VERSIONS))
        given = (self._services, self._clients, self._users, self._name)
        attack = _Attack(self.rng, dialect, *given)
        return self.rng.choice(_ATTACKS)(attack)

    def answer(self, event: Received) -> Iterator[Effect]:
        """Answer each request, as a worker does."""
        for message in event.messages:
            found = detect(list(message))
            if found is None or found[0] is not PeerRole.WORKER or event.peer not in self.peers:
                continue
            try:
                command = found[1].decode_to_worker(list(message))
            except RemoteViolation:
                continue
            if isinstance(command, WorkerRequest):
                final = WorkerFinal(command.address, command.body, command.dispatch_id, 0)
                yield Send(event.peer, found[1].encode(final))


class Stranger(Intruder, Member):
    """A process that tries what it has no right to."""

    def __init__(self, name: str, stage: Stage) -> None:
        super().__init__(name, stage)
        assert isinstance(stage.knobs, RightsKnobs)
        self._knobs = stage.knobs
        self._others = [each.name.encode() for each in self._knobs.members if each.name != name]

    def make_engine(self) -> Engine:
        """Return an engine that attacks."""
        return _StrangeEngine(self.rng, self._knobs, self.name)

    def make_framing(self, stream: SimStream, place: Any, accepted: bool) -> Framing:
        """Return ZMTP, sometimes with the identity of another peer."""
        is_named = self.rng.random() < _NAMED_P
        self.identity = self.rng.choice(self._others) if is_named else b""
        return Member.make_framing(self, stream, place, accepted)
