"""Inject faults into the processes and connections of a cast."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

from requite.sim.kernel.faults import Fault, FaultKind

if TYPE_CHECKING:
    from requite.sim.kernel.network import Network
    from requite.sim.kernel.process import Process
    from requite.sim.kernel.stream import SimStream
    from requite.sim.kernel.world import World

Chosen = TypeVar("Chosen")
FaultAction = Callable[[Fault], None]
NodePair = tuple[str, str]


class FaultTargets(Protocol):
    """The parts of a cast that faults affect."""

    @property
    def world(self) -> World:
        """The virtual clock and the events."""

    @property
    def network(self) -> Network:
        """The network between the processes."""

    @property
    def roles(self) -> Mapping[str, Sequence[Process]]:
        """The processes that follow the protocols, by role."""

    @property
    def honest(self) -> Sequence[Process]:
        """The same processes, in the order of the cast."""

    @property
    def intruders(self) -> Sequence[Process]:
        """The processes that send garbage."""

    def choose_nodes(self, lot: float) -> NodePair:
        """Choose two connected nodes."""

    def streams(self) -> Sequence[SimStream]:
        """Return the connections that faults may break."""


class Injector:
    """Injects the faults of a plan until `end`. Subclasses name the action of each kind."""

    def __init__(self) -> None:
        self._over = False
        self._do = dict(self.actions())

    def actions(self) -> Mapping[str, FaultAction]:
        """Return the action of each kind of fault."""
        raise NotImplementedError

    @property
    def kinds(self) -> list[FaultKind]:
        """The kinds of faults that this run can have."""
        return [kind for kind in FaultKind if kind in self._do]

    def inject(self, fault: Fault) -> None:
        """Inject a fault, unless all faults have ended."""
        if not self._over:
            self._do[fault.kind](fault)

    def end(self) -> None:
        """End all faults, and cancel the planned ones."""
        self._over = True


class FaultInjector(Injector):
    """Injects faults into a cast.

    Every cast has the faults of processes (crash, freeze and drain, by role, and power loss), of
    connections, and of intruders. A subclass adds those of its protocol.
    """

    def __init__(self, cast: FaultTargets) -> None:
        self._cast = cast
        self._world = cast.world
        self._network = cast.network
        self._held: dict[SimStream, None] = {}
        super().__init__()

    def actions(self) -> Mapping[str, FaultAction]:
        """Return the action of each kind of fault."""
        actions: dict[str, FaultAction] = {
            FaultKind.POWER_LOSS: self.lose_power,
            FaultKind.PARTITION: self.partition,
            FaultKind.PARTITION_ONE_WAY: self.partition_one_way,
            FaultKind.CLOG: self.clog,
            FaultKind.RESET: self.reset,
            FaultKind.BLACK_HOLE: self.black_hole,
            FaultKind.SLOW_READER: self.slow_reader,
        }
        if self._cast.intruders:
            actions[FaultKind.INTRUDER] = self.intrude
        for role, processes in self._cast.roles.items():
            actions[f"crash-{role}"] = self.crash(processes)
            actions[f"freeze-{role}"] = self.freeze(processes)
            actions[f"drain-{role}"] = self.drain(processes)
        return actions

    def end(self) -> None:
        """End all faults, cancel the planned ones, and restart dead processes."""
        super().end()
        self._network.heal()
        for intruder in self._cast.intruders:
            intruder.retired = True
            intruder.crash()
        for process in self._cast.honest:
            process.thaw()
            process.start()
        for stream in list(self._held):
            self._let_go(stream)

    # --- processes --------------------------------------------------------------------------------
    def crash(self, processes: Sequence[Process]) -> FaultAction:
        """Return a fault that crashes one of `processes`, and restarts it later."""

        def act(process: Process, fault: Fault) -> None:
            process.crash(politely=spare(fault.lot) < 0.5)
            self._world.after(fault.duration_s, process.start)

        return upon(processes, act)

    def freeze(self, processes: Sequence[Process]) -> FaultAction:
        """Return a fault that freezes one of `processes`."""

        def act(process: Process, fault: Fault) -> None:
            if not process.frozen:
                process.freeze()
                self._world.after(fault.duration_s, self._thaw, process, process.life)

        return upon(processes, act)

    def drain(self, processes: Sequence[Process]) -> FaultAction:
        """Return a fault that drains one of `processes`, and restarts it later."""

        def act(process: Process, fault: Fault) -> None:
            if not process.frozen:
                process.drain()
                self._world.after(fault.duration_s, self._rejoin, process)

        return upon(processes, act)

    def lose_power(self, fault: Fault) -> None:
        """Cut power to a machine: its connections drop without a FIN."""
        process = choose(self._cast.honest, fault.lot)
        process.lose_power()
        self._world.after(fault.duration_s, process.start)

    def intrude(self, fault: Fault) -> None:
        """Start an intruder."""
        intruder = choose(self._cast.intruders, fault.lot)
        intruder.start()
        self._world.after(fault.duration_s, intruder.crash)

    def _thaw(self, process: Process, life: int) -> None:
        if process.life == life:
            process.thaw()

    def _rejoin(self, process: Process) -> None:
        """Restart a draining process once it has exited."""
        if process.alive and not process.retired:
            self._world.after(0.2, self._rejoin, process)
        else:
            process.start()

    # --- the network ------------------------------------------------------------------------------
    def partition(self, fault: Fault) -> None:
        """Cut two nodes off from each other."""
        there, back = self._cast.choose_nodes(fault.lot)
        for way in ((there, back), (back, there)):
            self._separate(way, fault.duration_s)

    def partition_one_way(self, fault: Fault) -> None:
        """Cut one direction between two nodes."""
        self._separate(self._choose_direction(fault.lot), fault.duration_s)

    def clog(self, fault: Fault) -> None:
        """Hold the bytes that one node sends to another."""
        way = self._choose_direction(fault.lot)
        self._network.clog(*way)
        self._world.after(fault.duration_s, self._unless_over, self._network.unclog, *way)

    def reset(self, fault: Fault) -> None:
        """Reset a connection; both ends detect it."""
        stream = self._choose_stream(fault.lot)
        if stream is not None:
            self._network.reset(stream)

    def black_hole(self, fault: Fault) -> None:
        """Drop all bytes of a connection; neither end detects it."""
        stream = self._choose_stream(fault.lot)
        if stream is not None:
            self._network.black_hole(stream)

    def slow_reader(self, fault: Fault) -> None:
        """Stop one end of a connection from reading for a while."""
        stream = self._choose_stream(fault.lot)
        if stream is not None:
            stream.hold()
            self._held[stream] = None
            self._world.after(fault.duration_s, self._let_go, stream)

    def _let_go(self, stream: SimStream) -> None:
        if stream in self._held:
            del self._held[stream]
            stream.let_go()

    def _separate(self, way: NodePair, duration_s: float) -> None:
        self._network.cut(*way)
        self._world.after(duration_s, self._unless_over, self._network.mend, *way)

    def _unless_over(self, act: Callable[[str, str], None], source: str, sink: str) -> None:
        if not self._over:
            act(source, sink)

    def _choose_direction(self, lot: float) -> NodePair:
        there, back = self._cast.choose_nodes(lot)
        return (there, back) if spare(lot) < 0.5 else (back, there)

    def _choose_stream(self, lot: float) -> SimStream | None:
        streams = self._cast.streams()
        return choose(streams, lot) if streams else None


def upon(processes: Sequence[Chosen], act: Callable[[Chosen, Fault], None]) -> FaultAction:
    """Return a fault that affects one of `processes`, or none if there are none."""

    def deed(fault: Fault) -> None:
        if processes:
            act(choose(processes, fault.lot), fault)

    return deed


def choose(things: Sequence[Chosen], lot: float) -> Chosen:
    """Choose an item by a random number in [0, 1)."""
    return things[int(lot * len(things))]


def spare(lot: float) -> float:
    """Return a second random number in [0, 1), from the lower digits of `lot`."""
    return lot * 1000 % 1.0
