"""Programs with a real worker, and handlers of three kinds.

A request or a reply is one frame: the two frames of the other simulations, joined by a line feed.
All protocols support one frame; SP supports no more.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Final

from requite.core.liveness import HeartbeatPolicy
from requite.protocols.majordomo.keyed import service_of
from requite.request import Request
from requite.sim.kernel.history import Execution
from requite.sim.kernel.knobs import Behaviour
from requite.sim.kernel.workload import final_frames, parse_task, partial_frames
from requite.sim.shells.knobs import POOL, Handler, ShellWorkerSpec, Transport
from requite.sim.shells.stage import BACK, FRONT, Member, ShellStage, brokers
from requite.worker.handler import Service, service
from requite.worker.worker import Worker

HANG_S: Final = 2.0
_NO_SERVICE: Final = "alpha"  # the service name in protocols without service names


class ShellWorker(Member):
    """A worker, with the three kinds of handler."""

    worker: Worker

    def __init__(
        self, spec: ShellWorkerSpec, stage: ShellStage, broker: str = "", *, key: str = ""
    ) -> None:
        super().__init__(spec.name, stage)
        self._key = key  # the key of its group in a pool
        self._broker = broker or brokers(stage.knobs)
        self.spec = spec
        self.running: set[int] = set()  # serial numbers of executions since the last start

    async def main(self) -> None:
        """Run the worker."""
        self.running = set()
        self.worker = self._make_worker()
        await self.worker.serve()

    def _make_worker(self) -> Worker:
        knobs, make = self.stage.knobs, self.stage.parts.worker
        settings: dict[str, Any] = {"drain_timeout": knobs.drain_timeout_s}
        heartbeat = HeartbeatPolicy(knobs.interval_s, knobs.liveness)
        capacity = {"capacity": self.spec.capacity}
        only = self._service(_NO_SERVICE, self.spec.handler)
        match knobs.transport:
            case Transport.QUEUE:
                url = f"pirate://queue:{BACK}"
                return make(url, only, heartbeat=heartbeat, **capacity, **settings)
            case Transport.DEVICE:
                return make(f"sp+tcp://device:{BACK}", only, **capacity, **settings)
            case Transport.SP:
                return make(only, bind=f"sp+tcp://localhost:{FRONT}", **capacity, **settings)
            case Transport.FREELANCE:
                place = f"flp://*:{FRONT}?public=tcp://{self.name}:{FRONT}"
                return make(only, bind=place, insecure=True, **capacity, **settings)
        names = knobs.services
        if self._key:
            name = service_of(POOL, self._key)
            names = {name: names[name]}
        services = [self._service(name, handler) for name, handler in names.items()]
        url = f"mdp://{self._broker}"
        return make(url, *services, heartbeat=heartbeat, **capacity, **settings)

    # --- handlers ---------------------------------------------------------------------------------
    def _service(self, name: str, kind: Handler) -> Service:
        handlers: dict[Handler, Any] = {
            Handler.COROUTINE: self._serve,
            Handler.FUNCTION: self._serve_in_thread,
            Handler.GENERATOR: self._serve_in_parts,
        }
        return service(name)(handlers[kind])

    def _begin(self, request: Request) -> tuple[Execution, Any]:
        head, _, payload = request.body.partition(b"\n")
        task = parse_task([head, payload])
        assert task is not None
        history = self.stage.history
        call = history.calls[task.number]
        # The key of a durable request is its ticket.
        key = b"" if self.stage.knobs.is_durable else request.idempotency_key
        execution = history.started(call, self.name, payload, key)
        self.running.add(execution.serial)
        self.say(f"begins {execution} of call {task.number}: {task.behaviour}")
        return execution, task

    async def _serve(self, request: Request) -> bytes:
        execution, task = self._begin(request)
        try:
            await asyncio.sleep(HANG_S if task.behaviour is Behaviour.HANG else task.service_s)
            return await self._finish(execution, task)
        finally:
            self.running.discard(execution.serial)

    async def _finish(self, execution: Execution, task: Any) -> bytes:
        if task.behaviour is Behaviour.POISON:
            self._die()
            await asyncio.get_running_loop().create_future()
        return self._answer(execution, task)

    def _serve_in_thread(self, request: Request) -> bytes:
        execution, task = self._begin(request)
        self.running.discard(execution.serial)
        if task.behaviour is Behaviour.POISON:
            self._die()
        return self._answer(execution, task)

    def _answer(self, execution: Execution, task: Any) -> bytes:
        if task.behaviour is Behaviour.FAIL:
            raise ValueError(f"the handler of call {task.number} fails")
        return b"\n".join(final_frames(task.number, execution.serial, execution.payload))

    async def _serve_in_parts(self, request: Request) -> AsyncIterator[bytes]:
        execution, task = self._begin(request)
        try:
            for index in range(task.parts):
                await asyncio.sleep(task.service_s)
                (part,) = partial_frames(task.number, execution.serial, index)
                yield part
            await asyncio.sleep(HANG_S if task.behaviour is Behaviour.HANG else 0.0)
            yield await self._finish(execution, task)
        finally:
            self.running.discard(execution.serial)

    def _die(self) -> None:
        self.world.after(1.0, self.start)
        self.crash(politely=self.rng.random() < 0.5)
