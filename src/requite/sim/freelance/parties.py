"""The processes of a Freelance run: clients, servers, and intruders."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from requite.engine import Engine
from requite.framing import SocketType, Zmtp
from requite.framing.base import Framing
from requite.protocols.freelance.agent import AgentClient
from requite.protocols.freelance.failover import FailoverClient
from requite.protocols.freelance.policy import ClientPolicy, ServerPolicy
from requite.protocols.freelance.server import FreelanceServer
from requite.protocols.freelance.shotgun import ShotgunClient
from requite.protocols.freelance.wire import Model
from requite.request import Request, RetryPolicy
from requite.sim.freelance.knobs import FlpClientSpec, FlpServerSpec, FreelanceKnobs
from requite.sim.freelance.words import request_body, sent_body
from requite.sim.kernel.cast import Cast
from requite.sim.kernel.fault_injection import NodePair, choose, spare
from requite.sim.kernel.garbage import BaseIntruder, Messages
from requite.sim.kernel.hub import Hub
from requite.sim.kernel.party import ClientParty, Party, ServingParty, watched_zmtp
from requite.sim.kernel.raw_bytes import RawBytes, spoil
from requite.sim.kernel.stage import RunStage
from requite.sim.kernel.workload import Task, parse_task

if TYPE_CHECKING:
    from requite.sim.kernel.stream import SimStream

_SOCKETS: Final = {
    Model.FAILOVER: SocketType.REQ,
    Model.SHOTGUN: SocketType.DEALER,
    Model.AGENT: SocketType.ROUTER,
}
_CLIENTS: Final[dict[Model, Callable[..., Engine]]] = {
    Model.FAILOVER: FailoverClient,
    Model.SHOTGUN: ShotgunClient,
    Model.AGENT: AgentClient,
}
_INTRUDERS: Final = 2


@dataclass(frozen=True, slots=True)
class FlpParts:
    """The engines under test. Mutation tests pass broken ones."""

    clients: Mapping[Model, Callable[..., Engine]] = field(default_factory=lambda: _CLIENTS)
    server: Callable[..., Engine] = FreelanceServer


FlpStage: TypeAlias = RunStage[FreelanceKnobs, FlpParts]


class FlpHub(Hub):
    """An engine under observation; a started request is told with its connection."""

    def task_of(self, message: Any) -> Task | None:
        """See `Hub.task_of`."""
        body = sent_body(self.process.stage.knobs.model, message)
        return None if body is None else parse_task(body)

    def queues(self, message: Any) -> bool:
        """Whether a message is a request."""
        return request_body(self.process.stage.knobs.model, message) is not None

    def _taken(self, token: Any, request: Request) -> None:
        self._tell("request_taken", self, token.peer, [*token.envelope, *request.frames])


class FlpParty(Party[FlpStage]):
    """A client or a server."""

    observer = FlpHub

    def make_framing(self, stream: SimStream, place: Any, accepted: bool) -> Framing:
        """Return ZMTP: a listener is a ROUTER with its address as identity."""
        kind = SocketType.ROUTER if accepted else _SOCKETS[self.stage.knobs.model]
        identity = f"tcp://{self.name}".encode() if accepted else b""
        return watched_zmtp(kind, stream, self.stage.history, identity)


class FlpClient(ClientParty[FlpStage], FlpParty):
    """A client, and its user."""

    def __init__(self, spec: FlpClientSpec, stage: FlpStage) -> None:
        super().__init__(spec, stage, tries_max=tries_max(spec, stage.knobs.model))
        self.in_hand_max = spec.slots
        self.keeps = [(server, server) for server in spec.servers for _ in range(spec.lanes)]

    def make_engine(self) -> Engine:
        """Return a new client engine of the run's model."""
        spec, knobs = self.spec, self.stage.knobs
        policy = ClientPolicy(
            servers=len(spec.servers),
            slots=spec.slots,
            retry=RetryPolicy(attempts=spec.attempts, attempt_timeout=spec.attempt_s),
            ping=knobs.ping,
        )
        return self.stage.parts.clients[knobs.model](policy)


