"""The processes of a run: real clients, workers, brokers, queues and devices, each in a program.

A request and a reply are one frame: the frames that the other simulations have, with a line feed
after the first. SP has no more, and all protocols take it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Any, Final

from requite.broker import Broker
from requite.client.aio import AsyncClient
from requite.client.asking import deadline
from requite.core.liveness import HeartbeatPolicy
from requite.errors import CallError, Cancelled
from requite.pair import Pair
from requite.protocols.majordomo.policy import BrokerPolicy
from requite.protocols.pirate.policy import QueuePolicy
from requite.protocols.titanic.policy import TitanicPolicy
from requite.queue.queue import Queue
from requite.request import Reply, Request, RetryPolicy
from requite.shell.daemon import Daemon
from requite.shell.signals import StopSignals
from requite.sim.history import Call, Execution, History
from requite.sim.knobs import Behaviour
from requite.sim.process import Process, Supervisor
from requite.sim.shells.knobs import (
    MIDDLE,
    SERVICES,
    Handler,
    ShellClientSpec,
    ShellKnobs,
    ShellWorkerSpec,
    Transport,
)
from requite.sim.shells.program import Program
from requite.sim.shells.titanic import OnSimDisk
from requite.sim.titanic.disk import SimDisk
from requite.sim.user import BaseUser
from requite.sim.workload import CallPlan, final_frames, parse_task, partial_frames
from requite.sp.device import Device
from requite.titanic.store import StoreSettings
from requite.titanic.titanic import Titanic
from requite.worker.handler import Service, service
from requite.worker.worker import Worker

if TYPE_CHECKING:
    from requite.sim.network import Network
    from requite.sim.transcript import Transcript
    from requite.sim.world import World

HANG_S: Final = 2.0
FETCH_S: Final = 60.0
_FRONT: Final = 5555
_BACK: Final = 5556
_PAIR: Final = 5560
_NO_SERVICE: Final = "alpha"  # what a worker without named services calls its own


@dataclass(frozen=True, slots=True)
class ShellParts:
    """The shells under test. Mutation tests put broken ones here."""

    client: Callable[..., AsyncClient] = AsyncClient
    worker: Callable[..., Worker] = Worker
    broker: Callable[..., Broker] = Broker
    queue: Callable[..., Queue] = Queue
    device: Callable[..., Device] = Device
    titanic: Callable[..., Titanic] = Titanic


@dataclass(frozen=True, slots=True)
class ShellStage:
    """What all processes of a run share."""

    world: World
    network: Network
    history: History
    supervisor: Supervisor
    knobs: ShellKnobs
    parts: ShellParts
    transcript: Transcript | None = None
    tickets: dict[str, Call] = field(default_factory=dict)  # of durable requests, while kept


class Member(Program):
    """A program of a run."""

    def __init__(self, name: str, stage: ShellStage) -> None:
        pace = stage.knobs.pace
        super().__init__(name, stage.world, stage.network, pace, stage.supervisor, self.main)
        self.stage = stage

    async def main(self) -> None:
        """Do what the program is for, until SIGTERM."""
        raise NotImplementedError

    def say(self, what: str) -> None:
        """Write a line into the transcript."""
        if self.stage.transcript is not None:
            self.stage.transcript.event(self.name, what)


# --- between clients and workers ------------------------------------------------------------------
class Middle(Member):
    """A broker, a queue or a device, while it lives: `daemon`."""

    daemon: Daemon | None = None

    def __init__(self, name: str, stage: ShellStage) -> None:
        super().__init__(name, stage)
        self.disk = SimDisk()
        self._loses_power = False

    async def main(self) -> None:
        """Serve."""
        self.daemon = self.make_daemon()
        await self.daemon.serve()

    def make_daemon(self) -> Daemon:
        """Make what the transport of the run has between clients and workers."""
        parts, knobs = self.stage.parts, self.stage.knobs
        if self.name == "titanic":
            return self._make_titanic()
        match knobs.transport:
            case Transport.QUEUE:
                policy = QueuePolicy(
                    heartbeat=HeartbeatPolicy(knobs.interval_s, knobs.liveness),
                    drain_timeout_s=knobs.drain_timeout_s,
                )
                return parts.queue(_tcp(_FRONT), _tcp(_BACK), policy=policy)
            case Transport.DEVICE:
                return parts.device(front=f"sp+{_tcp(_FRONT)}", back=f"sp+{_tcp(_BACK)}")
        titanic = self._replicating() if knobs.transport is Transport.REPLICA else None
        return parts.broker(
            _tcp(_FRONT), policy=self._broker_policy(), pair=self._pair(), titanic=titanic
        )

    def _make_titanic(self) -> Titanic:
        parts, knobs = self.stage.parts, self.stage.knobs
        heartbeat = HeartbeatPolicy(knobs.interval_s, knobs.liveness)
        return parts.titanic(f"mdp://{brokers(knobs)}", self._on_disk(), heartbeat=heartbeat)

    def _replicating(self) -> OnSimDisk:
        _, other = MIDDLE[Transport.REPLICA]
        if self.name == other:
            return self._on_disk(standby=True)
        return self._on_disk(replica=f"mdp://{other}:{_FRONT}", sync=True)

    def _on_disk(self, **settings: Any) -> OnSimDisk:
        policy = TitanicPolicy(
            attempt_timeout_s=5.0,
            backoff_s=0.1,
            backoff_s_max=2.0,
            drain_timeout_s=self.stage.knobs.drain_timeout_s,
            cache_bytes_max=0,
        )
        store = StoreSettings(disk_bytes_max=8 << 20, segment_size_bytes=256 << 10)
        return OnSimDisk(policy=policy, store=store, machine=self, **settings)

    def lose_power(self) -> None:
        """Die with the machine; of what was not synced, anything may be on the disk."""
        self._loses_power = self.alive
        super().lose_power()

    def _end(self, what: str) -> None:
        super()._end(what)
        disk = self.disk
        self.disk = disk.after_power_cut(self.rng) if self._loses_power else disk.after_death()
        self._loses_power = False

    def _broker_policy(self) -> BrokerPolicy:
        knobs = self.stage.knobs
        return BrokerPolicy(
            heartbeat=HeartbeatPolicy(knobs.interval_s, knobs.liveness),
            attempts_max=knobs.attempts_max,
            service_grace_s=knobs.service_grace_s,
            drain_timeout_s=knobs.drain_timeout_s,
        )

    def _pair(self) -> Pair | None:
        if self.stage.knobs.transport is not Transport.PAIR:
            return None
        one, other = MIDDLE[Transport.PAIR]
        peer = other if self.name == one else one
        return Pair(
            "primary" if self.name == one else "backup",
            bind=_tcp(_PAIR),
            peer=f"tcp://{peer}:{_PAIR}",
            heartbeat=self.stage.knobs.interval_s,
        )


def _tcp(port: int) -> str:
    return f"tcp://localhost:{port}"


# --- workers --------------------------------------------------------------------------------------
class ShellWorker(Member):
    """A worker, with the three kinds of handler."""

    worker: Worker

    def __init__(self, spec: ShellWorkerSpec, stage: ShellStage, broker: str = "") -> None:
        super().__init__(spec.name, stage)
        self._broker = broker or brokers(stage.knobs)
        self.spec = spec
        self.running: set[int] = set()  # executions of this life

    async def main(self) -> None:
        """Serve."""
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
                url = f"pirate://queue:{_BACK}"
                return make(url, only, heartbeat=heartbeat, **capacity, **settings)
            case Transport.DEVICE:
                return make(f"sp+tcp://device:{_BACK}", only, **capacity, **settings)
            case Transport.SP:
                return make(only, bind=f"sp+tcp://localhost:{_FRONT}", **capacity, **settings)
            case Transport.FREELANCE:
                place = f"flp://*:{_FRONT}?public=tcp://{self.name}:{_FRONT}"
                return make(only, bind=place, **capacity, **settings)
        services = [self._service(name, handler) for name, handler in SERVICES.items()]
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
        # That of a durable request is its ticket.
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


def brokers(knobs: ShellKnobs) -> str:
    """Return the brokers of a run, as in a URL; of replicating ones, the first."""
    names = [name for name in MIDDLE[knobs.transport] if name.startswith("broker")]
    if knobs.transport is Transport.REPLICA:
        del names[1:]
    return ",".join(f"{name}:{_FRONT}" for name in names)


# --- clients --------------------------------------------------------------------------------------
class ShellClient(Member):
    """A client, and its user."""

    client: AsyncClient

    def __init__(self, spec: ShellClientSpec, stage: ShellStage) -> None:
        super().__init__(spec.name, stage)
        self.spec = spec
        self.user = ShellUser(self, stage)
        self.is_open = False

    async def main(self) -> None:
        """Be there for calls."""
        with StopSignals() as signals:
            async with self._make_client() as self.client:
                self.is_open = True
                await signals.first_or(_for_ever())
                self.is_open = False

    def _make_client(self) -> AsyncClient:
        knobs, spec = self.stage.knobs, self.spec
        workers = ",".join(f"{worker.name}:{_FRONT}" for worker in knobs.workers)
        url = {
            Transport.QUEUE: f"pirate://queue:{_FRONT}",
            Transport.DEVICE: f"sp+tcp://device:{_FRONT}",
            Transport.SP: f"sp+tcp://{workers}",
            Transport.FREELANCE: f"flp://{workers}",
        }.get(knobs.transport, f"mdp://{brokers(knobs)}")
        settings: dict[str, Any] = {
            "retry": RetryPolicy(
                attempts=spec.tries,
                attempt_timeout=spec.attempt_timeout_s if knobs.retries else None,
            ),
            "slots": spec.slots,
        }
        if knobs.tells:
            settings["heartbeat"] = HeartbeatPolicy(knobs.interval_s, knobs.liveness)
        return self.stage.parts.client(url, **settings)

    def _end(self, what: str) -> None:
        super()._end(what)
        self.is_open = False
        self.stage.history.client_died(self.name)


async def _for_ever() -> None:
    await asyncio.get_running_loop().create_future()


class ShellUser(BaseUser):
    """The user of a client: each call is a task."""

    _process: ShellClient

    def __init__(self, client: ShellClient, stage: ShellStage) -> None:
        super().__init__(
            client,
            stage.history,
            stage.transcript,
            tries_max=client.spec.tries,
            is_told=stage.knobs.tells,
            has_keys=stage.knobs.is_live,
        )
        self._tasks: dict[Call, asyncio.Task[None]] = {}

    def call(self, plan: CallPlan) -> None:
        """Make a call, if the client is open by then."""
        process = self._process
        if process.alive:
            process.later(0.0, self._submit_if_open, plan)

    def _submit_if_open(self, plan: CallPlan) -> None:
        if self._process.is_open:
            self._submit(plan)

    def submit(self, call: Call, plan: CallPlan, timeout_s: float) -> None:
        """Begin a task that makes the call."""
        at = f" {plan.service}" if plan.service else ""
        self._process.say(f"makes call {call.number}{at}: {plan.behaviour}, {timeout_s:.3g} s")
        self._tasks[call] = self._process.loop.create_task(self._make(call, plan, timeout_s))

    def cancel(self, call: Call) -> None:
        """Cancel the task."""
        if call.ended_at is None:
            self._history.cancelled(call)
            self._tasks[call].cancel()

    async def _make(self, call: Call, plan: CallPlan, timeout_s: float) -> None:
        try:
            outcome: Reply | CallError = await self._outcome(call, plan, timeout_s)
        except CallError as error:
            outcome = error
        except asyncio.CancelledError:
            outcome = Cancelled("the task of the call was cancelled", may_have_executed=True)
        del self._tasks[call]
        if self._process.alive:
            self.end(call, outcome)

    async def _outcome(self, call: Call, plan: CallPlan, timeout_s: float) -> Reply:
        options: dict[str, Any] = {"timeout": None if timeout_s == inf else timeout_s}
        if self._is_told:
            options["idempotent"] = plan.idempotent
        knobs = self._process.stage.knobs
        body = b"\n".join(plan.frames)
        if knobs.is_durable:
            return await self._durable(call, plan.service, body, timeout_s)
        if knobs.has_services:
            options |= {"service": plan.service, "idempotency_key": call.key}
        client = self._process.client
        if not plan.wants_partials:
            return _read(await client.call(body, **options))
        final = b""
        async for reply in client.stream(body, **options):
            if isinstance(reply, Reply):
                return reply._replace(frames=_split([final]))
            if reply.frames[0].startswith(b"part "):
                self._history.delivered(call, reply)
            else:
                final = reply.frames[0]
        raise AssertionError(f"{call} had no final reply")

    async def _durable(self, call: Call, service: str, body: bytes, timeout_s: float) -> Reply:
        client, tickets = self._process.client, self._process.stage.tickets
        until = deadline(timeout_s)
        ticket = await client.submit(body, service=service, timeout=until)
        tickets[ticket] = call
        self._process.say(f"has ticket {ticket[:4]} for call {call.number}")
        return _read(await client.result(ticket, timeout=until))

    async def fetch_all(self, broker: str, promotes: bool) -> dict[str, Reply | CallError]:
        """Fetch what is kept, and have it forgotten; return what came of each ticket."""
        found = dict[str, Reply | CallError]()
        async with AsyncClient(f"mdp://{broker}", timeout=FETCH_S) as client:
            if promotes:
                await client.call(b"", service="titanic.promote")
            for ticket in self._process.stage.tickets:
                try:
                    found[ticket] = _read(await client.result(ticket))
                    await client.forget(ticket)
                except CallError as error:
                    found[ticket] = error
        return found


def _read(reply: Reply) -> Reply:
    """Return a reply as the checkers read them; that of a generator ends with an empty frame."""
    frames = [*reply.frames]
    if len(frames) > 1 and not frames[-1]:
        frames.pop()
    return reply._replace(frames=_split(frames))


def _split(frames: Sequence[bytes]) -> list[bytes]:
    """Split label and payload of the last frame."""
    *parts, final = frames
    label, _, payload = final.partition(b"\n")
    return [*parts, label, payload]


# --- all of them ----------------------------------------------------------------------------------
class ShellCast:
    """All processes of a run; none is started yet."""

    def __init__(self, stage: ShellStage) -> None:
        knobs = stage.knobs
        self.world = stage.world
        self.network = stage.network
        self.middle = [Middle(name, stage) for name in MIDDLE[knobs.transport]]
        self.workers = [ShellWorker(spec, stage) for spec in knobs.workers]
        self.clients = [ShellClient(spec, stage) for spec in knobs.clients]
        self.intruders: list[Process] = []
        self._stage = stage
        self.members: list[Member] = [*self.middle, *self.workers, *self.clients]
        self.honest: list[Process] = [*self.members]
        self._by_name = {client.name: client for client in self.clients}

    def lose_primary(self) -> str:
        """Retire the first of two brokers; return where the second one is, which gets a worker."""
        primary, standby = self.middle
        primary.retired = True
        primary.crash()
        place = f"{standby.name}:{_FRONT}"
        spare = ShellWorker(ShellWorkerSpec("worker-of-standby"), self._stage, place)
        self.workers.append(spare)
        self.members.append(spare)
        spare.start()
        return place

    def client(self, name: str) -> ShellClient:
        """Return the client of that name."""
        return self._by_name[name]
