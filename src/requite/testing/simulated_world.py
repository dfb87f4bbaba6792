"""The world of a simulated test: processes, faults, a clock."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from random import Random
from typing import Any, Final

from requite.broker import Broker
from requite.client.aio import AsyncClient
from requite.errors import ConfigurationError
from requite.pair import Pair
from requite.shell.daemon import Daemon
from requite.sim.kernel import virtual
from requite.sim.kernel.diagram import diagram
from requite.sim.kernel.fault_injection import (
    FaultAction,
    FaultInjector,
    NodePair,
    choose,
    spare,
    upon,
)
from requite.sim.kernel.faults import Fault
from requite.sim.kernel.medium import Chunking, Shape
from requite.sim.kernel.network import Network
from requite.sim.kernel.process import Pace, Process
from requite.sim.kernel.program import Program
from requite.sim.kernel.stream import SimStream
from requite.sim.kernel.transcript import RUN, Transcript
from requite.sim.kernel.world import Stuck, World, luck
from requite.speaks.plans import Carries
from requite.worker.handler import Group, Service
from requite.worker.worker import Worker

_PORT: Final = 5555
_PAIR_PORT: Final = 5560
_TEST: Final = "test"
_ROLES: Final = ("broker", "worker")
_OF_ROLES: Final = ("kill", "freeze", "drain", "cut power to")
_OF_NETWORK: Final = ("partition", "partition one way", "reset connection", "forget connection")
FAULTS: Final = (*_OF_NETWORK, *(f"{what} {role}" for what in _OF_ROLES for role in _ROLES))
"""The faults that `simulate` accepts."""
_THREADS: Final = (
    "it writes files from a thread, which a simulation does not support; remove it, and test"
    " it with real processes"
)
_HEAL_S: Final = 1.0

Make = Callable[[], Service | Group | Sequence[Service | Group]]

_ALL: Final = Carries(names=True, refusals=True, partials=True)


class SimulationFailed(AssertionError):
    """A test did not end in time, or a process of the simulation raised an exception."""


class SimulatedWorld:
    """The argument of a simulated test: processes, faults, a clock.

    Each process runs on a node of a network; its name is its host name in URLs. A killed process
    restarts with empty memory. Objects of the test survive, like a database or a disk.
    """

    def __init__(self, seed: int, plan: Sequence[Fault], limit_s: float) -> None:
        self.seed = seed
        """The seed of the run."""
        self.random: Random = luck(seed, _TEST)
        """A random generator for the test, seeded."""
        self._world = World(seed)
        self.network = Network(self._world, _draw_network(luck(seed, "network")))
        self._pace = Pace(0.001, 0.0005)
        self._plan = plan
        self._limit_s = limit_s
        self._brokers: list[Program] = []
        self._workers: list[Program] = []
        self._programs: list[Program] = []
        self._failure: BaseException | None = None
        self._transcript = Transcript(self._world, lambda _sender, _message: "")
        self._injector = _Faults(self)
        self._is_over = False

    # --- processes --------------------------------------------------------------------------------
    def broker(self, **settings: Any) -> None:
        """Start a broker; `settings` are those of `requite.Broker`."""
        _refuse_threads(settings)
        settings.setdefault("insecure", True)  # there is nobody else on this network
        self._start("broker", self._brokers, lambda: Broker(f"tcp://*:{_PORT}", **settings))

    def pair(self, *, heartbeat: float = 1.0, **settings: Any) -> None:
        """Start a pair of brokers, of which one is active (`requite.pair.Pair`)."""
        _refuse_threads(settings)
        settings.setdefault("insecure", True)
        names = ("broker-1", "broker-2")
        for role, name, other in zip(("primary", "backup"), names, names[::-1], strict=True):

            def make(role: Any = role, other: str = other) -> Broker:
                peer = f"tcp://{other}:{_PAIR_PORT}"
                bind = f"tcp://*:{_PAIR_PORT}"
                pair = Pair(role, bind=bind, peer=peer, heartbeat=heartbeat, insecure=True)
                return Broker(f"tcp://*:{_PORT}", pair=pair, **settings)

            self._start(name, self._brokers, make)

    def worker(
        self,
        *services: Service | Group | Make,
        count: int = 1,
        url: str | None = None,
        **settings: Any,
    ) -> None:
        """Start `count` workers, each in its own process.

        Each of `services` is a service, or a function that returns one or several at each start of
        the process, so that handlers lose their memory at a crash. `url`: where to connect (None:
        the brokers of this world; "": nowhere, with `bind`). `settings` are those of
        `requite.Worker`.
        """
        _refuse_threads(settings)
        settings.setdefault("insecure", True)
        if count < 1:
            raise ConfigurationError(f"at least one worker is needed, not {count}")
        dialled = self.url() if url is None else url

        def make() -> Worker:
            made = [each for what in services for each in _made(what)]
            return Worker(dialled, *made, **settings) if dialled else Worker(*made, **settings)

        for _ in range(count):
            self._start(f"worker-{len(self._workers) + 1}", self._workers, make)

    def program(self, name: str, main: Callable[[], Coroutine[Any, Any, object]]) -> Program:
        """Start a process that runs `main`, again at each restart.

        Raises `ConfigurationError` if another process has this name.
        """
        if any(program.name == name for program in self._programs):
            raise ConfigurationError(f"the name {name!r} is already in use by another process")
        program = Program(name, self._world, self.network, self._pace, self, main)
        self._programs.append(program)
        program.start()
        return program

    def client(self, service: str = "", **settings: Any) -> AsyncClient:
        """Return a client of this world's brokers, in the test's process, for `async with`.

        For other transports create an `AsyncClient` with a URL: `sp+tcp://worker-1:7000`.
        """
        _refuse_threads(settings)
        return AsyncClient(self.url(service), **settings)

    def url(self, service: str = "") -> str:
        """Return the URL of a service at this world's brokers."""
        names = [program.name for program in self._brokers] or ["broker"]
        places = ",".join(f"{name}:{_PORT}" for name in names)
        return f"mdp://{places}/{service}" if service else f"mdp://{places}"

    def _start(self, name: str, role: list[Program], make: Callable[[], Daemon]) -> None:
        async def main() -> None:
            await make().serve()

        role.append(self.program(name, main))

    # --- faults -----------------------------------------------------------------------------------
    def kill(self, name: str) -> None:
        """Send SIGKILL to a process; `start` restarts it."""
        self.find(name).crash()

    def drain(self, name: str) -> None:
        """Send SIGTERM to a process."""
        self.find(name).drain()

    def freeze(self, name: str) -> None:
        """Send SIGSTOP to a process, until `thaw`."""
        self.find(name).freeze()

    def thaw(self, name: str) -> None:
        """Send SIGCONT to a process."""
        self.find(name).thaw()

    def start(self, name: str) -> None:
        """Restart a process."""
        self.find(name).start()

    def partition(self, one: str, other: str) -> None:
        """Cut two nodes off from each other, until `heal`."""
        for source, sink in ((one, other), (other, one)):
            self.network.cut(self.find(source).name, self.find(sink).name)

    async def heal(self) -> None:
        """End all faults permanently, restart dead processes, and wait a second."""
        self._injector.end()
        self.tell("all faults heal")
        await asyncio.sleep(_HEAL_S)

    def find(self, name: str) -> Program:
        """Return the process `name`. Raises `ConfigurationError` for an unknown name."""
        for program in self._programs:
            if program.name == name:
                return program
        names = ", ".join(program.name for program in self._programs)
        raise ConfigurationError(f"no process {name!r}; the processes are {names}")

    # --- time, and what happened ------------------------------------------------------------------
    @property
    def now(self) -> float:
        """Seconds of virtual time since the start."""
        return self._world.now

    def note(self, what: str) -> None:
        """Add a line to the diagram of the run, which a failure shows."""
        self._transcript.event(virtual.running(_TEST), what)

    def tell(self, what: str) -> None:
        """Record an event of the whole world."""
        self._transcript.event(RUN, what)

    def run(self, test: Callable[[SimulatedWorld], Awaitable[object]]) -> BaseException | None:
        """Run a test in this world; return the exception that it raised, or None."""

        async def main() -> None:
            __tracebackhide__ = True
            try:
                await test(self)
            except BaseException as error:
                self._failure = self._failure or error
            self._is_over = True

        with virtual.quiet(), virtual.world(self._world):
            self.program(_TEST, main)
            for fault in self._plan:
                self._world.at(fault.at_s, self._injector.inject, fault)
            try:
                self._world.run(self._limit_s, unless=lambda: self._is_over)
            except Stuck as stuck:
                self._failure = SimulationFailed(f"the test did not end: {stuck}")
            if not self._is_over and self._failure is None:
                text = f"the test has not ended after {self._limit_s:g} s of virtual time"
                self._failure = SimulationFailed(text)
            for program in self._programs:
                program.discard()
        return self._failure

    def account(self) -> list[str]:
        """Return the diagram of the run."""
        return [*diagram(self._transcript.entries)]

    # --- what processes report --------------------------------------------------------------------
    def process_failed(self, process: Process, trace: str) -> None:
        """Fail the test: a process raised an exception."""
        self._transcript.event(process.name, "fails")
        if self._failure is None:
            self._failure = SimulationFailed(f"the process {process.name} failed:\n{trace}")
        self._is_over = True

    def process_changed(self, process: Process, what: str) -> None:
        """Record that a process starts, ends, freezes or thaws."""
        self._transcript.event(process.name, what)

    # --- what faults inject -----------------------------------------------------------------------
    @property
    def world(self) -> World:
        """The virtual clock and its queue of events."""
        return self._world

    @property
    def honest(self) -> Sequence[Process]:
        """All processes except the test."""
        return [program for program in self._programs if program.name != _TEST]

    @property
    def intruders(self) -> Sequence[Process]:
        """None."""
        return ()

    @property
    def roles(self) -> Mapping[str, Sequence[Process]]:
        """The processes that faults affect by role."""
        return {"broker": self._brokers, "worker": self._workers}

    @property
    def programs(self) -> Sequence[Program]:
        """All processes."""
        return self._programs

    def choose_nodes(self, lot: float) -> NodePair:
        """Choose two processes."""
        programs = [*self._programs]
        one = programs.pop(int(lot * len(programs)))
        return one.name, choose(programs, spare(lot)).name

    def streams(self) -> Sequence[SimStream]:
        """Return the open ends of all connections."""
        return [stream for each in self._programs for stream in each.streams if stream.is_open]