class FlpServer(ServingParty[FlpStage], FlpParty):
    """A server, and its handlers."""

    kind = "server"
    listens = (("", None),)

    def __init__(self, spec: FlpServerSpec, stage: FlpStage) -> None:
        super().__init__(spec, stage)
        self.in_hand_max, self.queue_max = spec.capacity, spec.queue_max

    def make_engine(self) -> Engine:
        """Return a new server engine."""
        spec, model = self.spec, self.stage.knobs.model
        policy = ServerPolicy(model=model, capacity=spec.capacity, queue_max=spec.queue_max)
        return self.stage.parts.server(policy)


def tries_max(spec: FlpClientSpec, model: Model) -> int:
    """Return how often a call may be sent: model two multiplies by the servers; model one tries
    each of several servers once."""
    servers = len(spec.servers)
    if model is Model.SHOTGUN:
        return spec.attempts * servers
    return min(spec.attempts, servers) if model is Model.FAILOVER and servers > 1 else spec.attempts


# --- intruders ------------------------------------------------------------------------------------
def _noise(rng: Random) -> Messages:
    return [[rng.randbytes(rng.choice((0, 4, 40))) for _ in range(rng.randint(1, 4))]]


def _alone(_rng: Random) -> Messages:
    return [[word] for word in (b"", b"PONG", b"PANG", b"ping", b"PINGPING")]


def _pings(rng: Random) -> Messages:
    return [[b"PING"]] * rng.randint(1, 50)


def _envelopes(rng: Random) -> Messages:
    return [[b""], [b"", b""], [b"", b"1"], [b"hop", b""], [b"hop", b"", b"9", rng.randbytes(3)]]


def _strange(rng: Random) -> Messages:
    """Return meaningless requests with various control frames."""
    controls = (b"", b"PING", b"1", rng.randbytes(300))
    return [[control, b"?" * rng.randint(0, 30)] for control in controls]


def _flood(_rng: Random) -> Messages:
    return [[b"1", b"x" * 5000]] * 40


class FlpIntruder(BaseIntruder):
    """An intruder that connects to servers."""

    kinds = (_noise, _alone, _pings, _envelopes, _strange, _flood)

    def __init__(self, name: str, stage: FlpStage) -> None:
        super().__init__(name, stage)
        self._servers = [server.name for server in stage.knobs.servers]

    def aim(self) -> tuple[str, Framing]:
        """See `BaseIntruder.aim`."""
        framing = self._draw_framing(self.rng)
        return self.rng.choice(self._servers), framing

    def _draw_framing(self, rng: Random) -> Framing:
        """Draw ZMTP with a random socket type, or bytes that only resemble it."""
        kind = rng.choice((SocketType.ROUTER, SocketType.DEALER, SocketType.REQ, SocketType.REP))
        if rng.random() < 0.7:
            return Zmtp(
                kind, identity=b"" if kind is SocketType.REP else rng.choice((b"", b"same"))
            )
        opening = Zmtp(kind).opening()
        return RawBytes(rng.choice((opening, spoil(rng, opening), rng.randbytes(100), opening * 2)))


class FlpCast(Cast):
    """Clients and servers."""

    def __init__(self, stage: FlpStage) -> None:
        self.clients = [FlpClient(spec, stage) for spec in stage.knobs.clients]
        self.servers = [FlpServer(spec, stage) for spec in stage.knobs.servers]
        super().__init__(
            stage,
            {"client": self.clients, "server": self.servers},
            [FlpIntruder(f"intruder-{i + 1}", stage) for i in range(_INTRUDERS)],
        )

    def choose_nodes(self, lot: float) -> NodePair:
        """Choose a pair of client and server."""
        return choose(self.clients, lot).name, choose(self.servers, spare(lot)).name
