"""What goes wrong in the first phase, and when: a schedule drawn from the seed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from requite.sim.knobs import FaultKind, Knobs
from requite.sim.roles import BROKER

if TYPE_CHECKING:
    from requite.sim.cast import Cast
    from requite.sim.process import Process
    from requite.sim.stream import SimStream

Chosen = TypeVar("Chosen")

_SHORTEST: Final = 0.1  # heartbeat intervals
_RESTART_S_MAX: Final = 3.0


class Fault(NamedTuple):
    """One thing that goes wrong at `at_s`, for `duration_s`. `lot` in [0, 1) chooses the victim."""

    at_s: float
    kind: FaultKind
    duration_s: float
    lot: float


def plan_faults(knobs: Knobs, rng: Random) -> Iterator[Fault]:
    """Draw the faults of the first phase: each kind comes at its rate, at random instants."""
    for kind in knobs.faults:
        at_s = rng.expovariate(knobs.faults_per_s)
        while at_s < knobs.faulty_s:
            yield Fault(at_s, kind, _duration_s(knobs, rng, kind), rng.random())
            at_s += rng.expovariate(knobs.faults_per_s)


def _duration_s(knobs: Knobs, rng: Random, kind: FaultKind) -> float:
    if kind in (FaultKind.CRASH_BROKER, FaultKind.CRASH_CLIENT, FaultKind.CRASH_WORKER):
        return rng.uniform(0.0, _RESTART_S_MAX)
    if kind is FaultKind.INTRUDER:
        return rng.uniform(0.5, 5.0)
    # As many short ones as long ones, by orders of magnitude: the borders of timeouts lie between.
    intervals: float = _SHORTEST * (knobs.outage_max / _SHORTEST) ** rng.random()
    return intervals * knobs.interval_s


class Trouble:
    """Performs faults upon a cast."""

    def __init__(self, cast: Cast) -> None:
        self._cast = cast
        self._world = cast.world
        self._network = cast.network
        self._over = False
        self._do: dict[FaultKind, Callable[[Fault], None]] = {
            FaultKind.CRASH_BROKER: lambda fault: self._crash([cast.broker], fault),
            FaultKind.CRASH_WORKER: lambda fault: self._crash(cast.workers, fault),
            FaultKind.CRASH_CLIENT: lambda fault: self._crash(cast.clients, fault),
            FaultKind.POWER_LOSS: self._lose_power,
            FaultKind.FREEZE_BROKER: lambda fault: self._freeze([cast.broker], fault),
            FaultKind.FREEZE_WORKER: lambda fault: self._freeze(cast.workers, fault),
            FaultKind.FREEZE_CLIENT: lambda fault: self._freeze(cast.clients, fault),
            FaultKind.PARTITION: self._partition,
            FaultKind.PARTITION_ONE_WAY: self._partition_one_way,
            FaultKind.CLOG: self._clog,
            FaultKind.RESET: self._reset,
            FaultKind.BLACK_HOLE: self._black_hole,
            FaultKind.DRAIN_BROKER: lambda fault: self._drain([cast.broker], fault),
            FaultKind.DRAIN_WORKER: lambda fault: self._drain(cast.workers, fault),
            FaultKind.DRAIN_CLIENT: lambda fault: self._drain(cast.clients, fault),
            FaultKind.INTRUDER: self._intrude,
        }

    def strike(self, fault: Fault) -> None:
        """Let a fault happen."""
        if not self._over:
            self._do[fault.kind](fault)

    def end(self) -> None:
        """Heal everything; what was planned does not happen any more."""
        self._over = True
        self._network.heal()
        for intruder in self._cast.intruders:
            intruder.retired = True
            intruder.crash()
        for process in self._cast.honest:
            process.thaw()
            process.start()

    # --- processes --------------------------------------------------------------------------------
    def _crash(self, processes: Sequence[Process], fault: Fault) -> None:
        process = _choose(processes, fault.lot)
        process.crash(politely=_spare(fault.lot) < 0.5)
        self._world.after(fault.duration_s, process.start)

    def _lose_power(self, fault: Fault) -> None:
        process = _choose(self._cast.honest, fault.lot)
        process.lose_power()
        self._world.after(fault.duration_s, process.start)

    def _freeze(self, processes: Sequence[Process], fault: Fault) -> None:
        process = _choose(processes, fault.lot)
        if not process.frozen:
            process.freeze()
            self._world.after(fault.duration_s, self._thaw, process, process.life)

    def _thaw(self, process: Process, life: int) -> None:
        if process.life == life:
            process.thaw()

    def _drain(self, processes: Sequence[Process], fault: Fault) -> None:
        process = _choose(processes, fault.lot)
        if not process.frozen:
            process.drain()
            self._world.after(fault.duration_s, self._rejoin, process)

    def _rejoin(self, process: Process) -> None:
        """Start a process again that is draining, once it has left."""
        if process.alive and not process.retired:
            self._world.after(0.2, self._rejoin, process)
        else:
            process.start()

    def _intrude(self, fault: Fault) -> None:
        intruder = _choose(self._cast.intruders, fault.lot)
        intruder.start()
        self._world.after(fault.duration_s, intruder.crash)

    # --- the network ------------------------------------------------------------------------------
    def _partition(self, fault: Fault) -> None:
        peer = _choose(self._cast.peers, fault.lot).name
        for way in ((BROKER, peer), (peer, BROKER)):
            self._separate(way, fault.duration_s)

    def _partition_one_way(self, fault: Fault) -> None:
        peer = _choose(self._cast.peers, fault.lot).name
        way = (BROKER, peer) if _spare(fault.lot) < 0.5 else (peer, BROKER)
        self._separate(way, fault.duration_s)

    def _separate(self, way: tuple[str, str], duration_s: float) -> None:
        self._network.cut(*way)
        self._world.after(duration_s, self._unless_over, self._network.mend, way)

    def _unless_over(self, act: Callable[[str, str], None], way: tuple[str, str]) -> None:
        if not self._over:
            act(*way)

    def _clog(self, fault: Fault) -> None:
        peer = _choose(self._cast.peers, fault.lot).name
        way = (BROKER, peer) if _spare(fault.lot) < 0.5 else (peer, BROKER)
        self._network.clog(*way)
        self._world.after(fault.duration_s, self._unless_over, self._network.unclog, way)

    def _reset(self, fault: Fault) -> None:
        stream = self._choose_stream(fault.lot)
        if stream is not None:
            self._network.reset(stream)

    def _black_hole(self, fault: Fault) -> None:
        stream = self._choose_stream(fault.lot)
        if stream is not None:
            self._network.black_hole(stream)

    def _choose_stream(self, lot: float) -> SimStream | None:
        streams = [s for s in self._cast.broker.streams if s.is_open]
        return _choose(streams, lot) if streams else None


def _choose(things: Sequence[Chosen], lot: float) -> Chosen:
    return things[int(lot * len(things))]


def _spare(lot: float) -> float:
    """Return a second lot out of one: what its first digits leave."""
    return lot * 1000 % 1.0
