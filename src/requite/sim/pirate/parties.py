"""The processes of a Pirate run: clients, servers, a queue, and its workers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from requite.backoff import Backoff
from requite.engine import Engine
from requite.errors import CallError
from requite.framing import Limits, SocketType, Zmtp
from requite.framing.base import Message
from requite.protocols.pirate.client import LazyPirate
from requite.protocols.pirate.policy import (
    BACK,
    FRONT,
    ClientPolicy,
    QueuePolicy,
    ServerPolicy,
    WorkerPolicy,
)
from requite.protocols.pirate.queue import PirateQueue
from requite.protocols.pirate.server import PirateServer
from requite.protocols.pirate.wire import Pattern
from requite.protocols.pirate.worker import PirateWorker
from requite.request import Request, RetryPolicy, Status
from requite.shell.connections import AddressList
from requite.shell.host import Host
from requite.shell.link import Link
from requite.sim.kernel.dialler import SimDialler
from requite.sim.kernel.handlers import Handling
from requite.sim.kernel.history import History
from requite.sim.kernel.party import MESSAGE_SIZE_MAX, BaseParty, telling_who_is_expelled
from requite.sim.kernel.process import Ending
from requite.sim.kernel.stage import RunStage
from requite.sim.kernel.user import User
from requite.sim.kernel.workload import final_frames, parse_task, partial_frames
from requite.sim.pirate.knobs import PirateClientSpec, PirateKnobs, PirateVariant
from requite.sim.pirate.watch import Hub
from requite.sim.pirate.workload import SERVICE
from requite.transport.address import InprocAddress

if TYPE_CHECKING:
    from requite.sim.kernel.stream import SimStream

QUEUE: Final = "queue"
_LIMITS: Final = Limits(message_size_bytes_max=MESSAGE_SIZE_MAX)
_ADDRESSES: Final = 1 << 32


@dataclass(frozen=True, slots=True)
class PirateParts:
    """The engines under test. Mutation tests pass broken ones."""

    client: Callable[..., Engine] = LazyPirate
    server: Callable[..., Engine] = PirateServer
    queue: Callable[..., Engine] = PirateQueue
    worker: Callable[..., Engine] = PirateWorker


class PirateStage(RunStage[PirateKnobs, PirateParts]):
    """The state that all processes of a run share."""

    @property
    def pattern(self) -> Pattern:
        """The pattern of queue and workers."""
        return Pattern.SIMPLE if self.knobs.crew is PirateVariant.SIMPLE else Pattern.PARANOID


class WatchedZmtp(Zmtp):
    """The framing of one connection; it reports honest peers whose bytes it refuses."""

    def __init__(self, kind: SocketType, stream: SimStream, history: History) -> None:
        super().__init__(kind, limits=_LIMITS)
        self._stream = stream
        self._history = history

    def receive(self, chunk: bytes) -> list[Message]:
        """Receive bytes; report if they are refused."""
        with telling_who_is_expelled(self._history, self._stream):
            return super().receive(chunk)


class Party(BaseParty[PirateStage]):
    """A client, server, queue or worker. `dials` are the addresses that it may connect to, one at a
    time; `listens` are its ports, each with the `place` that its engine gets."""

    hub: Hub
    dials: Sequence[str] = ()
    listens: Sequence[tuple[str, Any]] = ()

    # --- for subclasses ---------------------------------------------------------------------------
    def socket(self) -> SocketType:
        """Return the socket type of the party."""
        raise NotImplementedError

    # --- life -------------------------------------------------------------------------------------
    def make_host(self) -> Host:
        """Return a host with a new engine."""
        stage = self.stage
        addresses = [InprocAddress(place) for place in self.dials]
        self._addresses = AddressList(addresses, Backoff(self.rng.random), self.clock)
        dialler = SimDialler(self, self._addresses, self._opened)
        self.hub = Hub(self.make_engine(), self, self.kind, stage.history, stage.transcript)
        return self.host_of_hub(connect=dialler.connect, ended=self._addresses.ended)

    def started(self) -> None:
        """Start to listen."""
        for port, place in self.listens:
            self.take_connections(port, place)
        super().started()

    # --- connections ------------------------------------------------------------------------------
    def make_framing(self, stream: SimStream, place: Any, accepted: bool) -> WatchedZmtp:
        """Return a framing of the party's socket type."""
        return WatchedZmtp(self.socket(), stream, self.stage.history)

    def _opened(self, stream: SimStream) -> Link:
        return self.host.opened(stream, framing=self.make_framing(stream, None, accepted=False))


