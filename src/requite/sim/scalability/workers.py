"""A worker's process, and its handlers, which do what the requests say."""

from __future__ import annotations

from typing import Any, Final

from requite.engine import Engine, Finished, Produced
from requite.protocols.scalability.policy import RepPolicy
from requite.request import Request, Status
from requite.sim.history import Execution
from requite.sim.knobs import Behaviour
from requite.sim.scalability.knobs import SpWorkerSpec
from requite.sim.scalability.party import Party, SpStage
from requite.sim.scalability.workload import final_body, partial_body, read_task
from requite.sim.workload import Task

# Nothing else ever ends a handler that hangs, unless its channel is lost.
_HANG_S_MAX: Final = 2.0
# A poisonous request lets its worker live for this part of its service time.
_DIES_AFTER: Final = 0.5
_RESTART_S: Final = 1.0


class SpWorker(Party):
    """A worker, and its handlers."""

    kind = "worker"

    def __init__(self, spec: SpWorkerSpec, stage: SpStage) -> None:
        super().__init__(spec.name, stage, spec.first_id)
        self.spec = spec
        self._running: dict[Any, Execution] = {}

    def make_engine(self) -> Engine:
        """Make a worker; handlers of an earlier life are gone."""
        spec = self.spec
        self._running = {}
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
        if read is None or call is None:  # a stranger's request
            self.later(0.0, self._answer, token, Status.OK, [body])
            return
        task, payload = read
        self._running[token] = history.started(call, self.name, payload, b"")
        self._run(token, task, payload)

    def abandon(self, token: Any, reason: str) -> None:
        """Stop a handler; like any other, it ends a little later."""
        execution = self._running.get(token)
        if execution is not None:
            execution.ended = "abandoned"
        self.later(0.001, self._answer, token, Status.CANCELLED, [reason.encode()])

    # --- handlers ---------------------------------------------------------------------------------
    def _run(self, token: Any, task: Task, payload: bytes) -> None:
        match task.behaviour:
            case Behaviour.POISON:
                self.later(task.service_s * _DIES_AFTER, self._poisoned, token)
            case Behaviour.HANG:
                self.later(_HANG_S_MAX, self._finish, token, task, payload)
            case Behaviour.STREAM:
                self.later(task.service_s, self._part, token, task, payload, 0)
            case _ if not task.service_s:  # at once, from inside the engine's callback
                self._finish(token, task, payload)
            case _:
                self.later(task.service_s, self._finish, token, task, payload)

    def _lives(self, token: Any) -> bool:
        execution = self._running.get(token)
        return execution is not None and not execution.ended

    def _part(self, token: Any, task: Task, payload: bytes, index: int) -> None:
        if not self._lives(token):
            return
        if index == task.parts:
            self._finish(token, task, payload)
            return
        serial = self._running[token].serial
        self.host.submit(Produced(token, partial_body(task.number, serial, index)))
        self.later(task.service_s, self._part, token, task, payload, index + 1)

    def _poisoned(self, token: Any) -> None:
        if self._lives(token):
            self.world.after(_RESTART_S, self.start)
            self.crash(politely=self.rng.random() < 0.5)

    def _finish(self, token: Any, task: Task, payload: bytes) -> None:
        if not self._lives(token):
            return
        serial = self._running[token].serial
        if task.behaviour is Behaviour.FAIL:
            self._answer(token, Status.FAILED, [b"the handler of call %d fails" % task.number])
        else:
            self._answer(token, Status.OK, final_body(task.number, serial, payload))

    def _answer(self, token: Any, status: Status, frames: list[bytes]) -> None:
        execution = self._running.pop(token, None)
        if execution is not None and not execution.ended:
            execution.ended = status.name
        self.host.submit(Finished(token, frames, status))
