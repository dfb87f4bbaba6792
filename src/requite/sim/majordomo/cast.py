"""The processes of a run with a Majordomo broker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from requite.sim.kernel.cast import Cast
from requite.sim.kernel.fault_injection import NodePair, choose
from requite.sim.majordomo.intruder import Intruder
from requite.sim.majordomo.parties import BROKER, Broker, ClientProcess, Stage, WorkerProcess

if TYPE_CHECKING:
    from requite.sim.kernel.process import Process


class MajordomoCast(Cast):
    """A broker, its clients and its workers; `brokers`: those of a pair, in place of the one."""

    make_client: type[ClientProcess] = ClientProcess
    make_worker: type[WorkerProcess] = WorkerProcess
    make_intruder: type[Intruder] = Intruder

    def __init__(self, stage: Stage, brokers: Sequence[Any] = (), intruders: int = 3) -> None:
        self.brokers: Sequence[Any] = brokers or [Broker(stage)]
        self.clients = [self.make_client(spec, stage) for spec in stage.knobs.clients]
        self.workers = [self.make_worker(spec, stage) for spec in stage.knobs.workers]
        self.peers: list[Process] = [*self.clients, *self.workers]
        super().__init__(
            stage,
            {"broker": self.brokers, "client": self.clients, "worker": self.workers},
            [self.make_intruder(f"intruder-{i + 1}", stage) for i in range(intruders)],
            exposed=self.brokers,
        )

    @property
    def broker(self) -> Broker:
        """The broker."""
        broker: Broker = self.brokers[0]
        return broker

    def choose_nodes(self, lot: float) -> NodePair:
        """Choose the broker and one of its peers."""
        return BROKER, choose(self.peers, lot).name
