"""The state that all programs of a run share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from requite.broker import Broker
from requite.client.aio import AsyncClient
from requite.pool.manager.manager import PoolManager
from requite.queue.queue import Queue
from requite.sim.kernel.history import Call
from requite.sim.kernel.program import Program
from requite.sim.kernel.stage import RunStage
from requite.sim.shells.knobs import MIDDLE, ShellKnobs, Transport
from requite.sp.device import Device
from requite.titanic.titanic import Titanic
from requite.worker.worker import Worker

if TYPE_CHECKING:
    pass

FRONT: Final = 5555
BACK: Final = 5556


@dataclass(frozen=True, slots=True)
class ShellParts:
    """The shells under test. Mutation tests pass broken ones."""

    client: Callable[..., AsyncClient] = AsyncClient
    worker: Callable[..., Worker] = Worker
    broker: Callable[..., Broker] = Broker
    queue: Callable[..., Queue] = Queue
    device: Callable[..., Device] = Device
    titanic: Callable[..., Titanic] = Titanic
    manager: Callable[..., PoolManager] = PoolManager


@dataclass(slots=True)
class ShellStage(RunStage[ShellKnobs, ShellParts]):
    """The state that all processes of a run share."""

    tickets: dict[str, Call] = field(default_factory=dict)  # of durable requests


class Member(Program):
    """A program of a run."""

    def __init__(self, name: str, stage: ShellStage) -> None:
        pace = stage.knobs.pace
        super().__init__(name, stage.world, stage.network, pace, stage.supervisor, self.main)
        self.stage = stage

    async def main(self) -> None:
        """Run the program until SIGTERM."""
        raise NotImplementedError

    def say(self, what: str) -> None:
        """Record an event in the transcript."""
        if self.stage.transcript is not None:
            self.stage.transcript.event(self.name, what)


def brokers(knobs: ShellKnobs) -> str:
    """Return the addresses of the brokers of a run, as in a URL; with a replica, only the first."""
    names = [name for name in MIDDLE[knobs.transport] if name.startswith("broker")]
    if knobs.transport is Transport.REPLICA:
        del names[1:]
    return ",".join(f"{name}:{FRONT}" for name in names)


def tcp(port: int) -> str:
    return f"tcp://localhost:{port}"
