"""Faults of the processes and channels of a topology."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum

from requite.sim.fault_injection import FaultAction, FaultInjector, NodePair, choose
from requite.sim.faults import Fault
from requite.sim.process import Process
from requite.sim.scalability.cast import SpCast
from requite.sim.scalability.knobs import SpFault
from requite.sim.stream import SimStream


class SpFaultInjector(FaultInjector):
    """Injects faults into clients, devices and workers."""

    _cast: SpCast

    def __init__(self, cast: SpCast) -> None:
        super().__init__(cast)
        self._held: dict[SimStream, None] = {}

    def actions(self) -> Mapping[StrEnum, FaultAction]:
        """Return the action of each `SpFault`."""
        cast = self._cast
        return {
            SpFault.CRASH_CLIENT: self.crash(cast.clients),
            SpFault.CRASH_DEVICE: _if_any(cast.devices, self.crash(cast.devices)),
            SpFault.CRASH_WORKER: self.crash(cast.workers),
            SpFault.POWER_LOSS: self.lose_power,
            SpFault.FREEZE_CLIENT: self.freeze(cast.clients),
            SpFault.FREEZE_DEVICE: _if_any(cast.devices, self.freeze(cast.devices)),
            SpFault.FREEZE_WORKER: self.freeze(cast.workers),
            SpFault.PARTITION: self.partition,
            SpFault.PARTITION_ONE_WAY: self.partition_one_way,
            SpFault.CLOG: self.clog,
            SpFault.RESET: self.reset,
            SpFault.BLACK_HOLE: self.black_hole,
            SpFault.SLOW_READER: self._hold,
            SpFault.DRAIN_CLIENT: self.drain(cast.clients),
            SpFault.DRAIN_DEVICE: _if_any(cast.devices, self.drain(cast.devices)),
            SpFault.DRAIN_WORKER: self.drain(cast.workers),
            SpFault.INTRUDER: self.intrude,
        }

    def choose_nodes(self, lot: float) -> NodePair:
        """Choose two connected processes."""
        edge = choose(self._cast.edges, lot)
        return edge.upper, edge.lower

    def streams(self) -> Sequence[SimStream]:
        """Return the ends of all connections."""
        return [stream for p in self._cast.honest for stream in p.streams if stream.is_open]

    def end(self) -> None:
        """End all faults, slow readers included."""
        super().end()
        for stream in list(self._held):
            self._let_go(stream)

    def _hold(self, fault: Fault) -> None:
        """Stop one end of a connection from reading for a while."""
        streams = self.streams()
        if streams:
            stream = choose(streams, fault.lot)
            stream.hold()
            self._held[stream] = None
            self._world.after(fault.duration_s, self._let_go, stream)

    def _let_go(self, stream: SimStream) -> None:
        if stream in self._held:
            del self._held[stream]
            stream.let_go()


def _if_any(processes: Sequence[Process], action: FaultAction) -> FaultAction:
    return action if processes else _nothing


def _nothing(_fault: Fault) -> None:
    """Do nothing: the run has no process for this fault."""
