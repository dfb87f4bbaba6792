"""The process of a worker, and its handlers, which follow the instructions in the requests."""

from __future__ import annotations

from typing import Any

from requite.core.liveness import HeartbeatPolicy
from requite.engine import Engine, Progressed
from requite.errors import CallError
from requite.protocols.majordomo.dialects import by_version
from requite.protocols.majordomo.jobs import WorkerPolicy
from requite.request import Request, Status
from requite.sim.kernel.handlers import Handling
from requite.sim.kernel.knobs import Behaviour
from requite.sim.kernel.workload import Task, final_frames, parse_task, partial_frames
from requite.sim.majordomo.knobs import WorkerSpec
from requite.sim.majordomo.roles import Dialler, Stage
from requite.sim.majordomo.watch import WatchedWorker


class WorkerProcess(Handling, Dialler):
    """A worker, and its handlers."""

    watch = WatchedWorker
    # Ends a handler that hangs; without a lease, and without ids to cancel by, nothing else does.
    hang_s = 4.0

    def __init__(self, spec: WorkerSpec, stage: Stage) -> None:
        super().__init__(spec.name, spec.identity, stage)
        self.spec = spec

    def make_engine(self) -> Engine:
        """Return a new worker engine; forget handlers from before a restart."""
        spec = self.spec
        self.forget_handlers()
        self._stuck: set[Any] = set()
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
        if task is None or call is None:  # an intruder's request
            self.later(0.0, self.answer, token, Status.OK, list(request.frames))
            return
        knows_keys = call.carries_idempotency and self.spec.version == "0.3"
        key = request.idempotency_key if knows_keys else call.key
        execution = history.started(call, self.name, request.frames[1], key)
        self.begin(token, execution, task, request.frames[1])

    def fail(self, token: Any, error: CallError) -> None:
        """Raise: workers make no calls."""
        raise AssertionError(f"a worker's engine fails {token!r}: {error}")

    def partial_reply(self, number: int, serial: int, index: int) -> list[bytes]:
        """Return a partial reply."""
        return partial_frames(number, serial, index)

    def final_reply(self, number: int, serial: int, payload: bytes) -> list[bytes]:
        """Return a final reply."""
        return final_frames(number, serial, payload)

    # --- handlers ---------------------------------------------------------------------------------
    def abandon(self, token: Any, reason: str) -> None:
        """Stop a handler; one that hangs goes on if the run is about limits, as a thread would."""
        if token not in self._stuck:
            super().abandon(token, reason)

    def run(self, token: Any, task: Task, payload: bytes) -> None:
        """Follow the instructions of the task; the lease ends a handler that hangs."""
        lease_s = self.spec.lease_s
        if task.behaviour is Behaviour.HANG and self._stage.knobs.is_limited:
            self._stuck.add(token)
        match task.behaviour:
            case Behaviour.HANG if lease_s:
                return
            case Behaviour.VOUCH:
                times = 3 if lease_s else 0
                self.later(lease_s / 2, self._vouch, token, task, payload, times)
            case Behaviour.POISON:
                super().run(token, task, payload)
            case _:
                super().run(token, task._replace(service_s=self._bounded_s(task)), payload)

    def _bounded_s(self, task: Task) -> float:
        """Return a service time within the lease."""
        return min(task.service_s, 0.8 * self.spec.lease_s) if self.spec.lease_s else task.service_s

    def _vouch(self, token: Any, task: Task, payload: bytes, times: int) -> None:
        if not self.lives(token):
            return
        if not times:
            self.finish(token, task, payload)
            return
        extend_s = self.spec.lease_s if times == 1 else 0.0
        self.say(Progressed(token, extend_s))
        self.later(self.spec.lease_s / 2, self._vouch, token, task, payload, times - 1)
