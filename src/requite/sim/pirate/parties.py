"""The processes of a Pirate run: clients, servers, a queue, its workers, and intruders."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from requite.engine import Engine
from requite.framing import SocketType, Zmtp
from requite.framing.base import Framing
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
from requite.request import RetryPolicy
from requite.sim.kernel.cast import Cast
from requite.sim.kernel.garbage import BaseIntruder, Messages
from requite.sim.kernel.party import ClientParty, Party, ServingParty, watched_zmtp
from requite.sim.kernel.raw_bytes import RawBytes, spoil
from requite.sim.kernel.stage import RunStage
from requite.sim.pirate.knobs import PirateClientSpec, PirateKnobs, PirateVariant, PirateWorkerSpec
from requite.transport.address import InprocAddress

if TYPE_CHECKING:
    from requite.sim.kernel.stream import SimStream

SERVICE: Final = "work"  # its name for handlers; the wire protocol has no service names
_QUEUE: Final = "queue"
_ADDRESSES: Final = 1 << 32
_BODY: Final = 300
_INTRUDERS: Final = 3


@dataclass(frozen=True, slots=True)
class PirateParts:
    """The engines under test. Mutation tests pass broken ones."""

    client: Callable[..., Engine] = LazyPirate
    server: Callable[..., Engine] = PirateServer
    queue: Callable[..., Engine] = PirateQueue
    worker: Callable[..., Engine] = PirateWorker


PirateStage: TypeAlias = RunStage[PirateKnobs, PirateParts]


class PirateParty(Party[PirateStage]):
    """A client, server, queue or worker, with one kind of `socket`."""

    socket: SocketType

    @property
    def pattern(self) -> Pattern:
        """The pattern of queue and workers."""
        is_simple = self.stage.knobs.crew is PirateVariant.SIMPLE
        return Pattern.SIMPLE if is_simple else Pattern.PARANOID

    def make_framing(self, stream: SimStream, place: Any, accepted: bool) -> Framing:
        """Return ZMTP with the party's socket type."""
        return watched_zmtp(self.socket, stream, self.stage.history)


class Client(ClientParty[PirateStage], PirateParty):
    """A Lazy Pirate, and its user."""

    socket = SocketType.REQ

    def __init__(self, spec: PirateClientSpec, stage: PirateStage) -> None:
        super().__init__(spec, stage, tries_max=spec.tries)
        is_lazy = stage.knobs.crew is PirateVariant.LAZY
        addresses = stage.knobs.middle if is_lazy else [f"{_QUEUE}:{FRONT}"]
        self.dials = [InprocAddress(address) for address in addresses]

    def make_engine(self) -> Engine:
        """Return a new client engine."""
        spec = self.spec
        retry = RetryPolicy(attempts=spec.tries, attempt_timeout=spec.attempt_timeout_s)
        policy = ClientPolicy(spec.slots, retry, spec.connections)
        return self.stage.parts.client(policy)


class Queue(PirateParty):
    """The process of the queue."""

    kind = "queue"
    socket = SocketType.ROUTER
    listens = ((FRONT, FRONT), (BACK, BACK))
    first_address = 0  # the first client address since the last start

    def asks(self, place: Any) -> bool:
        """Whether a place is the back, where the workers are."""
        return bool(place == BACK)

    def make_engine(self) -> Engine:
        """Return a new queue engine."""
        knobs = self.stage.knobs
        policy = QueuePolicy(
            heartbeat=knobs.heartbeat,
            queue_max=knobs.queue_max,
            drain_timeout_s=knobs.drain_timeout_s,
        )
        self.first_address = first = self.rng.randrange(_ADDRESSES)
        return self.stage.parts.queue(self.pattern, policy, first_address=first)


class Server(ServingParty[PirateStage], PirateParty):
    """A Lazy Pirate's server."""

    kind = "server"
    socket = SocketType.REP
    listens = (("", None),)

    def make_engine(self) -> Engine:
        """Return a new server engine."""
        knobs = self.stage.knobs
        policy = ServerPolicy(capacity=knobs.capacity, queue_max=knobs.queue_max)
        return self.stage.parts.server(policy, service=SERVICE)


