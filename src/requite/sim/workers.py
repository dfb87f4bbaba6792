"""A worker's process, and its handlers, which do what the requests say."""

from __future__ import annotations

from typing import Any, Final

from requite.engine import Engine, Finished, Produced, Progressed
from requite.errors import CallError
from requite.heartbeat import HeartbeatPolicy
from requite.protocols.majordomo.dialects import by_version
from requite.protocols.majordomo.jobs import WorkerPolicy
from requite.request import Request, Status
from requite.sim.history import Execution
from requite.sim.knobs import Behaviour, WorkerSpec
from requite.sim.roles import Dialler, Stage
from requite.sim.watch import WatchedWorker
from requite.sim.workload import Task, final_frames, parse_task, partial_frames

# Without a lease, and without ids to cancel by, nothing ever ends a handler that hangs.
_HANG_S_MAX: Final = 4.0
# A poisonous request lets its worker live for this part of its service time.
_DIES_AFTER: Final = 0.5


class WorkerProcess(Dialler):
    """A worker, and its handlers, which do what the requests say."""

    watch = WatchedWorker

    def __init__(self, spec: WorkerSpec, stage: Stage) -> None:
        super().__init__(spec.name, spec.identity, stage)
        self.spec = spec
        self._running: dict[Any, Execution] = {}
        self.restart_s = 1.0

    def make_engine(self) -> Engine:
        """Make a worker; handlers of an earlier life are gone."""
        spec = self.spec
        self._running = {}
        policy = WorkerPolicy(
            capacity=spec.capacity,
            heartbeat=HeartbeatPolicy(spec.interval_s, self._stage.knobs.liveness),
            lease_s=spec.lease_s,
        )
        dialect = by_version(spec.version)
        return self._stage.parts.worker(dialect, spec.service, policy, rng=self.rng.random)

    def deliver(self, token: Any, what: Any) -> None:
        """Start a handler."""
        request: Request = what
        history = self._stage.history
        task = parse_task(request.frames)
        call = None if task is None else history.calls.get(task.number)
        if task is None or call is None:  # a stranger's request
            self.later(0.0, self._answer, token, Status.OK, list(request.frames))
            return
        knows_keys = call.is_told and self.spec.version == "0.3"
        key = request.idempotency_key if knows_keys else call.key
        execution = history.started(call, self.name, request.frames[1], key)
        self._running[token] = execution
        self._run(token, task, request.frames[1])

    def fail(self, token: Any, error: CallError) -> None:
        """Take an error: workers make no calls."""
        raise AssertionError(f"a worker's engine fails {token!r}: {error}")

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
                if not self.spec.lease_s:
                    self.later(_HANG_S_MAX, self._finish, token, task, payload)
            case Behaviour.STREAM:
                task = task._replace(service_s=self._bounded_s(task))
                self.later(task.service_s, self._part, token, task, payload, 0)
            case Behaviour.VOUCH:
                times = 3 if self.spec.lease_s else 0
                self.later(self.spec.lease_s / 2, self._vouch, token, task, payload, times)
            case _ if not task.service_s:  # at once, from inside the engine's callback
                self._finish(token, task, payload)
            case _:
                self.later(self._bounded_s(task), self._finish, token, task, payload)

    def _bounded_s(self, task: Task) -> float:
        """Return a service time that needs no vouching."""
        return min(task.service_s, 0.8 * self.spec.lease_s) if self.spec.lease_s else task.service_s

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
        self.host.submit(Produced(token, partial_frames(task.number, serial, index)))
        self.later(task.service_s, self._part, token, task, payload, index + 1)

    def _vouch(self, token: Any, task: Task, payload: bytes, times: int) -> None:
        if not self._lives(token):
            return
        if not times:
            self._finish(token, task, payload)
            return
        extend_s = self.spec.lease_s if times == 1 else 0.0
        self.host.submit(Progressed(token, extend_s))
        self.later(self.spec.lease_s / 2, self._vouch, token, task, payload, times - 1)

    def _poisoned(self, token: Any) -> None:
        if self._lives(token):
            self.world.after(self.restart_s, self.start)
            self.crash(politely=self.rng.random() < 0.5)

    def _finish(self, token: Any, task: Task, payload: bytes) -> None:
        if not self._lives(token):
            return
        serial = self._running[token].serial
        if task.behaviour is Behaviour.FAIL:
            self._answer(token, Status.FAILED, [b"the handler of call %d fails" % task.number])
        else:
            self._answer(token, Status.OK, final_frames(task.number, serial, payload))

    def _answer(self, token: Any, status: Status, frames: list[bytes]) -> None:
        execution = self._running.pop(token, None)
        if execution is not None and not execution.ended:
            execution.ended = status.name
        self.host.submit(Finished(token, frames, status))