def _made(what: Service | Group | Make) -> Sequence[Service | Group]:
    made = what if isinstance(what, Service | Group) else what()
    services = (made,) if isinstance(made, Service | Group) else made
    for service in services:
        for each in service.serve(_ALL).services if isinstance(service, Group) else (service,):
            if each.idempotent is not None and each.idempotent.is_durable:
                raise ConfigurationError(f"`Dedup` of {each.name!r} has a folder: {_THREADS}")
    return services


def _refuse_threads(settings: Mapping[str, Any]) -> None:
    for name in ("journal", "titanic"):
        if settings.get(name) is not None:
            raise ConfigurationError(f"`{name}` is set: {_THREADS}")


def _draw_network(rng: Random) -> Shape:
    latency_s = rng.choice((0.0001, 0.001, 0.01))
    return Shape(
        latency_s=latency_s,
        jitter_s=rng.choice((0.0, 1.0, 5.0)) * latency_s,
        chunking=rng.choice(tuple(Chunking)),
        retransmit_s=6.0,
        keepalive_s=6.0,
        connect_timeout_s=2.0,
    )


class _Faults(FaultInjector):
    """Performs the faults of a plan."""

    _cast: SimulatedWorld

    def __init__(self, world: SimulatedWorld) -> None:
        super().__init__(world)

    def actions(self) -> dict[str, FaultAction]:
        """Return the action of each fault of `FAULTS`."""
        actions: dict[str, FaultAction] = {
            "partition": self.partition,
            "partition one way": self.partition_one_way,
            "reset connection": self.reset,
            "forget connection": self.black_hole,
        }
        for role, processes in self._cast.roles.items():
            actions[f"kill {role}"] = self.crash(processes)
            actions[f"freeze {role}"] = self.freeze(processes)
            actions[f"drain {role}"] = self.drain(processes)
            actions[f"cut power to {role}"] = self.cut_power(processes)
        return actions

    def inject(self, fault: Fault) -> None:
        """Perform a fault; a partition needs two processes."""
        if fault.kind.startswith("partition") and len(self._cast.programs) < 2:
            return
        super().inject(fault)

    def partition(self, fault: Fault) -> None:
        """Cut two nodes off from each other."""
        there, back = self._cast.choose_nodes(fault.lot)
        self._cast.tell(f"partition between {there} and {back}, for {fault.duration_s:.3f} s")
        super().partition(fault)

    def partition_one_way(self, fault: Fault) -> None:
        """Drop traffic from one node to another, in this direction only."""
        there, back = self._choose_direction(fault.lot)
        self._cast.tell(f"partition from {there} to {back}, for {fault.duration_s:.3f} s")
        super().partition_one_way(fault)

    def reset(self, fault: Fault) -> None:
        """Close a connection; both ends detect it."""
        self._tell_of_stream(fault, "is reset")
        super().reset(fault)

    def black_hole(self, fault: Fault) -> None:
        """Drop all further traffic of a connection; neither end detects it."""
        self._tell_of_stream(fault, "is forgotten")
        super().black_hole(fault)

    def _tell_of_stream(self, fault: Fault, what: str) -> None:
        stream = self._choose_stream(fault.lot)
        if stream is not None:
            between = f"{stream.node} and {stream.other.node}"
            self._cast.tell(f"the connection between {between} {what}")

    def cut_power(self, processes: Sequence[Process]) -> FaultAction:
        """Return the action that drops all connections of one of `processes` without a FIN."""

        def act(process: Process, fault: Fault) -> None:
            process.lose_power()
            self._world.after(fault.duration_s, process.start)

        return upon(processes, act)