class Client(Party):
    """A Lazy Pirate, and its user."""

    kind = "client"

    def __init__(self, spec: PirateClientSpec, stage: PirateStage) -> None:
        super().__init__(spec.name, stage)
        self.spec = spec
        middle = stage.knobs.middle
        self.dials = middle if stage.knobs.crew is PirateVariant.LAZY else [f"{QUEUE}:{FRONT}"]
        self.user = User(
            self,
            stage.history,
            stage.transcript,
            attrgetter("frames"),
            tries_max=spec.tries,
            carries_idempotency=True,
            has_keys=False,
        )

    def socket(self) -> SocketType:
        """See `Party.socket`."""
        return SocketType.REQ

    def make_engine(self) -> Engine:
        """Return a new client engine."""
        spec = self.spec
        retry = RetryPolicy(attempts=spec.tries, attempt_timeout=spec.attempt_timeout_s)
        policy = ClientPolicy(spec.slots, retry, spec.connections)
        return self.stage.parts.client(policy)

    def _end(self, what: Ending) -> None:
        super()._end(what)
        self.stage.history.client_died(self.name)

    def deliver(self, token: Any, what: Any) -> None:
        """Give a reply to the user."""
        self.user.deliver(token, what)

    def fail(self, token: Any, error: CallError) -> None:
        """Give an error to the user."""
        self.user.fail(token, error)


class Queue(Party):
    """The process of the queue."""

    kind = "queue"
    listens = ((FRONT, FRONT), (BACK, BACK))
    first_address = 0  # the first client address since the last start

    def socket(self) -> SocketType:
        """See `Party.socket`."""
        return SocketType.ROUTER

    def make_engine(self) -> Engine:
        """Return a new queue engine."""
        knobs = self.stage.knobs
        policy = QueuePolicy(
            heartbeat=knobs.heartbeat,
            queue_max=knobs.queue_max,
            drain_timeout_s=knobs.drain_timeout_s,
        )
        self.first_address = first = self.rng.randrange(_ADDRESSES)
        return self.stage.parts.queue(self.stage.pattern, policy, first_address=first)


class _Handler(Handling, Party):
    """A party that runs handlers."""

    # Ends a handler that hangs; otherwise only the loss of its connection would.
    hang_s = 2.0

    def deliver(self, token: Any, what: Any) -> None:
        """Start a handler."""
        request: Request = what
        history = self.stage.history
        task = parse_task(request.frames)
        call = None if task is None else history.calls.get(task.number)
        if task is None or call is None:  # an intruder's request
            self.later(0.0, self.answer, token, Status.OK, list(request.frames))
            return
        execution = history.started(call, self.name, request.frames[1], b"")
        self.begin(token, execution, task, request.frames[1])

    def partial_reply(self, number: int, serial: int, index: int) -> list[bytes]:
        """Return a partial reply."""
        return partial_frames(number, serial, index)

    def final_reply(self, number: int, serial: int, payload: bytes) -> list[bytes]:
        """Return a final reply."""
        return final_frames(number, serial, payload)


class Server(_Handler):
    """A Lazy Pirate's server."""

    kind = "server"
    listens = (("", None),)

    def socket(self) -> SocketType:
        """See `Party.socket`."""
        return SocketType.REP

    def make_engine(self) -> Engine:
        """Return a new server engine; forget handlers from before a restart."""
        self.forget_handlers()
        knobs = self.stage.knobs
        policy = ServerPolicy(capacity=knobs.capacity, queue_max=knobs.queue_max)
        return self.stage.parts.server(policy, service=SERVICE)


class Worker(_Handler):
    """A worker at the queue."""

    kind = "worker"
    dials = (f"{QUEUE}:{BACK}",)

    def socket(self) -> SocketType:
        """See `Party.socket`."""
        return SocketType.REQ if self.stage.pattern is Pattern.SIMPLE else SocketType.DEALER

    def make_engine(self) -> Engine:
        """Return a new worker engine; forget handlers from before a restart."""
        self.forget_handlers()
        knobs = self.stage.knobs
        policy = WorkerPolicy(
            heartbeat=knobs.heartbeat,
            pause_first_s=knobs.pause_first_s,
            pause_max_s=knobs.pause_max_s,
        )
        return self.stage.parts.worker(self.stage.pattern, policy, service=SERVICE)
