"""The process of a server, and its handlers, which follow the instructions in the requests."""

from __future__ import annotations

from typing import Any

from requite.engine import Engine
from requite.protocols.freelance.policy import ServerPolicy
from requite.request import Request, Status
from requite.sim.freelance.knobs import FlpServerSpec
from requite.sim.freelance.party import Party
from requite.sim.freelance.stage import FlpStage
from requite.sim.freelance.words import call_in
from requite.sim.kernel.handlers import Handling
from requite.sim.kernel.workload import final_frames, parse_task, partial_frames


class FlpServer(Handling, Party):
    """A server, and its handlers."""

    kind = "server"
    # Ends a handler that hangs; otherwise only the loss of its client would.
    hang_s = 2.0

    def __init__(self, spec: FlpServerSpec, stage: FlpStage) -> None:
        super().__init__(spec.name, stage)
        self.spec = spec

    def make_engine(self) -> Engine:
        """Return a new server engine; forget handlers from before a restart."""
        self.forget_handlers()
        spec = self.spec
        policy = ServerPolicy(
            model=self.stage.knobs.model, capacity=spec.capacity, queue_max=spec.queue_max
        )
        return self.stage.parts.server(policy)

    def started(self) -> None:
        """Start to listen."""
        super().started()
        self.take_connections()

    def deliver(self, token: Any, what: Any) -> None:
        """Start a handler."""
        request: Request = what
        history = self.stage.history
        call = call_in(history, request.frames)
        task = parse_task(request.frames)
        if call is None or task is None:  # an intruder's request
            self.later(0.0, self.answer, token, Status.OK, list(request.frames))
            return
        payload = request.frames[1]
        execution = history.started(call, self.name, payload, call.key)
        self.begin(token, execution, task, payload)

    def partial_reply(self, number: int, serial: int, index: int) -> list[bytes]:
        """Return a partial reply."""
        return partial_frames(number, serial, index)

    def final_reply(self, number: int, serial: int, payload: bytes) -> list[bytes]:
        """Return a final reply."""
        return final_frames(number, serial, payload)
