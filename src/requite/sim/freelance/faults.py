"""Faults of clients, servers and their connections."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum

from requite.sim.fault_injection import FaultAction, FaultInjector, NodePair, choose, spare
from requite.sim.freelance.cast import FlpCast
from requite.sim.freelance.knobs import FlpFault
from requite.sim.stream import SimStream


class FlpFaultInjector(FaultInjector):
    """Injects faults into clients and servers."""

    _cast: FlpCast

    def __init__(self, cast: FlpCast) -> None:
        super().__init__(cast)

    def actions(self) -> Mapping[StrEnum, FaultAction]:
        """Return the action of each `FlpFault`."""
        cast = self._cast
        return {
            FlpFault.CRASH_CLIENT: self.crash(cast.clients),
            FlpFault.CRASH_SERVER: self.crash(cast.servers),
            FlpFault.POWER_LOSS: self.lose_power,
            FlpFault.FREEZE_CLIENT: self.freeze(cast.clients),
            FlpFault.FREEZE_SERVER: self.freeze(cast.servers),
            FlpFault.PARTITION: self.partition,
            FlpFault.PARTITION_ONE_WAY: self.partition_one_way,
            FlpFault.CLOG: self.clog,
            FlpFault.RESET: self.reset,
            FlpFault.BLACK_HOLE: self.black_hole,
            FlpFault.DRAIN_CLIENT: self.drain(cast.clients),
            FlpFault.DRAIN_SERVER: self.drain(cast.servers),
            FlpFault.INTRUDER: self.intrude,
        }

    def choose_nodes(self, lot: float) -> NodePair:
        """Choose a pair of client and server."""
        return choose(self._cast.clients, lot).name, choose(self._cast.servers, spare(lot)).name

    def streams(self) -> Sequence[SimStream]:
        """Return the ends of all connections."""
        return [stream for p in self._cast.honest for stream in p.streams if stream.is_open]
