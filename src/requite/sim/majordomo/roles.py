"""The broker's process, and the base of its clients, workers and intruders."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from requite.backoff import Backoff
from requite.dedup.engine import DedupEngine
from requite.engine import Engine
from requite.errors import CallError
from requite.framing import Framing, IdentityTable, SocketType, Zmtp
from requite.pair.standby_gate import StandbyGate
from requite.principal import Credential, Principal
from requite.protocols.binarystar.peer import BinaryStarPeer
from requite.protocols.majordomo.broker import MajordomoBroker
from requite.protocols.majordomo.client import client_engine
from requite.protocols.majordomo.worker import MajordomoWorker
from requite.shell.connections import AddressList
from requite.shell.host import Host
from requite.shell.link import Link
from requite.shell.owners import unrestricted
from requite.sim.kernel.dialler import SimDialler
from requite.sim.kernel.engine_process import EngineProcess
from requite.sim.kernel.history import Call
from requite.sim.kernel.process import Ending
from requite.sim.kernel.stage import RunStage
from requite.sim.kernel.workload import parse_task
from requite.sim.majordomo.knobs import Knobs
from requite.sim.majordomo.watch import Watched
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


@dataclass(frozen=True, slots=True)
class Stage(RunStage[Knobs, MajordomoParts]):
    """The state that all processes of a run share."""

    places: tuple[Address, ...] = (_ADDRESS,)
    """The addresses of the brokers; a host is the name of a node."""

    def call_of(self, body: Sequence[bytes]) -> Call | None:
        """Return the call of a request by its body."""
        task = parse_task(body)
        return None if task is None else self.history.calls.get(task.number)


class Broker(EngineProcess):
    """The broker; its address is the name of its node."""

    watched: WatchedBroker
    watch: type[WatchedBroker] = WatchedBroker

    def __init__(self, stage: Stage, name: str = BROKER) -> None:
        super().__init__(name, stage.world, stage.network, stage.knobs.pace, stage.supervisor)
        self._stage = stage

    def make_host(self) -> Host:
        """Return a host with a new broker."""
        stage = self._stage
        engine = stage.parts.broker(stage.knobs.broker_policy)
        self.watched = self.watch(engine, self, stage.history, stage.call_of, stage.transcript)
        self.identities: IdentityTable[Link] = IdentityTable(
            start=self.rng.getrandbits(32), handover=stage.knobs.handover
        )
        return self.host_of(
            self.watched,
            stage.knobs.limits,
            lambda: Zmtp(SocketType.ROUTER),
            stage.parts.host,
            identities=self.identities,
            identify=self.identify,
        )

    def identify(self, credential: Credential | None, peer_name: str, place: Any) -> Principal:
        """Return the owner of a connection: everybody may do everything."""
        return unrestricted(credential, peer_name, place)

    def started(self) -> None:
        """Start to listen."""
        self.network.listen(self)
        self._stage.history.tell("broker_started", self)

    def _end(self, what: Ending) -> None:
        super()._end(what)
        self.network.listen_no_more(self)
        self._stage.history.tell("broker_ended", self)

    def has_stopped(self) -> None:
        """Accept no more connections, and exit."""
        self.network.listen_no_more(self)
        super().has_stopped()


class Dialler(EngineProcess):
    """A process that connects to the broker when its engine asks for a connection."""

    watched: Watched
    watch: type[Watched] = Watched

    def __init__(self, name: str, identity: bool, stage: Stage) -> None:
        super().__init__(name, stage.world, stage.network, stage.knobs.pace, stage.supervisor)
        self._stage = stage
        self._identity = name.encode() if identity else b""

    def make_engine(self) -> Engine:
        """Return a new engine."""
        raise NotImplementedError

    def make_host(self) -> Host:
        """Return a host that dials the brokers."""
        self._addresses = AddressList(self._stage.places, Backoff(self.rng.random), self.clock)
        dialler = SimDialler(self, self._addresses, self._opened)
        self.watched = self.watch(
            self.make_engine(), self, self._stage.history, self._stage.transcript
        )
        return self.host_of(
            self.watched,
            self._stage.knobs.limits,
            self._make_framing,
            connect=dialler.connect,
            deliver=self.deliver,
            fail=self.fail,
            abandon=self.abandon,
            ended=self._addresses.ended,
        )

    def deliver(self, token: Any, what: Any) -> None:
        """Handle a delivery of the engine."""
        raise NotImplementedError

    def fail(self, token: Any, error: CallError) -> None:
        """Handle a failure that the engine reports."""
        raise NotImplementedError

    def abandon(self, token: Any, reason: str) -> None:
        """Abandon a handler."""
        raise NotImplementedError

    def _make_framing(self) -> Framing:
        return Zmtp(SocketType.DEALER, identity=self._identity)

    def _opened(self, stream: SimStream) -> Link:
        return self.host.opened(stream, patience_s=self._addresses.patience_s())
