"""The processes of a run."""

from __future__ import annotations

from requite.sim.kernel.cast import Cast
from requite.sim.kernel.fault_injection import NodePair, choose, spare
from requite.sim.shells.clients import ShellClient
from requite.sim.shells.knobs import MIDDLE, ShellWorkerSpec, Transport
from requite.sim.shells.middle import Middle
from requite.sim.shells.pool import Platform
from requite.sim.shells.stage import FRONT, Member, ShellStage
from requite.sim.shells.workers import ShellWorker


class ShellCast(Cast):
    """Clients, workers, and the processes between them."""

    def __init__(self, stage: ShellStage) -> None:
        knobs = stage.knobs
        self._stage = stage
        self.middle = [Middle(name, stage) for name in MIDDLE[knobs.transport]]
        self.workers: list[ShellWorker] = []
        if knobs.transport is Transport.POOL:
            platform = Platform(stage, self.join)
            for manager in self.middle[1:]:
                manager.platform = platform
        else:
            self.workers += [ShellWorker(spec, stage) for spec in knobs.workers]
        self.clients = [ShellClient(spec, stage) for spec in knobs.clients]
        self.members: list[Member] = [*self.middle, *self.workers, *self.clients]
        super().__init__(
            stage,
            {"middle": self.middle, "worker": self.workers, "client": self.clients},
            exposed=self.members,
        )

    def choose_nodes(self, lot: float) -> NodePair:
        """Choose two connected programs."""
        transport = self._stage.knobs.transport
        if not self.middle:
            return choose(self.clients, lot).name, choose(self.workers, spare(lot)).name
        peers: list[Member] = [*self.clients, *self.workers]
        if transport in (Transport.PAIR, Transport.REPLICA):
            peers = [*peers, self.middle[0]]
        elif transport is Transport.POOL:
            peers += self.middle[1:]
        peer = choose(peers, lot)
        others = [middle for middle in self.middle if middle is not peer]
        if transport is Transport.POOL:
            del others[1:]  # all are connected to the broker
        return peer.name, choose(others, spare(lot)).name

    def lose_primary(self) -> str:
        """Crash the first of two brokers for good, and start a worker of the second; return the
        second's address."""
        primary, standby = self.middle
        primary.retired = True
        primary.crash()
        place = f"{standby.name}:{FRONT}"
        spare = ShellWorker(ShellWorkerSpec("worker-of-standby"), self._stage, place)
        self.join(spare)
        spare.start()
        return place

    def join(self, worker: ShellWorker) -> None:
        """Add a worker; remove those from `workers` that have ended for good."""
        self.workers[:] = [each for each in self.workers if each.alive or not each.retired]
        self.workers.append(worker)
        self.members.append(worker)
        self.honest.append(worker)
