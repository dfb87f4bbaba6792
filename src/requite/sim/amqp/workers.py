"""The process of a worker, and its handlers, which follow the instructions in the requests."""

from __future__ import annotations

from typing import Any, Final

from requite.engine import Engine
from requite.protocols.amqp.assignment import pool_assignment, service_assignment
from requite.protocols.amqp.policy import ResponderPolicy
from requite.request import Request, Status
from requite.sim.amqp.knobs import AmqpWorkerSpec
from requite.sim.amqp.party import AmqpParty
from requite.sim.amqp.stage import AmqpStage
from requite.sim.amqp.store import POOL
from requite.sim.kernel.handlers import Handling
from requite.sim.kernel.workload import final_frames, parse_task, partial_frames
from requite.sim.rabbitmq.server_methods import pack, unpack

_INSTANCE_SIZE: Final = 8


class AmqpWorker(Handling, AmqpParty):
    """A worker, and its handlers."""

    kind = "worker"
    hang_s = 2.0  # ends a handler that hangs; nothing else does

    def __init__(self, spec: AmqpWorkerSpec, stage: AmqpStage) -> None:
        super().__init__(spec.name, stage)
        self.spec = spec

    def make_engine(self) -> Engine:
        """Return a new responder engine; forget handlers from before a restart."""
        self.forget_handlers()
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
        instance = self.rng.randbytes(_INSTANCE_SIZE)
        return self.stage.parts.responder(
            assignment, policy, service=spec.service, instance=instance
        )

    def deliver(self, token: Any, what: Any) -> None:
        """Start a handler."""
        request: Request = what
        frames = unpack(request.frames[0])
        task = None if frames is None else parse_task(frames)
        call = None if task is None else self.stage.history.calls.get(task.number)
        if frames is None or task is None or call is None:  # an intruder's request
            self.later(0.0, self.answer, token, Status.OK, list(request.frames))
            return
        key = request.idempotency_key
        execution = self.stage.history.started(call, self.name, frames[1], key)
        self.begin(token, execution, task, frames[1])

    def partial_reply(self, number: int, serial: int, index: int) -> list[bytes]:
        """Return a partial reply."""
        self._parts[serial] = index + 1
        return [pack(partial_frames(number, serial, index))]

    def final_reply(self, number: int, serial: int, payload: bytes) -> list[bytes]:
        """Return a final reply; it contains the number of partial replies."""
        label, payload = final_frames(number, serial, payload)
        return [pack([b"%s %d" % (label, self._parts.pop(serial, 0)), payload])]
