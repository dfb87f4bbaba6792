"""The processes of a run of RPC over AMQP: RabbitMQ, clients and workers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from requite.engine import Engine
from requite.framing.amqp import Amqp, AmqpSettings
from requite.framing.base import Framing
from requite.protocols.amqp.assignment import pool_assignment, service_assignment
from requite.protocols.amqp.caller import AmqpCaller
from requite.protocols.amqp.policy import CallerPolicy, ResponderPolicy
from requite.protocols.amqp.responder import AmqpResponder
from requite.protocols.amqp.topology import Destination
from requite.request import Partial, Request, RetryPolicy
from requite.sim.amqp.knobs import AmqpClientSpec, AmqpKnobs, AmqpWorkerSpec
from requite.sim.amqp.store import POOL, AmqpStore
from requite.sim.amqp.words import Words
from requite.sim.kernel.cast import Cast
from requite.sim.kernel.history import Call
from requite.sim.kernel.hub import Hub
from requite.sim.kernel.party import (
    MESSAGE_SIZE_MAX,
    ClientParty,
    Party,
    ServingParty,
    watched,
)
from requite.sim.kernel.stage import RunStage
from requite.sim.kernel.workload import CallPlan, Task, final_frames, partial_frames
from requite.sim.rabbitmq.process import RABBIT, RabbitParty
from requite.sim.rabbitmq.server_methods import pack, unpack

if TYPE_CHECKING:
    from requite.sim.kernel.stream import SimStream

_ID_SIZE: Final = 8  # of a client's origin, and of a worker's instance


@dataclass(frozen=True, slots=True)
class AmqpParts:
    """The engines under test. Mutation tests pass broken ones."""

    caller: Callable[..., Engine] = AmqpCaller
    responder: Callable[..., Engine] = AmqpResponder


AmqpStage: TypeAlias = RunStage[AmqpKnobs, AmqpParts]


class AmqpHub(Hub):
    """An engine under observation; the checkers get messages as `Words`."""

    def read(self, message: Sequence[bytes]) -> Words:
        """See `Hub.read`."""
        return Words(*message)

    def task_of(self, message: Words) -> Task | None:
        """See `Hub.task_of`."""
        return message.task

    def _taken(self, _token: Any, request: Request) -> None:
        self._tell("request_taken", self, None, unpack(request.frames[0]))


class AmqpParty(Party[AmqpStage]):
    """A client or a worker. A body packs several frames, so that tests can check its parts."""

    observer = AmqpHub
    keeps = ((RABBIT, None),)

    def make_framing(self, stream: SimStream, place: Any, accepted: bool) -> Framing:
        """Return the client's framing for a new connection."""
        timeout_s = self.stage.knobs.heartbeat_timeout_s
        settings = AmqpSettings(heartbeat_s=timeout_s, body_size_max=MESSAGE_SIZE_MAX)
        return watched(Amqp(settings), stream, self.stage.history)


class AmqpClient(ClientParty[AmqpStage], AmqpParty):
    """A client, and its user."""

    def __init__(self, spec: AmqpClientSpec, stage: AmqpStage) -> None:
        super().__init__(spec, stage, tries_max=spec.attempts, frames_of=_body, has_keys=True)
        self.in_hand_max = spec.slots

    def make_engine(self) -> Engine:
        """Return a new caller engine."""
        spec, knobs = self.spec, self.stage.knobs
        policy = CallerPolicy(
            slots=spec.slots,
            retry=RetryPolicy(attempts=spec.attempts, attempt_timeout=spec.attempt_s),
            heartbeat=knobs.heartbeat,
            confirms=spec.confirms,
            direct_reply=spec.direct_reply,
            persistent=knobs.pool,
        )
        destination = POOL.destination if knobs.pool else Destination()
        origin = self.rng.randbytes(_ID_SIZE)
        first = (1 << 32) - 8 if self.rng.random() < 0.5 else self.rng.getrandbits(32)
        return self.stage.parts.caller(policy, destination, origin=origin, first_sequence=first)

    def deliver(self, token: Any, what: Any) -> None:
        """Give a reply, unpacked, to the user."""
        frames = tuple(unpack(what.frames[0]) or what.frames)
        is_partial = isinstance(what, Partial)
        reply = replace(what, frames=frames) if is_partial else what._replace(frames=frames)
        super().deliver(token, reply)


class AmqpWorker(ServingParty[AmqpStage], AmqpParty):
    """A worker, and its handlers."""

    kind = "worker"
    in_hand = ("running",)

    def __init__(self, spec: AmqpWorkerSpec, stage: AmqpStage) -> None:
        super().__init__(spec, stage)
        self.in_hand_max = spec.prefetch

    def make_engine(self) -> Engine:
        """Return a new responder engine."""
        self._parts: dict[int, int] = {}  # the number of partial replies, by execution
        spec, knobs = self.spec, self.stage.knobs
        assignment = pool_assignment(POOL, spec.service, spec.name)
        if not knobs.pool:
            assignment = service_assignment(spec.service, spec.name)
        policy = ResponderPolicy(
            prefetch=spec.prefetch,
            attempts_max=None if knobs.pool else knobs.attempts_max,
            heartbeat=knobs.heartbeat,
        )
        instance = self.rng.randbytes(_ID_SIZE)
        return self.stage.parts.responder(
            assignment, policy, service=spec.service, instance=instance
        )

    def read_request(self, frames: Sequence[bytes]) -> tuple[Task, bytes] | None:
        """See `ServingParty.read_request`."""
        return super().read_request(unpack(frames[0]) or ())

    def key_of(self, request: Request, _call: Call) -> bytes:
        """See `ServingParty.key_of`."""
        return request.idempotency_key

    def partial_reply(self, number: int, serial: int, index: int) -> list[bytes]:
        """Return a partial reply."""
        self._parts[serial] = index + 1
        return [pack(partial_frames(number, serial, index))]

    def final_reply(self, number: int, serial: int, payload: bytes) -> list[bytes]:
        """Return a final reply; it contains the number of partial replies."""
        label, payload = final_frames(number, serial, payload)
        return [pack([b"%s %d" % (label, self._parts.pop(serial, 0)), payload])]


def _body(plan: CallPlan) -> list[bytes]:
    return [pack(plan.frames)]


class AmqpCast(Cast):
    """RabbitMQ, clients and workers."""

    def __init__(self, stage: AmqpStage) -> None:
        self.knobs = knobs = stage.knobs
        self.store = AmqpStore(stage.world, knobs)
        self.rabbit = RabbitParty(stage, self.store, knobs.server)
        self.clients = [AmqpClient(spec, stage) for spec in knobs.clients]
        self.workers = [AmqpWorker(spec, stage) for spec in knobs.workers]
        super().__init__(
            stage,
            {"rabbit": [self.rabbit], "client": self.clients, "worker": self.workers},
            ways=[(party.name, RABBIT) for party in (*self.clients, *self.workers)],
        )
