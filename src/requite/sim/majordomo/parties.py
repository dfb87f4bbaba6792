"""The processes of a Majordomo run: a broker, clients and workers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from requite.core.liveness import HeartbeatPolicy
from requite.dedup.engine import DedupEngine
from requite.engine import Engine, Progressed
from requite.framing import Framing, IdentityTable, SocketType, Zmtp
from requite.pair.standby_gate import StandbyGate
from requite.principal import Credential, Principal
from requite.protocols.binarystar.peer import BinaryStarPeer
from requite.protocols.majordomo.broker import MajordomoBroker
from requite.protocols.majordomo.calls import ClientPolicy
from requite.protocols.majordomo.client import client_engine
from requite.protocols.majordomo.dialects import by_version
from requite.protocols.majordomo.jobs import WorkerPolicy
from requite.protocols.majordomo.worker import MajordomoWorker
from requite.request import Request, RetryPolicy
from requite.shell.host import Host
from requite.shell.link import Link
from requite.shell.owners import unrestricted
from requite.sim.kernel.history import Call
from requite.sim.kernel.knobs import Behaviour
from requite.sim.kernel.party import ClientParty, Party, ServingParty
from requite.sim.kernel.process import Ending
from requite.sim.kernel.stage import RunStage
from requite.sim.kernel.workload import Task
from requite.sim.majordomo.knobs import ClientSpec, Knobs, WorkerSpec
from requite.sim.majordomo.watch import PeerHub, WorkerHub
from requite.sim.majordomo.watch_broker import WatchedBroker
from requite.transport.address import Address, TcpAddress

if TYPE_CHECKING:
    from requite.sim.kernel.stream import SimStream

BROKER: Final = "broker"
_ADDRESS: Final = TcpAddress(BROKER, 5555)


@dataclass(frozen=True, slots=True)
class MajordomoParts:
    """The engines under test. Mutation tests pass broken ones."""

    broker: Callable[..., Engine] = MajordomoBroker
    client: Callable[..., Engine] = client_engine
    worker: Callable[..., Engine] = MajordomoWorker
    dedup: Callable[..., DedupEngine] = DedupEngine
    gate: Callable[..., StandbyGate] = StandbyGate
    half: Callable[..., BinaryStarPeer] = BinaryStarPeer
    host: Callable[..., Host] = Host  # of the broker


@dataclass(slots=True)
class Stage(RunStage[Knobs, MajordomoParts]):
    """The state that all processes of a run share."""

    places: tuple[Address, ...] = (_ADDRESS,)
    """The addresses of the brokers; a host is the name of a node."""


class Broker(Party[Stage]):
    """The broker; its address is the name of its node."""

    kind = "broker"
    hub: WatchedBroker
    observer = WatchedBroker

    def __init__(self, stage: Stage, name: str = BROKER) -> None:
        super().__init__(name, stage)

    def make_engine(self) -> Engine:
        """Return a new broker."""
        return self.stage.parts.broker(self.stage.knobs.broker_policy)

    def make_framing(self, stream: SimStream, place: Any, accepted: bool) -> Framing:
        """Return ZMTP of a ROUTER."""
        return Zmtp(SocketType.ROUTER)

    def make_host(self) -> Host:
        """Return a host with a new broker."""
        self.hub = self.observer(self.make_engine(), self)
        return self.host_of_broker(self.hub, kind=self.stage.parts.host, identify=self.identify)

    def host_of_broker(self, engine: Engine, **options: Any) -> Host:
        """Return a host that knows its peers by their identities."""
        stage = self.stage
        self.identities: IdentityTable[Link] = IdentityTable(
            start=self.rng.getrandbits(32), handover=stage.knobs.handover
        )
        return self.host_of(
            engine,
            stage.knobs.limits,
            lambda: Zmtp(SocketType.ROUTER),
            identities=self.identities,
            **options,
        )

    def identify(self, credential: Credential | None, peer_name: str, place: Any) -> Principal:
        """Return the owner of a connection: everybody may do everything."""
        return unrestricted(credential, peer_name, place)

    def started(self) -> None:
        """Start to listen."""
        super().started()
        self.network.listen(self)
        self.stage.history.tell("broker_started", self)

    def _end(self, what: Ending) -> None:
        super()._end(what)
        self.stage.history.tell("broker_ended", self)


class Peer(Party[Stage]):
    """A process that connects to the broker when its engine asks for a connection."""

    hub: PeerHub
    observer = PeerHub
    identity = b""

    def __init__(self, name: str, stage: Stage) -> None:
        super().__init__(name, stage)
        self.dials = stage.places

    def make_framing(self, stream: SimStream, place: Any, accepted: bool) -> Framing:
        """Return ZMTP of a DEALER."""
        return Zmtp(SocketType.DEALER, identity=self.identity)

    def _dialled(self, stream: SimStream) -> Link:
        """Give up a broker of a pair soon if it does not answer."""
        framing = self.make_framing(stream, None, accepted=False)
        return self.host.opened(stream, framing=framing, patience_s=self._addresses.patience_s())


class ClientProcess(ClientParty[Stage], Peer):
    """A client, and its user."""

    hub: PeerHub

    def __init__(self, spec: ClientSpec, stage: Stage, **user: Any) -> None:
        is_new = spec.version == "0.3"
        options = {"tries_max": spec.tries, "carries_idempotency": is_new, "has_keys": True}
        super().__init__(spec, stage, **options | user)
        self.identity = spec.name.encode() if spec.identity else b""
        self.engine_options: dict[str, Any] = {}

    def make_engine(self) -> Engine:
        """Return a new client engine."""
        spec, knobs = self.spec, self.stage.knobs
        first = self._draw_sequence() if spec.first_sequence is None else spec.first_sequence
        self.rng.random()  # unused; keeps the later draws of saved seeds and plans as they were
        policy = ClientPolicy(
            slots=spec.slots,
            retry=RetryPolicy(attempts=spec.tries, attempt_timeout=spec.attempt_timeout_s),
            heartbeat=knobs.heartbeat,
            connections_max=8,
        )
        dialect = by_version(spec.version)
        return self.stage.parts.client(
            dialect, policy, rng=self.rng.random, first_sequence=first, **self.engine_options
        )

    def _draw_sequence(self) -> int:
        """Draw the first sequence number; every second start, one that is about to wrap."""
        return (1 << 32) - 8 if self.rng.random() < 0.5 else self.rng.getrandbits(32)


class WorkerProcess(ServingParty[Stage], Peer):
    """A worker, and its handlers."""

    kind = "worker"
    hub: WorkerHub
    observer = WorkerHub
    hang_s = 4.0

    def __init__(self, spec: WorkerSpec, stage: Stage) -> None:
        super().__init__(spec, stage)
        self.identity = spec.name.encode() if spec.identity else b""

    def make_engine(self) -> Engine:
        """Return a new worker engine."""
        spec = self.spec
        self._stuck: set[Any] = set()
        policy = WorkerPolicy(
            capacity=spec.capacity,
            heartbeat=HeartbeatPolicy(spec.interval_s, self.stage.knobs.liveness),
            lease_s=spec.lease_s,
        )
        dialect = by_version(spec.version)
        return self.stage.parts.worker(dialect, spec.service, policy, rng=self.rng.random)

    def key_of(self, request: Request, call: Call) -> bytes:
        """Return the key of a request; the older dialects carry none."""
        knows_keys = call.carries_idempotency and self.spec.version == "0.3"
        return request.idempotency_key if knows_keys else call.key

    # --- handlers ---------------------------------------------------------------------------------
    def abandon(self, token: Any, reason: str) -> None:
        """Stop a handler; one that hangs goes on if the run is about limits, as a thread would."""
        if token not in self._stuck:
            super().abandon(token, reason)

    def run(self, token: Any, task: Task, payload: bytes) -> None:
        """Follow the instructions of the task; the lease ends a handler that hangs."""
        lease_s = self.spec.lease_s
        if task.behaviour is Behaviour.HANG and self.stage.knobs.is_limited:
            self._stuck.add(token)
        match task.behaviour:
            case Behaviour.HANG if lease_s:
                return
            case Behaviour.VOUCH:
                times = 3 if lease_s else 0
                self.later(lease_s / 2, self._vouch, token, task, payload, times)
            case Behaviour.POISON:
                super().run(token, task, payload)
            case _:
                super().run(token, task._replace(service_s=self._bounded_s(task)), payload)

    def _bounded_s(self, task: Task) -> float:
        """Return a service time within the lease."""
        return min(task.service_s, 0.8 * self.spec.lease_s) if self.spec.lease_s else task.service_s

    def _vouch(self, token: Any, task: Task, payload: bytes, times: int) -> None:
        if not self.lives(token):
            return
        if not times:
            self.finish(token, task, payload)
            return
        extend_s = self.spec.lease_s if times == 1 else 0.0
        self.say(Progressed(token, extend_s))
        self.later(self.spec.lease_s / 2, self._vouch, token, task, payload, times - 1)
