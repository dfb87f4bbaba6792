"""Who is on stage: the broker and the workers, started as a user would start them."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Final

from requite.cli.show.processes import Child, State
from requite.heartbeat import HeartbeatPolicy

_COMMAND: Final = "requite.cli"
_SERVICE: Final = "requite.examples:nearest"
_DIRECT: Final = "requite.cli.show.direct"
_LISTENING: Final = "listening on "


class Cast:
    """The processes of the demo; leaving the `with` block ends them all.

    A successor takes its predecessor's place in `children`: the broker is first, then the workers.
    Each keeps a journal in the folder `journal`, where there is one.
    """

    def __init__(
        self, workers: int, *, heartbeat: HeartbeatPolicy, capacity: int, journal: Path | None
    ) -> None:
        self._habits = (
            f"--heartbeat-interval={heartbeat.interval_s}",
            f"--liveness={heartbeat.liveness}",
            *([f"--journal={journal}"] if journal else []),
        )
        self._capacity = f"--capacity={capacity}"
        self.workers = workers
        self._address = "tcp://127.0.0.1:0"
        self.children: list[Child] = []
        self._others: list[Child] = []
        self.worker_kills = 0
        self.broker_kills = 0

    def __enter__(self) -> Cast:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for child in (*self.children, *self._others):
            if child.state is not State.KILLED:
                child.kill()

    @property
    def url(self) -> str:
        """Where the broker is."""
        return self._address.replace("tcp://", "mdp://")

    async def enter(self) -> None:
        """Start everybody. The broker takes a free port, and keeps it when it is started again."""
        self.children.append(self._new_broker())
        await self._await_broker()
        for number in range(1, self.workers + 1):
            self.children.append(self._new_worker(number))
        for child in self.children[1:]:
            await child.read_line()

    def start_reckoner(self, neighbours: int) -> Child:
        """Start the process that computes what the answers must be, and prints it."""
        self._others.append(Child("the direct computation", _DIRECT, str(neighbours)))
        return self._others[-1]

    def kill_broker(self) -> None:
        """SIGKILL the broker: its queues and tables are gone with it."""
        self.children[0].kill()
        self.broker_kills += 1

    async def restart_broker(self) -> None:
        """Start a broker at the same address."""
        self.children[0] = self._new_broker()
        await self._await_broker()

    def kill_worker(self, number: int) -> None:
        """SIGKILL worker `number` (from 1)."""
        self.children[number].kill()
        self.worker_kills += 1

    async def restart_worker(self, number: int) -> None:
        """Start a worker in the place of a killed one."""
        self.children[number] = self._new_worker(number)
        await self.children[number].read_line()

    def stop_worker(self, number: int) -> None:
        """SIGSTOP worker `number`."""
        self.children[number].stop()

    def resume_worker(self, number: int) -> None:
        """SIGCONT worker `number`."""
        self.children[number].resume()

    def check(self) -> None:
        """Raise `ShowFailed` if somebody left unasked."""
        for child in self.children:
            child.check()

    def _new_broker(self) -> Child:
        # A request may be so unlucky as to lose several workers; here none of them is poison.
        arguments = ("broker", f"--bind={self._address}", "--attempts=50", *self._habits)
        return Child("broker", _COMMAND, *arguments)

    async def _await_broker(self) -> None:
        line = await self.children[0].read_line()
        self._address = line.removeprefix(_LISTENING)

    def _new_worker(self, number: int) -> Child:
        arguments = ("worker", _SERVICE, f"--connect={self.url}", self._capacity, *self._habits)
        return Child(f"worker {number}", _COMMAND, *arguments)
