"""The processes of a run: clients, devices and workers of a topology, and the observer of their
engines."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from requite.engine import Deliver, DeliverAll, Effect, Engine, Input, Note, Received, Send, SendAll
from requite.framing.base import Framing, Limits
from requite.framing.sp import SpStream
from requite.protocols.scalability.device import ScalabilityDevice
from requite.protocols.scalability.jobs import Why
from requite.protocols.scalability.policy import (
    ATTEMPTS_UNLIMITED,
    DevicePolicy,
    PipeOptions,
    RepPolicy,
    ReqPolicy,
)
from requite.protocols.scalability.rep import ScalabilityWorker
from requite.protocols.scalability.req import ScalabilityClient
from requite.protocols.scalability.wire import REP, REQ
from requite.request import Request, RetryPolicy
from requite.sim.kernel.cast import Cast
from requite.sim.kernel.hub import Hub
from requite.sim.kernel.party import (
    MESSAGE_SIZE_MAX,
    ClientParty,
    Party,
    ServingParty,
    watched,
)
from requite.sim.kernel.stage import RunStage
from requite.sim.kernel.workload import Task, final_frames, parse_task, partial_frames
from requite.sim.scalability.intruder import SpIntruder
from requite.sim.scalability.knobs import DeviceSpec, ScalabilityKnobs, SpClientSpec, SpWorkerSpec
from requite.sim.scalability.stack import IDS, NEWLINE, body_of, parse, payload_of
from requite.sim.scalability.topology import BACK, FRONT, Edge

if TYPE_CHECKING:
    from requite.sim.kernel.stream import SimStream

_INTRUDERS: Final = 3
_MANY: Final = 1 << 30


@dataclass(frozen=True, slots=True)
class SpParts:
    """The engines under test. Mutation tests pass broken ones."""

    client: Callable[..., Engine] = ScalabilityClient
    worker: Callable[..., Engine] = ScalabilityWorker
    device: Callable[..., Engine] = ScalabilityDevice


SpStage: TypeAlias = RunStage[ScalabilityKnobs, SpParts]


# --- the observer ---------------------------------------------------------------------------------
class SpHub(Hub):
    """An engine under observation. `handed_on`: the number of requests sent."""

    def __init__(self, engine: Engine, process: Any) -> None:
        super().__init__(engine, process)
        self.handed_on = 0
        self._first_id: int = process.first_id
        self._newest = -1  # a client's latest request, counted from the first one
        self._is_mixed = False  # a batch mixes old and new requests: their order is unknown
        self._effects[Note] = self._noted

    def read(self, message: Sequence[bytes]) -> bytes:
        """See `Hub.read`."""
        return payload_of(message)

    def task_of(self, message: bytes) -> Task | None:
        """See `Hub.task_of`."""
        parsed = parse(message)
        return None if parsed is None else parse_task(parsed.body.split(NEWLINE))

    def queues(self, message: bytes) -> bool:
        """Whether a message is a request that has not too many tags; a device adds one."""
        hops = self.process.stage.knobs.hops - (self.kind == "device")
        parsed = parse(message)
        return parsed is not None and parsed.depth <= hops

    def handle(self, events: Sequence[Input], now: float) -> Iterable[Effect]:
        """See `requite.engine.Engine.handle`.

        The requests of one turn leave a client channel by channel. They are checked in the order of
        their request ids, unless the turn also resends old ones.
        """
        for event in events:
            self._look_at(event)
        effects = list(self.engine.handle(events, now))
        single = [each for effect in effects for each in one_by_one(effect)]
        if self.kind == "client" and (len(events) > 1 or isinstance(events[0], Received)):
            single = self._sorted(single)
        self._watch(single)
        self._is_mixed = False
        return effects

    def _sent(self, effect: Send) -> None:
        self.handed_on += self.asks(effect.peer)
        self._maybe_forget_turns()
        super()._sent(effect)
        self._maybe_forget_turns()
        if self.kind == "client":
            self._newest = max(self._newest, self._number(effect))

    def _maybe_forget_turns(self) -> None:
        if self._is_mixed:
            self._tell("turns_unknown", self)

    def _taken(self, token: Any, request: Request) -> None:
        self._tell("request_taken", self, None, token.stack + request.frames[0])

    def _noted(self, note: Note) -> None:
        if note.kind == "dropped" and note.facts["why"] == Why.STUCK:
            self._tell("gave_up", self)

    def _sorted(self, effects: list[Effect]) -> list[Effect]:
        """Return the effects with requests first, in the order of their ids."""
        sends = [effect for effect in effects if isinstance(effect, Send)]
        sends.sort(key=self._number)
        self._is_mixed = bool(sends) and self._number(sends[0]) <= self._newest
        return [*sends, *(effect for effect in effects if not isinstance(effect, Send))]

    def _number(self, send: Send) -> int:
        """Return a request's number, counted from the client's first request id; ids wrap to 0."""
        return (int.from_bytes(send.message[0], "big") - self._first_id) % IDS


def one_by_one(effect: Effect) -> Iterable[Effect]:
    """Return the single effects of an effect that has many."""
    if isinstance(effect, SendAll):
        return [Send(effect.peer, message) for message in effect.messages]
    if isinstance(effect, DeliverAll):
        return [Deliver(token, what) for token, what in effect.pairs]
    return [effect]


# --- processes ------------------------------------------------------------------------------------
class SpParty(Party[SpStage]):
    """A client, a worker or a device: it listens at each port that peers dial, and dials the
    listeners. `first_id`: the first id since the last start."""

    observer = SpHub
    hub: SpHub
    first_id = 0

    def connect(self, first_id: int | None) -> None:
        """Set the connections; `first_id` is that of the first start, None: drawn."""
        self._given_id = first_id
        edges = self.stage.knobs.edges
        listened = [edge for edge in edges if edge.listener == self.name]
        dialled = [edge for edge in edges if edge.dialler == self.name]
        self.listens = [(edge.port, place_of(edge, edge.upper_dials)) for edge in listened]
        self.keeps = [(edge.address, place_of(edge, not edge.upper_dials)) for edge in dialled]

    def draw_first_id(self) -> int:
        """Return the first id of this start: at the first start, the knobs may fix it.

        Later starts draw at random, so that ids from before a restart are not reused.
        """
        given_id, self._given_id = self._given_id, None
        self.first_id = self.rng.randrange(IDS) if given_id is None else given_id
        return self.first_id

    def asks(self, place: PipeOptions) -> bool:
        """Whether a place is the back."""
        return bool(place.side == BACK)

    def make_framing(self, stream: SimStream, place: Any, accepted: bool) -> Framing:
        """Return a framing for the side of the place, whichever end dials."""
        own, peer = (REP, REQ) if place.side == FRONT else (REQ, REP)
        limits = Limits(message_size_bytes_max=MESSAGE_SIZE_MAX)
        framing = SpStream(own, peer, in_band=self.stage.knobs.in_band, limits=limits)
        return watched(framing, stream, self.stage.history)


def place_of(edge: Edge, is_lower: bool) -> PipeOptions:
    """Return the place of an edge at one end: only the end that sends requests ranks it."""
    return PipeOptions(FRONT) if is_lower else PipeOptions(BACK, edge.priority, edge.weight)


class SpClient(ClientParty[SpStage], SpParty):
    """A client, and its user."""

    hub: SpHub

    def __init__(self, spec: SpClientSpec, stage: SpStage) -> None:
        tries_max = spec.tries or _MANY
        super().__init__(spec, stage, tries_max=tries_max, frames_of=body_of, soon=spec.soon)
        self.in_hand_max = spec.slots
        self.connect(spec.first_id)

    def make_engine(self) -> Engine:
        """Return a new client engine."""
        spec = self.spec
        attempts = spec.tries or ATTEMPTS_UNLIMITED
        retry = RetryPolicy(attempts=attempts, attempt_timeout=spec.resend_s)
        policy = ReqPolicy(slots=spec.slots, retry=retry, hold=spec.hold)
        return self.stage.parts.client(policy, first_id=self.draw_first_id())


class Device(SpParty):
    """A device; it has peers, but no user."""

    kind = "device"

    def __init__(self, spec: DeviceSpec, stage: SpStage) -> None:
        super().__init__(spec.name, stage)
        self.connect(spec.first_id)

    def make_engine(self) -> Engine:
        """Return a new device engine."""
        knobs = self.stage.knobs
        policy = DevicePolicy(hops=knobs.hops, hold_s=knobs.hold_s, notes=True)
        return self.stage.parts.device(policy, first_id=self.draw_first_id())


class SpWorker(ServingParty[SpStage], SpParty):
    """A worker, and its handlers. The bodies of requests and replies have one line for a frame."""

    kind = "worker"
    hub: SpHub

    def __init__(self, spec: SpWorkerSpec, stage: SpStage) -> None:
        super().__init__(spec, stage)
        self.in_hand_max, self.queue_max = spec.capacity, spec.queue_max
        self.connect(spec.first_id)

    def make_engine(self) -> Engine:
        """Return a new worker engine."""
        spec, hops = self.spec, self.stage.knobs.hops
        policy = RepPolicy(capacity=spec.capacity, hops=hops, queue_max=spec.queue_max)
        return self.stage.parts.worker(policy, first_id=self.draw_first_id())

    def read_request(self, frames: Sequence[bytes]) -> tuple[Task, bytes] | None:
        """See `ServingParty.read_request`."""
        return super().read_request(frames[0].split(NEWLINE))

    def partial_reply(self, number: int, serial: int, index: int) -> list[bytes]:
        """See `Handling.partial_reply`."""
        return [partial_frames(number, serial, index)[0] + NEWLINE]

    def final_reply(self, number: int, serial: int, payload: bytes) -> list[bytes]:
        """See `Handling.final_reply`."""
        return [NEWLINE.join(final_frames(number, serial, payload))]


class SpCast(Cast):
    """Clients, devices and workers of a topology."""

    def __init__(self, stage: SpStage) -> None:
        knobs = stage.knobs
        self.devices = [Device(spec, stage) for spec in knobs.devices]
        super().__init__(
            stage,
            {
                "client": [SpClient(spec, stage) for spec in knobs.clients],
                "device": self.devices,
                "worker": [SpWorker(spec, stage) for spec in knobs.workers],
            },
            [SpIntruder(f"intruder-{i + 1}", stage) for i in range(_INTRUDERS)],
            ways=[(edge.upper, edge.lower) for edge in knobs.edges],
        )
