"""The processes of a run."""

from __future__ import annotations

from requite.sim.process import Process
from requite.sim.shells.clients import ShellClient
from requite.sim.shells.knobs import (
    MIDDLE,
    ShellWorkerSpec,
    Transport,
)
from requite.sim.shells.middle import Middle
from requite.sim.shells.pool import Platform
from requite.sim.shells.stage import FRONT, Member, ShellStage
from requite.sim.shells.workers import ShellWorker


class ShellCast:
    """All processes of a run, not yet started."""

    def __init__(self, stage: ShellStage) -> None:
        knobs = stage.knobs
        self.world = stage.world
        self.network = stage.network
        self.middle = [Middle(name, stage) for name in MIDDLE[knobs.transport]]
        self.workers: list[ShellWorker] = []
        if knobs.transport is Transport.POOL:
            platform = Platform(stage, self.join)
            for manager in self.middle[1:]:
                manager.platform = platform
        else:
            self.workers += [ShellWorker(spec, stage) for spec in knobs.workers]
        self.clients = [ShellClient(spec, stage) for spec in knobs.clients]
        self.intruders: list[Process] = []
        self._stage = stage
        self.members: list[Member] = [*self.middle, *self.workers, *self.clients]
        self.honest: list[Process] = [*self.members]
        self._by_name = {client.name: client for client in self.clients}

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

    def client(self, name: str) -> ShellClient:
        """Return the client of that name."""
        return self._by_name[name]
