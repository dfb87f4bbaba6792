"""The process of a worker, and its handlers, which follow the instructions in the requests."""

from __future__ import annotations

from typing import Any

from requite.engine import Engine
from requite.protocols.scalability.policy import RepPolicy
from requite.request import Request, Status
from requite.sim.kernel.handlers import Handling
from requite.sim.scalability.knobs import SpWorkerSpec
from requite.sim.scalability.party import Party, SpStage
from requite.sim.scalability.workload import final_body, partial_body, read_task


class SpWorker(Handling, Party):
    """A worker, and its handlers."""

    kind = "worker"
    # Ends a handler that hangs; otherwise only the loss of its channel would.
    hang_s = 2.0

    def __init__(self, spec: SpWorkerSpec, stage: SpStage) -> None:
        super().__init__(spec.name, stage, spec.first_id)
        self.spec = spec

    def make_engine(self) -> Engine:
        """Return a new worker engine; forget handlers from before a restart."""
        spec = self.spec
        self.forget_handlers()
        policy = RepPolicy(
            capacity=spec.capacity, hops=self.stage.knobs.hops, queue_max=spec.queue_max
        )
        return self.stage.parts.worker(policy, first_id=self.draw_first_id())

    def deliver(self, token: Any, what: Any) -> None:
        """Start a handler."""
        request: Request = what
        (body,) = request.frames
        history = self.stage.history
        read = read_task(body)
        call = None if read is None else history.calls.get(read[0].number)
        if read is None or call is None:  # an intruder's request
            self.later(0.0, self.answer, token, Status.OK, [body])
            return
        task, payload = read
        execution = history.started(call, self.name, payload, b"")
        self.begin(token, execution, task, payload)

    def partial_reply(self, number: int, serial: int, index: int) -> list[bytes]:
        """Return a partial reply."""
        return partial_body(number, serial, index)

    def final_reply(self, number: int, serial: int, payload: bytes) -> list[bytes]:
        """Return a final reply."""
        return final_body(number, serial, payload)
