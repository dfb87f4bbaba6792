"""The handlers of a worker's process, which follow the requests' instructions in virtual time."""

from __future__ import annotations

from typing import Any, Final

from requite.engine import Finished, Input, Produced
from requite.request import Status
from requite.sim.kernel.engine_process import EngineProcess
from requite.sim.kernel.history import Execution
from requite.sim.kernel.knobs import Behaviour
from requite.sim.kernel.workload import Task, final_frames, partial_frames

# A poison request crashes its worker after this part of its service time.
_DIES_AFTER: Final = 0.5
_RESTART_S: Final = 1.0
HANG_S: Final = 2.0


class Handling(EngineProcess):
    """A process that runs handlers. A handler that hangs ends after `hang_s` if nothing else can
    end it, such as the loss of its caller."""

    hang_s = HANG_S

    def forget_handlers(self) -> None:
        """Forget the handlers from before a restart."""
        self._running: dict[Any, Execution] = {}

    def partial_reply(self, number: int, serial: int, index: int) -> list[bytes]:
        """Return a partial reply of the execution `serial` of call `number`."""
        return partial_frames(number, serial, index)

    def final_reply(self, number: int, serial: int, payload: bytes) -> list[bytes]:
        """Return the final reply of the execution `serial` of call `number`."""
        return final_frames(number, serial, payload)

    def abandon(self, token: Any, reason: str) -> None:
        """Stop a handler; like any other, it ends a little later."""
        execution = self._running.get(token)
        if execution is not None:
            execution.ended = "abandoned"
        self.later(0.001, self.answer, token, Status.CANCELLED, [reason.encode()])

    def begin(self, token: Any, execution: Execution, task: Task, payload: bytes) -> None:
        """Start the handler of a request."""
        self._running[token] = execution
        self.run(token, task, payload)

    def run(self, token: Any, task: Task, payload: bytes) -> None:
        """Follow the instructions of the task."""
        match task.behaviour:
            case Behaviour.POISON:
                self.later(task.service_s * _DIES_AFTER, self._poisoned, token)
            case Behaviour.HANG:
                self.later(self.hang_s, self.finish, token, task, payload)
            case Behaviour.STREAM:
                self.later(task.service_s, self._part, token, task, payload, 0)
            case _ if not task.service_s:  # at once, from inside the engine's callback
                self.finish(token, task, payload)
            case _:
                self.later(task.service_s, self.finish, token, task, payload)

    def lives(self, token: Any) -> bool:
        """Whether a handler still runs."""
        execution = self._running.get(token)
        return execution is not None and not execution.ended

    def finish(self, token: Any, task: Task, payload: bytes) -> None:
        """End a handler that still runs, as its task says."""
        if not self.lives(token):
            return
        serial = self._running[token].serial
        if task.behaviour is Behaviour.FAIL:
            self.answer(token, Status.FAILED, [b"the handler of call %d fails" % task.number])
        else:
            self.answer(token, Status.OK, self.final_reply(task.number, serial, payload))

    def answer(self, token: Any, status: Status, frames: list[bytes]) -> None:
        """Report the end of a handler to the engine."""
        execution = self._running.pop(token, None)
        if execution is not None and not execution.ended:
            execution.ended = status.name
        self.say(Finished(token, frames, status))

    def say(self, event: Input) -> None:
        """Feed the engine an event of a handler."""
        self.host.submit(event)

    def _part(self, token: Any, task: Task, payload: bytes, index: int) -> None:
        if not self.lives(token):
            return
        if index == task.parts:
            self.finish(token, task, payload)
            return
        serial = self._running[token].serial
        self.say(Produced(token, self.partial_reply(task.number, serial, index)))
        self.later(task.service_s, self._part, token, task, payload, index + 1)

    def _poisoned(self, token: Any) -> None:
        if self.lives(token):
            self.world.after(_RESTART_S, self.start)
            self.crash(politely=self.rng.random() < 0.5)