class Worker(ServingParty[PirateStage], PirateParty):
    """A worker at the queue."""

    kind = "worker"
    dials = (InprocAddress(f"{_QUEUE}:{BACK}"),)

    def __init__(self, spec: PirateWorkerSpec, stage: PirateStage) -> None:
        super().__init__(spec, stage)
        self.socket = SocketType.REQ if self.pattern is Pattern.SIMPLE else SocketType.DEALER

    def make_engine(self) -> Engine:
        """Return a new worker engine."""
        knobs = self.stage.knobs
        policy = WorkerPolicy(
            heartbeat=knobs.heartbeat,
            pause_first_s=knobs.pause_first_s,
            pause_max_s=knobs.pause_max_s,
        )
        return self.stage.parts.worker(self.pattern, policy, service=SERVICE)


# --- intruders ------------------------------------------------------------------------------------
def _noise(rng: Random) -> Messages:
    return [[rng.randbytes(rng.randint(1, 9)) for _ in range(rng.randint(1, 5))]]


def _empties(rng: Random) -> Messages:
    return [[b""] * rng.randint(1, 6)]


def _no_body(rng: Random) -> Messages:
    return [[rng.randbytes(3), b""]]


def _strange_words(_rng: Random) -> Messages:
    return [[b"\x03"], [b"HEARTBEATS"], [b"\x02\x02"]]


def _beats(_rng: Random) -> Messages:
    """Return unexpected heartbeats."""
    return [[b"\x02"], [b"\x02"]]


def _requests(rng: Random) -> Messages:
    """Return requests with various envelopes; their replies are ignored."""
    stack = [rng.randbytes(4) for _ in range(rng.randint(0, 3))]
    return [[*stack, b"", b"x" * rng.randint(1, _BODY)] for _ in range(rng.randint(1, 8))]


class PirateIntruder(BaseIntruder):
    """An intruder that connects to servers, or to either side of the queue.

    A queue must believe a worker that sends READY, even if it replies falsely or never. So an
    intruder never sends READY, and at a simple queue nothing that could pass for it, as a reply
    would.
    """

    def __init__(self, name: str, stage: PirateStage) -> None:
        super().__init__(name, stage)
        crew = stage.knobs.crew
        ends = [f"{_QUEUE}:{FRONT}", f"{_QUEUE}:{BACK}"]
        self._targets = stage.knobs.middle if crew is PirateVariant.LAZY else ends
        self.kinds = [_noise, _empties, _no_body, _strange_words, _beats]
        if crew is not PirateVariant.SIMPLE:
            self.kinds.append(_requests)

    def aim(self) -> tuple[str, Framing]:
        """See `BaseIntruder.aim`."""
        framing = self._draw_framing()
        return self.rng.choice(self._targets), framing

    def _draw_framing(self) -> Framing:
        if self.rng.random() < 0.7:
            return Zmtp(self.rng.choice((SocketType.DEALER, SocketType.REQ)))
        good = Zmtp(SocketType.DEALER).opening()
        openings = (
            spoil(self.rng, good),
            good[: self.rng.randint(0, len(good))],
            good + self.rng.randbytes(50),
            b"GET / HTTP/1.1\r\nHost: queue\r\n\r\n",
            self.rng.randbytes(self.rng.choice((1, 64, 3000))),
        )
        return RawBytes(self.rng.choice(openings))


class PirateCast(Cast):
    """Clients, workers, and the middle: a queue or servers."""

    def __init__(self, stage: PirateStage) -> None:
        knobs = stage.knobs
        middle: list[PirateParty] = [Queue(_QUEUE, stage)]
        if knobs.crew is PirateVariant.LAZY:
            middle = [Server(PirateWorkerSpec(name), stage) for name in knobs.middle]
        workers = [Worker(spec, stage) for spec in knobs.workers]
        clients = [Client(spec, stage) for spec in knobs.clients]
        super().__init__(
            stage,
            {"middle": middle, "worker": workers, "client": clients},
            [PirateIntruder(f"intruder-{i + 1}", stage) for i in range(_INTRUDERS)],
            exposed=middle,
            ways=[(one.name, other.name) for one in middle for other in (*clients, *workers)],
        )
