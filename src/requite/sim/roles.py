"""The processes of a run that keep to the protocols: the broker, clients and workers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any, Final

from requite.engine import Cancel, Engine, Finished, Produced, Progressed, Submit
from requite.errors import CallError, TransportError
from requite.framing import Framing, IdentityTable, SocketType, Zmtp
from requite.heartbeat import HeartbeatPolicy
from requite.protocols.majordomo.broker import MajordomoBroker
from requite.protocols.majordomo.calls import ClientPolicy
from requite.protocols.majordomo.client import client_engine
from requite.protocols.majordomo.dialects import by_version
from requite.protocols.majordomo.jobs import WorkerPolicy
from requite.protocols.majordomo.worker import MajordomoWorker
from requite.request import Partial, Reply, Request, RetryPolicy, Status
from requite.shell.host import Host
from requite.shell.link import Link
from requite.shell.route import Route
from requite.sim.history import Call, Execution, History
from requite.sim.knobs import Behaviour, ClientSpec, Knobs, WorkerSpec
from requite.sim.process import Process, Supervisor
from requite.sim.watch import Watched, WatchedBroker, WatchedClient, WatchedWorker
from requite.sim.workload import CallPlan, Task, final_frames, parse_task, partial_frames
from requite.transport.address import TcpAddress
from requite.transport.backoff import Backoff

if TYPE_CHECKING:
    from requite.sim.network import Network
    from requite.sim.stream import SimStream
    from requite.sim.transcript import Transcript
    from requite.sim.world import World

BROKER: Final = "broker"
_ADDRESS: Final = TcpAddress(BROKER, 5555)
# Without a lease, and without ids to cancel by, nothing ever ends a handler that hangs.
_HANG_S_MAX: Final = 4.0
_DIES_AFTER: Final = (
    0.5  # the part of its service time that a poisonous request lets its worker live
)


@dataclass(frozen=True, slots=True)
class Parts:
    """The engines under test. Mutation tests put broken ones here."""

    broker: Callable[..., Engine] = MajordomoBroker
    client: Callable[..., Engine] = client_engine
    worker: Callable[..., Engine] = MajordomoWorker


@dataclass(frozen=True, slots=True)
class Stage:
    """What all processes of a run share."""

    world: World
    network: Network
    history: History
    supervisor: Supervisor
    knobs: Knobs
    parts: Parts
    transcript: Transcript | None = None


class Broker(Process):
    """The broker; its address is the name of its node."""

    watched: WatchedBroker

    def __init__(self, stage: Stage) -> None:
        super().__init__(BROKER, stage.world, stage.network, stage.knobs.pace, stage.supervisor)
        self._stage = stage

    def make_host(self) -> Host:
        """Make a broker that remembers nothing."""
        stage = self._stage
        engine = stage.parts.broker(stage.knobs.broker_policy)
        self.watched = WatchedBroker(engine, self, stage.history, self._call_of, stage.transcript)
        self.identities: IdentityTable[Link] = IdentityTable(
            start=self.rng.getrandbits(32), handover=stage.knobs.handover
        )
        return Host(
            self.watched,
            self.clock,
            lambda: Zmtp(SocketType.ROUTER),
            wake_at=self.wake_at,
            want_flush=self.want_flush,
            stopped=self.has_stopped,
            identities=self.identities,
            limits=stage.knobs.limits,
            logger="requite.sim",
        )

    def started(self) -> None:
        """Listen."""
        self.network.listen(self)
        self._stage.history.tell("broker_started", self)

    def _end(self, what: str) -> None:
        super()._end(what)
        self.network.listen_no_more(self)
        self._stage.history.tell("broker_ended", self)

    def has_stopped(self) -> None:
        """Take no more connections, and leave."""
        self.network.listen_no_more(self)
        super().has_stopped()

    def _call_of(self, body: Sequence[bytes]) -> Call | None:
        task = parse_task(body)
        return None if task is None else self._stage.history.calls.get(task.number)


class Dialler(Process):
    """A process that keeps connected to the broker, as its engine asks for."""

    watched: Watched
    watch: type[Watched] = Watched

    def __init__(self, name: str, identity: bool, stage: Stage) -> None:
        super().__init__(name, stage.world, stage.network, stage.knobs.pace, stage.supervisor)
        self._stage = stage
        self._identity = name.encode() if identity else b""

    def make_engine(self) -> Engine:
        """Make the engine of a new life."""
        raise NotImplementedError

    def make_host(self) -> Host:
        """Make a host that dials."""
        self._route = Route([_ADDRESS], Backoff(self.rng.random), self.clock)
        self._wanted = 0  # connections to dial, one after the other
        self._dialling = False
        self.watched = self.watch(
            self.make_engine(), self, self._stage.history, self._stage.transcript
        )
        return Host(
            self.watched,
            self.clock,
            self._make_framing,
            wake_at=self.wake_at,
            want_flush=self.want_flush,
            connect=self._connect,
            deliver=self.deliver,
            fail=self.fail,
            abandon=self.abandon,
            stopped=self.has_stopped,
            ended=self._route.ended,
            limits=self._stage.knobs.limits,
            logger="requite.sim",
        )

    def deliver(self, token: Any, what: Any) -> None:
        """Take what the engine delivers."""
        raise NotImplementedError

    def fail(self, token: Any, error: CallError) -> None:
        """Take a failure."""
        raise NotImplementedError

    def abandon(self, token: Any, reason: str) -> None:
        """Give work up."""
        raise NotImplementedError

    def _make_framing(self) -> Framing:
        return Zmtp(SocketType.DEALER, identity=self._identity)

    # --- dialling: what `requite.shell.aio` does, on the simulated network ------------------------
    def _connect(self) -> None:
        self._wanted += 1
        if not self._dialling:
            self._dialling = True
            self._dial_on()

    def _dial_on(self) -> None:
        self._dialling = self._wanted > 0 and not self.drained
        if self._dialling:
            self.later(self._route.pause_s(), self._dial)

    def _dial(self) -> None:
        self.network.dial(self, BROKER, self._connected, self._not_connected)

    def _connected(self, stream: SimStream) -> None:
        self.adopt(stream, lambda: self._open(stream))

    def _open(self, stream: SimStream) -> None:
        if self.drained:
            del self.streams[stream]
            stream.die(politely=False)
            return
        self._wanted -= 1
        self._route.opened(_ADDRESS, self.host.opened(stream))
        self._dial_on()

    def _not_connected(self, why: str) -> None:
        self.later(0.0, self._try_again, why)

    def _try_again(self, why: str) -> None:
        self._route.failed(_ADDRESS, TransportError(why))
        self._dial_on()


class ClientProcess(Dialler):
    """A client, and its user who makes the planned calls."""

    watch = WatchedClient

    def __init__(self, spec: ClientSpec, stage: Stage) -> None:
        super().__init__(spec.name, spec.identity, stage)
        self.spec = spec
        self.followers: dict[int, CallPlan] = {}  # calls to make when others end, by their numbers

    def make_engine(self) -> Engine:
        """Make a client."""
        spec, knobs = self.spec, self._stage.knobs
        first = self._draw_sequence() if spec.first_sequence is None else spec.first_sequence
        policy = ClientPolicy(
            slots=spec.slots,
            retry=RetryPolicy(attempts=spec.tries, attempt_timeout=spec.attempt_timeout_s),
            heartbeat=knobs.heartbeat,
            connections_max=8,
            eager=self.rng.random() < 0.5,
        )
        dialect = by_version(spec.version)
        return self._stage.parts.client(dialect, policy, rng=self.rng.random, first_sequence=first)

    def _draw_sequence(self) -> int:
        """Draw a sequence number that is about to wrap, in every second life."""
        return (1 << 32) - 8 if self.rng.random() < 0.5 else self.rng.getrandbits(32)

    def _end(self, what: str) -> None:
        super()._end(what)
        self._stage.history.client_died(self.name)

    def call(self, plan: CallPlan) -> None:
        """Make a call, if there is anybody to make it."""
        if self.alive and not self.drained:
            self.later(0.0, self._submit, plan)

    def _submit(self, plan: CallPlan) -> None:
        now = self.world.now
        timeout_s = inf if plan.timeout_s is None else plan.timeout_s
        call = Call(
            plan.number,
            self.name,
            plan.service,
            plan.payload,
            now + timeout_s,
            plan.idempotent,
            self.spec.version == "0.3",
            b"key-%d" % plan.number if plan.number % 3 == 0 else b"",
            self.spec.tries,
            now,
            self.frozen_s,
        )
        self._stage.history.submitted(call)
        if plan.cancel_after_s is not None:
            self.later(plan.cancel_after_s, self.cancel, call)
        self.host.submit(
            Submit(
                call,
                plan.service,
                plan.frames,
                self.clock() + timeout_s,
                plan.idempotent,
                call.key,
                plan.wants_partials,
            )
        )

    def cancel(self, call: Call) -> None:
        """Give a call up, unless it has ended."""
        if call.ended_at is None:
            self._stage.history.cancelled(call)
            self.host.submit(Cancel(call))

    def deliver(self, token: Any, what: Any) -> None:
        """Take a reply."""
        history = self._stage.history
        if isinstance(what, Partial):
            history.delivered(token, what)
        else:
            assert isinstance(what, Reply)
            self._end_call(token, what)

    def fail(self, token: Any, error: CallError) -> None:
        """Take an error."""
        self._end_call(token, error)

    def _end_call(self, call: Call, outcome: Reply | CallError) -> None:
        """Note the end, and make the call that waited for it, from inside the engine's callback."""
        if self._stage.transcript is not None:
            self._stage.transcript.outcome(self.name, call, outcome)
        self._stage.history.ended(call, outcome, self.frozen_s)
        follower = self.followers.pop(call.number, None)
        if follower is not None:
            self._submit(follower)


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
